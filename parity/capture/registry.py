"""Kinds of objects: which function shows a walk what an object of a class holds, and which packages are libraries."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from parity.errors import SpecError

__all__ = [
    "CONTAINERS",
    "DEAD",
    "FIRST",
    "LAST",
    "LIBRARY_ROOTS",
    "OPTIMIZERS",
    "PLACES",
    "SHOWING_ROOTS",
    "WEAK",
    "Visit",
    "VisitedKind",
    "class_visits",
    "is_a",
    "kind_of",
    "register",
    "root_package",
]  # fmt: skip

Visit = Callable[[Any, str, Any], None]
"""Shows a walk what the object at a path holds: calls `leaf`, `array` and `visit` of the walk."""
VisitedKind = tuple[Visit, int, bool]
"""What shows an object, its place in the order of visits, and whether attributes of its own are looked at too."""

FIRST = 0
"""Place in the order of visits of modules, whose names others use."""
OPTIMIZERS = 1
CONTAINERS = 2
LAST = 3
PLACES = 9
"""Place of what no variable of the loop leads to: every object keeps the path by which the loop itself reaches it."""
DEAD = 10
"""Place of variables that nobody reads: the state of a class keeps its path where a loaded document holds it too."""
WEAK = 11
"""Place of what is kept by objects that others hold: each of those has its path by then."""

_by_type: dict[type, VisitedKind] = {}
_by_name: dict[str, VisitedKind] = {}

LIBRARY_ROOTS = (
    "torch", "jax", "jaxlib", "numpy", "flax", "optax", "orbax", "grain", "lightning", "pytorch_lightning",
    "lightning_fabric", "transformers", "accelerate",
)  # fmt: skip
"""Packages whose functions are not looked into: their closures hold no state of a training loop."""

SHOWING_ROOTS = (
    "tqdm", "rich", "tensorboard", "tensorboardX", "wandb", "mlflow", "comet_ml", "neptune", "aim", "typing",
    "typing_extensions", "_pytest", "pluggy",
)  # fmt: skip
"""Packages that show, log, describe types or run tests: their objects hold nothing that training continues from."""


class_visits: list[Callable[[Any, type], None]] = []
"""Called once for each class of which a walk meets an object: they show what the class holds itself."""


def register(kind: type | str, visit: Visit, *, order: int = LAST, attributes: bool = False) -> None:
    """Add a kind, or replace one.

    Args:
        kind: The class, or its full name, `package.module.Class`, for a class that need not be imported.
        visit: Called as `visit(walk, path, value)`; must not change the value.
        order: 0 for what gives names to others, 1 for what uses them, 3 for the rest.
        attributes: Whether what an object of a subclass holds in attributes of its own is looked at beside, as those
            that a user's subclass of `dict` adds. Not for a visit that shows all attributes itself.

    Raises:
        SpecError: `kind` is neither a class nor a dotted name, or `visit` cannot be called.

    Example:
        >>> from parity.capture import Walk
        >>> class Meter:
        ...     def __init__(self): self.total = 3.0
        >>> register(Meter, lambda walk, path, meter: walk.visit(f"{path}.total", meter.total))
        >>> walk = Walk(); walk.root("meter", Meter()); snapshot = walk.finish()
        >>> snapshot.leaves["meter.total"].digest
        '3.0'
    """
    if not callable(visit):
        raise SpecError("visit", f"must be a function of (walk, path, value), got {visit!r}")
    if isinstance(kind, type):
        _by_type[kind] = (visit, order, attributes)
    elif isinstance(kind, str) and "." in kind:
        _by_name[kind] = (visit, order, attributes)
    else:
        raise SpecError("kind", f"must be a class, or its name with its module, got {kind!r}")
    _lookup.clear()


_lookup: dict[type, VisitedKind | None] = {}


def kind_of(cls: type) -> VisitedKind | None:
    """Return what is registered for a class or its nearest base."""
    if cls not in _lookup:
        found = None
        for base in cls.__mro__:
            found = _by_type.get(base) or _by_name.get(f"{base.__module__}.{base.__qualname__}")
            if found is not None:
                break
        _lookup[cls] = found
    return _lookup[cls]


def is_a(value: Any, *classes: type) -> bool:
    """Return whether an object is of one of some classes, without asking it: `isinstance` reads its `__class__`."""
    return issubclass(type(value), classes)


def root_package(thing: Any) -> str:
    """Return the outermost package that a class or function says it is of; empty if it does not say."""
    name = getattr(thing, "__module__", None)
    return name.partition(".")[0] if isinstance(name, str) else ""
