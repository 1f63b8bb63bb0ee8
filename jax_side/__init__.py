"""The JAX twin: Flax NNX, Optax, Orbax, a sharded `lax.scan` over steps."""

from jax_side import processes
from jax_side.checkpoint import Checkpoints
from jax_side.compiled import shared_programs
from jax_side.formats.orbax_manager import drafts
from jax_side.formats.quiet import prepare_process
from jax_side.inference import export_params, load_model
from jax_side.placement import topology
from jax_side.processes import environment
from jax_side.train import JaxTrainer, build

__all__ = [
    "Checkpoints",
    "JaxTrainer",
    "build",
    "drafts",
    "environment",
    "export_params",
    "load_model",
    "prepare_process",
    "processes",
    "shared_programs",
    "topology",
]
