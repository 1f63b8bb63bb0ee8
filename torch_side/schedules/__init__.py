"""PyTorch's learning-rate schedulers read into schedules of the suite at their position, and written back.

Knows schedulers and the groups of optimizers; no twin, no state of parameters.
"""

from torch_side.schedules.read import from_torch
from torch_side.schedules.write import to_torch

__all__ = ["from_torch", "to_torch"]
