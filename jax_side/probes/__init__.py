"""Models and trainers of JAX that people bring, as functions of named leaves in float64, with module calls."""

from jax_side.probes.model import open_model
from jax_side.probes.training import open_trainer

__all__ = ["open_model", "open_trainer"]
