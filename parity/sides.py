"""The registry of sides: the only place that imports `jax_side` and `torch_side`, and only when one is asked for."""

from __future__ import annotations

import importlib
import importlib.util
from pathlib import Path
from typing import Any, Protocol, cast

import xxhash

from parity.channel import Place
from parity.errors import MissingFrameworkError, UnknownNameError
from parity.spec import RunSpec
from parity.trainer import Trainer

__all__ = ["SIDES", "Processes", "Side", "installed", "load", "processes_of", "source_digest"]

SIDES = {"jax": ("jax", "flax", "optax", "orbax"), "torch": ("torch",)}
"""Side to the modules it needs."""


class Side(Protocol):
    """What the harness is given of a side."""

    def build(self, spec: RunSpec, directory: Path | None = None, *, attempt: int = 0) -> Trainer:
        """Build a trainer at step 0."""

    def topology(self, spec: RunSpec) -> dict[str, Any]:
        """Return what bitwise equality depends on beside the spec."""


class Processes(Protocol):
    """What a side that trains in several processes has as `processes`; one that has none trains in one."""

    def place(self) -> Place | None:
        """Return the place of this process, which its launcher put into the environment; None if it is alone.

        Raises:
            SpecError: The environment says it only in part.
        """

    def start(self, place: Place, spec: RunSpec) -> None:
        """Connect the framework's processes, which are all there; called before the side builds anything."""

    def stop(self) -> None:
        """Disconnect them; called by all, when every trainer is closed."""


def processes_of(side: Side) -> Processes | None:
    """Return what a side knows of several processes, if it does."""
    found: Processes | None = getattr(side, "processes", None)
    return found


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
