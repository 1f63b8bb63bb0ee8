"""The JAX twin: Flax NNX, Optax, Orbax, a sharded `lax.scan` over steps."""

from jax_side import processes
from jax_side.checkpoint import Checkpoints
from jax_side.formats.orbax_manager import drafts
from jax_side.formats.quiet import prepare_process
from jax_side.placement import topology
from jax_side.processes import environment
from jax_side.train import JaxTrainer, build

__all__ = [
    "Checkpoints",
    "JaxTrainer",
    "build",
    "drafts",
    "environment",
    "prepare_process",
    "processes",
    "topology",
]
