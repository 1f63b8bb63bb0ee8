"""Models and trainers of PyTorch that people bring, as functions of named leaves in float64, with module calls."""

from torch_side.probes.model import open_model
from torch_side.probes.training import open_trainer

__all__ = ["open_model", "open_trainer"]
