"""Kinds of JAX for the capture of live state: arrays and keys here; optimizers, modules and data from beside."""

from __future__ import annotations

from types import FunctionType
from typing import Any

import jax

from jax_side.adapters.arrays import array
from jax_side.adapters.loaders import register_loaders
from jax_side.adapters.modules import register_modules
from jax_side.adapters.optimizers import register_optimizers
from jax_side.adapters.process import show_settings
from parity.capture import Walk, ambient, component_from_name, register

__all__ = ["install"]

_NO_STATE = (
    "jax._src.custom_derivatives.custom_jvp",
    "jax._src.custom_derivatives.custom_vjp",
    "jax._src.stages.Compiled",
    "jax._src.stages.Lowered",
    "jax._src.stages.Traced",
    "jaxlib._jax.pytree.PyTreeDef",
    "jaxlib._jax.Client",
    "flax.nnx.graphlib.GraphDef",
    "orbax.checkpoint._src.checkpointers.abstract_checkpointer.AbstractCheckpointer",
    "orbax.checkpoint.abstract_checkpoint_manager.AbstractCheckpointManager",
    "orbax.checkpoint.checkpoint_manager.CheckpointManager",
    "orbax.checkpoint.checkpoint_manager.CheckpointManagerOptions",
)
"""Programs, descriptions, and what writes checkpoints in threads of its own."""
_CONSTANTS = ("jaxlib._jax.Device", "jaxlib._jax.Sharding", "jax._src.mesh.Mesh", "jax._src.mesh.AbstractMesh")
_COMPILED = ("jaxlib._jax.PjitFunction", "jaxlib._jax.PmapFunction", "flax.nnx.transforms.compilation.JitWrapped")


def _constant(walk: Walk, path: str, value: Any) -> None:
    walk.leaf(path, str(value), component_from_name(path), "scalar")


def _compiled(walk: Walk, path: str, function: Any) -> None:
    """Look into what a compiled function of the user closes over; its programs are no state."""
    inner = getattr(function, "__wrapped__", None)
    if isinstance(inner, FunctionType):
        walk.visit(path, inner)


def _reference(walk: Walk, path: str, value: Any) -> None:
    """Show a mutable array: unlike an array it can be one thing under two names."""
    if walk.is_new(path, value, "model.ties"):
        array(walk, path, value[...])


def _nothing(walk: Walk, path: str, value: Any) -> None:
    """Show nothing."""


def install() -> None:
    """Register the kinds; again is no harm."""
    register(jax.Array, array)
    register("jax._src.core.Ref", _reference)
    register(jax.core.Tracer, _nothing)
    register(jax.ShapeDtypeStruct, _nothing)
    for name in _NO_STATE:
        register(name, _nothing)
    for name in _CONSTANTS:
        register(name, _constant)
    for name in _COMPILED:
        register(name, _compiled)
    register_optimizers()
    register_modules()
    register_loaders()
    ambient(show_settings)
