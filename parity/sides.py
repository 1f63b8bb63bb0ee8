"""The registry of sides: the only place that imports `jax_side` and `torch_side`, and only when one is asked for."""

from __future__ import annotations

import importlib
import importlib.util
from pathlib import Path
from typing import Any, Protocol, cast

import xxhash

from parity.errors import MissingFrameworkError, UnknownNameError
from parity.spec import RunSpec
from parity.trainer import Trainer

__all__ = ["SIDES", "Side", "installed", "load", "source_digest"]

SIDES = {"jax": ("jax", "flax", "optax", "orbax"), "torch": ("torch",)}
"""Side to the modules it needs."""


class Side(Protocol):
    """What the harness is given of a side."""

    def build(self, spec: RunSpec, directory: Path | None = None, *, attempt: int = 0) -> Trainer:
        """Build a trainer at step 0."""

    def topology(self, spec: RunSpec) -> dict[str, Any]:
        """Return what bitwise equality depends on beside the spec."""


def load(name: str) -> Side:
    """Import a side.

    Raises:
        UnknownNameError: No such side.
        MissingFrameworkError: Its framework is not installed; names the extra to install.
    """
    if name not in SIDES:
        raise UnknownNameError("side", name, SIDES)
    for module in SIDES[name]:
        if importlib.util.find_spec(module) is None:
            raise MissingFrameworkError(name, module)
    return cast(Side, importlib.import_module(f"{name}_side"))


def installed() -> list[str]:
    """Return the sides whose modules are there."""
    return [name for name, modules in SIDES.items() if all(importlib.util.find_spec(m) for m in modules)]


def source_digest() -> str:
    """Return a digest over the sources of the suite: what other code measured is not this one's."""
    root, digest = Path(__file__).resolve().parents[1], xxhash.xxh3_64()
    for package in ("parity", *(f"{name}_side" for name in SIDES)):
        for file in sorted((root / package).rglob("*.py")):
            digest.update(file.read_bytes())
    return digest.hexdigest()
