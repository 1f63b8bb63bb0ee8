"""The registry of sides: the only place that imports `jax_side` and `torch_side`, and only when one is asked for.

Installed packages add further sides by entry points of the group `parity.sides`: a name, and the module or object
that fulfils `Side`. The names of the built-in sides cannot be taken.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from types import ModuleType
from typing import Any, Protocol, cast

import numpy as np
import xxhash
from numpy.typing import NDArray

from parity.contract import Inputs, LeastSquares, ModelProbe, Side, TrainerProbe, Translation
from parity.errors import MissingFrameworkError, SideError, SpecError, UnknownNameError
from parity.state import OptimizerKind

__all__ = [
    "GROUP",
    "SIDES",
    "Adapters",
    "Optimizers",
    "Probes",
    "Side",
    "adapters",
    "installed",
    "is_builtin",
    "load",
    "named_module",
    "named_object",
    "optimizers",
    "probes",
    "source_digest",
]

SIDES = {"jax": ("jax", "flax", "optax", "orbax"), "torch": ("torch",)}
"""Built-in side to the modules it needs."""

OPTIM = {"jax": ("jax", "optax"), "torch": ("torch",)}
"""Built-in side to the modules that its optimizers need."""

PROBED = {"jax": ("jax", "flax"), "torch": ("torch",)}
"""Built-in side to the modules that models of it need."""

GROUP = "parity.sides"
"""Group of the entry points by which installed packages add sides."""


class Adapters(Protocol):
    """What a side offers for any trainer: `jax_side.adapters`, `torch_side.adapters`."""

    readers: Sequence[Callable[[Path], object]]
    """Each returns what a checkpoint file or directory of the framework holds, None if it is of another kind."""

    is_part: Callable[[Path, Path], bool]
    """Tells whether a file below a directory that a reader knows is part of what it gave; any other is looked at."""

    unwritten: Sequence[tuple[object, str]]
    """Module or class and name of each function of the framework that gives memory as it is."""

    def clear(self, value: Any) -> None:
        """Set what one of these functions gave to zeros."""

    def install(self) -> None:
        """Register the kinds of live state of the framework."""

    def set_aside(self) -> Callable[[], None]:
        """Return a function that puts the framework's state of the process back as it is now."""

    def fresh_process(self) -> None:
        """Set the framework's state of the process to what a new process has."""

    def share_programs(self, directory: Path) -> None:
        """Keep compiled programs in a directory that processes share, if the framework can and the user does not."""

    def write(self, target: object, values: NDArray[Any]) -> bool:
        """Write values into a parameter in place; return whether it is one of the framework's that can be written."""


class Optimizers(Protocol):
    """What measures an optimizer of a side: `jax_side.optim`, `torch_side.optim`."""

    def losses(
        self, name: str, arguments: Mapping[str, Any], problem: LeastSquares, steps: int
    ) -> NDArray[np.float64]:
        """Return the losses of a training with an optimizer of torch.optim, or with its exact counterpart."""

    def source(self, name: str) -> str:
        """Return file and line of a class of torch.optim; PyTorch's side alone has it."""

    def translations(
        self, kind: OptimizerKind, given: Mapping[str, Any], problem: LeastSquares, steps: int
    ) -> Sequence[tuple[Translation, NDArray[np.float64] | str]]:
        """Return what one would write in Optax, and the losses or why there are none; JAX's side alone has it."""


class Probes(Protocol):
    """What opens models of a side that people bring: `jax_side.probes`, `torch_side.probes`."""

    def open_model(
        self, option: str, name: str, made: Any, args: Sequence[Any], kwargs: Mapping[str, Any], inputs: Inputs
    ) -> ModelProbe:
        """Return a model, built from a user's object, as a function of its named leaves in float64."""

    def open_trainer(self, model: ModelProbe, functions: Mapping[str, Callable[..., Any]]) -> TrainerProbe:
        """Return a trainer of a model that this side has opened, from the user's `loss`, `start` and `step`."""


def load(name: str) -> Side:
    """Import a side.

    Raises:
        UnknownNameError: No such side, neither built in nor installed.
        MissingFrameworkError: Its framework is not installed; names the extra to install.
        SideError: An installed side cannot be imported, or is no side.
    """
    if name not in SIDES:
        return _load_installed(name)
    return cast(Side, _builtin(name, SIDES))


def optimizers(name: str) -> Optimizers:
    """Import the optimizers of a built-in side, which need less than the side.

    Raises:
        MissingFrameworkError: Its framework is not installed; names the extra to install.
    """
    return cast(Optimizers, _builtin(name, OPTIM, ".optim"))


def probes(name: str) -> Probes:
    """Import what opens models of a built-in side.

    Raises:
        MissingFrameworkError: Its framework is not installed; names the extra to install.
    """
    return cast(Probes, _builtin(name, PROBED, ".probes"))


