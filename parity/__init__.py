"""Proves that training resumes exactly: in PyTorch, in JAX, and across the two.

Names are imported when they are first used: `import parity` loads nothing else.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from parity.contract import StepRecord, Trainer, TrainingState, Validation
    from parity.spec import RunSpec, preset

__all__ = ["RunSpec", "StepRecord", "Trainer", "TrainingState", "Validation", "preset"]

_ROOMS = {"RunSpec": "spec", "preset": "spec"}
"""Name to the package it comes from; all others come from `contract`."""


def __getattr__(name: str) -> object:
    """Import a public name (PEP 562)."""
    if name not in __all__:
        raise AttributeError(f"module 'parity' has no attribute {name!r}")
    return getattr(import_module(f"parity.{_ROOMS.get(name, 'contract')}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
