"""The JAX twin: Flax NNX, Optax, Orbax, a sharded `lax.scan` over steps.

Every name is imported when it is first used, so that the adapters, which know no twin, load none of it.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from jax_side import processes
    from jax_side.checkpoint import Checkpoints
    from jax_side.compiled import shared_programs
    from jax_side.explain import explain_sharding
    from jax_side.formats.optimizer_template import optimizer_template
    from jax_side.formats.orbax_manager import drafts
    from jax_side.formats.quiet import prepare_process
    from jax_side.formats.taken_over import FilledState, take_over
    from jax_side.formats.transformations import transformations_of
    from jax_side.formats.updates import updates_by_class, updates_of
    from jax_side.formats.writers import writers
    from jax_side.inference import export_params, load_model
    from jax_side.placement import topology
    from jax_side.processes import environment
    from jax_side.train import JaxTrainer, build
    from jax_side.trees import CheckpointManager, RestoredTree, Rule, restore, save

__all__ = [
    "CheckpointManager",
    "Checkpoints",
    "FilledState",
    "JaxTrainer",
    "RestoredTree",
    "Rule",
    "build",
    "drafts",
    "environment",
    "explain_sharding",
    "export_params",
    "load_model",
    "optimizer_template",
    "prepare_process",
    "processes",
    "restore",
    "save",
    "shared_programs",
    "take_over",
    "topology",
    "transformations_of",
    "updates_by_class",
    "updates_of",
    "writers",
]

_MODULES = {
    "CheckpointManager": "jax_side.trees",
    "Checkpoints": "jax_side.checkpoint",
    "FilledState": "jax_side.formats.taken_over",
    "JaxTrainer": "jax_side.train",
    "RestoredTree": "jax_side.trees",
    "Rule": "jax_side.trees",
    "build": "jax_side.train",
    "drafts": "jax_side.formats.orbax_manager",
    "environment": "jax_side.processes",
    "explain_sharding": "jax_side.explain",
    "export_params": "jax_side.inference",
    "load_model": "jax_side.inference",
    "optimizer_template": "jax_side.formats.optimizer_template",
    "prepare_process": "jax_side.formats.quiet",
    "processes": "jax_side.processes",
    "restore": "jax_side.trees",
    "save": "jax_side.trees",
    "shared_programs": "jax_side.compiled",
    "take_over": "jax_side.formats.taken_over",
    "topology": "jax_side.placement",
    "transformations_of": "jax_side.formats.transformations",
    "updates_by_class": "jax_side.formats.updates",
    "updates_of": "jax_side.formats.updates",
    "writers": "jax_side.formats.writers",
}
"""Public name to the module that defines it."""


def __getattr__(name: str) -> object:
    """Import a public name (PEP 562)."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    if _MODULES[name] == f"{__name__}.{name}":
        return import_module(_MODULES[name])
    return getattr(import_module(_MODULES[name]), name)


def __dir__() -> list[str]:
    """List the public names, also those that are not imported yet."""
    return sorted(__all__)