def _builtin(name: str, needs: Mapping[str, Sequence[str]], package: str = "") -> ModuleType:
    """Import a package of a built-in side, if the modules that it needs are there."""
    for module in needs[name]:
        if importlib.util.find_spec(module) is None:
            raise MissingFrameworkError(name, module)
    return importlib.import_module(f"{name}_side{package}")


def adapters() -> dict[str, Adapters]:
    """Return the adapters of the built-in sides whose framework this process has imported, their kinds registered.

    A trainer that uses a framework has imported it; a framework that is merely installed is left alone.
    """
    found = {}
    for name, modules in SIDES.items():
        if modules[0] in sys.modules:
            found[name] = cast(Adapters, importlib.import_module(f"{name}_side.adapters"))
            found[name].install()
    return found


def installed() -> list[str]:
    """Return the built-in sides whose modules are there, and the names of all that installed packages add."""
    builtin = [name for name, modules in SIDES.items() if all(importlib.util.find_spec(m) for m in modules)]
    return builtin + sorted(_entries().keys() - SIDES)


def _load_installed(name: str) -> Side:
    entries = _entries()
    if name not in entries:
        raise UnknownNameError("side", name, [*SIDES, *entries])
    first, *others = entries[name]
    if others:
        origins = " and ".join(str(entry.dist and entry.dist.name) for entry in entries[name])
        raise SideError(name, f"{origins} both add a side of this name; uninstall one of them")
    origin = f"entry point {first.value!r} of the group {GROUP}"
    try:
        side = first.load()
    except Exception as error:  # anything that the package does when it is imported
        why = " ".join(f"{type(error).__name__}: {error}".split())
        raise SideError(name, f"{origin} cannot be imported: {why}; repair or uninstall its package") from error
    lacking = [word for word in ("build", "topology") if not callable(getattr(side, word, None))]
    if lacking:
        raise SideError(name, f"{origin} has no function {' and no '.join(lacking)}; parity.sides.Side needs both")
    return cast(Side, side)


def _entries() -> dict[str, list[EntryPoint]]:
    """Return the sides that installed packages add, by name; a name is ambiguous if several packages add it."""
    found: dict[str, list[EntryPoint]] = {}
    for entry in entry_points(group=GROUP):
        found.setdefault(entry.name, []).append(entry)
    return found


def named_object(option: str, text: str) -> Any:
    """Return an object of the user's own code, such as `mine:Model`; the working directory is looked in first.

    Args:
        option: The option that names it, for messages.
        text: Module and name, joined by a colon. Importing it runs it: what it prints goes to standard error.

    Raises:
        SpecError: It is no such pair, or the module cannot be imported or has no such name.
    """
    module, colon, name = text.partition(":")
    if not (colon and module and name and all(part.isidentifier() for part in f"{module}.{name}".split("."))):
        raise SpecError(option, f"expected MODULE:NAME, such as mine:Model, got {text!r}")
    return _imported(option, text, module, name.split("."))


def named_module(option: str, text: str) -> Any:
    """Return a module of the user's own code, such as `mine`; the working directory is looked in first.

    Args:
        option: The option that names it, for messages.
        text: Its name. Importing it runs it: what it prints goes to standard error.

    Raises:
        SpecError: It is no name of a module, or cannot be imported.
    """
    if not all(part.isidentifier() for part in text.split(".")):
        raise SpecError(option, f"expected a module, such as mine or package.mine, got {text!r}")
    return _imported(option, text, text, [])


def _imported(option: str, text: str, module: str, names: Sequence[str]) -> Any:
    path = list(sys.path)
    sys.path.insert(0, os.getcwd())
    try:
        with contextlib.redirect_stdout(sys.stderr):
            found: Any = importlib.import_module(module)
            for part in names:
                found = getattr(found, part)
    except Exception as error:  # anything that the module does when it is imported
        why = " ".join(f"{type(error).__name__}: {error}".split())
        raise SpecError(option, f"{text} cannot be imported: {why}") from error
    finally:
        sys.path[:] = path
    return found


def is_builtin(side: Side) -> bool:
    """Return whether a side, by any name, is one of the suite's packages, whose sources `source_digest` covers."""
    return any(side is sys.modules.get(f"{name}_side") for name in SIDES)


def source_digest() -> str:
    """Return a digest over the sources of the suite: what other code measured is not this one's."""
    root, digest = Path(__file__).resolve().parents[1], xxhash.xxh3_64()
    for package in ("parity", *(f"{name}_side" for name in SIDES)):
        for file in sorted((root / package).rglob("*.py")):
            digest.update(file.read_bytes())
    return digest.hexdigest()
