"""The PyTorch twin: eager or compiled, autocast, GradScaler, torch.optim.

Every name is imported when it is first used, so that the adapters, which know no twin, load none of it.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch_side import processes
    from torch_side.checkpoint import Checkpoints
    from torch_side.explain import explain_sharding
    from torch_side.formats.writers import writers
    from torch_side.imports import prepare_process
    from torch_side.inference import export_params, load_model
    from torch_side.placement import topology
    from torch_side.processes import environment
    from torch_side.train import TorchTrainer, build
    from torch_side.trees import CheckpointManager, RestoredTree, Rule, restore, save

__all__ = [
    "CheckpointManager",
    "Checkpoints",
    "RestoredTree",
    "Rule",
    "TorchTrainer",
    "build",
    "environment",
    "explain_sharding",
    "export_params",
    "load_model",
    "prepare_process",
    "processes",
    "restore",
    "save",
    "topology",
    "writers",
]

_MODULES = {
    "CheckpointManager": "torch_side.trees",
    "Checkpoints": "torch_side.checkpoint",
    "RestoredTree": "torch_side.trees",
    "Rule": "torch_side.trees",
    "TorchTrainer": "torch_side.train",
    "build": "torch_side.train",
    "environment": "torch_side.processes",
    "explain_sharding": "torch_side.explain",
    "export_params": "torch_side.inference",
    "load_model": "torch_side.inference",
    "prepare_process": "torch_side.imports",
    "processes": "torch_side.processes",
    "restore": "torch_side.trees",
    "save": "torch_side.trees",
    "topology": "torch_side.placement",
    "writers": "torch_side.formats.writers",
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
