"""Models of PyTorch that people bring, as functions of named leaves in float64, with the calls of their modules."""

from torch_side.probes.model import open_model

__all__ = ["open_model"]
