"""The walk over live objects: from variables to a flat list of leaves, by kind; nothing that it meets is changed.

A kind is a class and a function that shows the walk what an object of it holds. Kinds are looked up along the
class's own order of resolution, so a subclass is seen as its nearest registered base. What has no kind is looked
into by its attributes; what has none of those is asked for its state; what does not answer is listed as not seen.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable, Iterable, Mapping
from pathlib import PurePath
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType
from typing import Any

import numpy as np
import xxhash

from parity.contract.capture.leaf import Leaf, Role, Snapshot
from parity.contract.capture.names import component_from_name
from parity.errors import SpecError

__all__ = ["LIBRARY_ROOTS", "Visit", "Walk", "array_leaf", "attributes_of", "digest_of", "kind_of", "register"]

Visit = Callable[["Walk", str, Any], None]
"""Shows a walk what the object at a path holds: calls `leaf`, `array` and `visit` of the walk."""

TIES = ("model.ties", "optimizer.param_groups", "optimizer.identity", "schedule.identity")
"""Components of which a second path matters: what is edited through it must reach the first."""
MOST_LEAVES = 100_000
"""Leaves of one snapshot; what is above is listed as not seen."""
MOST_DEPTH = 40
FIRST, OPTIMIZERS, CONTAINERS, LAST, DEAD = 0, 1, 2, 3, 9
"""Order of visits: modules, whose names others use; optimizers; containers; the rest; variables nobody reads."""

_by_type: dict[type, tuple[Visit, int]] = {}
_by_name: dict[str, tuple[Visit, int]] = {}

LIBRARY_ROOTS = (
    "torch", "jax", "jaxlib", "numpy", "flax", "optax", "orbax", "grain", "lightning", "pytorch_lightning",
    "lightning_fabric", "transformers", "accelerate",
)  # fmt: skip
"""Packages whose functions are not looked into: their closures hold no state of a training loop."""

SHOWING_ROOTS = ("tqdm", "rich", "tensorboard", "tensorboardX", "wandb", "mlflow", "comet_ml", "neptune", "aim")
"""Packages that show and log: their objects hold nothing that training continues from."""


def register(kind: type | str, visit: Visit, *, order: int = LAST) -> None:
    """Add a kind, or replace one.

    Args:
        kind: The class, or its full name, `package.module.Class`, for a class that need not be imported.
        visit: Called as `visit(walk, path, value)`; must not change the value.
        order: 0 for what gives names to others, 1 for what uses them, 3 for the rest.

    Raises:
        SpecError: `kind` is neither a class nor a dotted name, or `visit` cannot be called.

    Example:
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
        _by_type[kind] = (visit, order)
    elif isinstance(kind, str) and "." in kind:
        _by_name[kind] = (visit, order)
    else:
        raise SpecError("kind", f"must be a class, or its name with its module, got {kind!r}")
    _lookup.clear()


_lookup: dict[type, tuple[Visit, int] | None] = {}


def kind_of(cls: type) -> tuple[Visit, int] | None:
    """Return what is registered for a class or its nearest base."""
    if cls not in _lookup:
        found = None
        for base in cls.__mro__:
            found = _by_type.get(base) or _by_name.get(f"{base.__module__}.{base.__qualname__}")
            if found is not None:
                break
        _lookup[cls] = found
    return _lookup[cls]


def array_leaf(role: Role, component: str, value: np.ndarray[Any, Any], order: str = "") -> Leaf:
    """Return the leaf of a NumPy array: its bytes in memory order, canonical order only where it has gaps.

    Args:
        role: As of `Leaf`.
        component: As of `Leaf`.
        value: The array.
        order: What the kind says of the order in memory; by default `F` where the axes lie in reverse.
    """
    if value.ndim == 0 and not value.dtype.hasobject:
        return Leaf(role, component, f"{value.dtype.name}[]", repr(value.item()))
    if not (value.flags.c_contiguous or value.flags.f_contiguous):
        value = np.ascontiguousarray(value)
    if value.flags.f_contiguous and not value.flags.c_contiguous:
        order, value = order or "F", value.T
    shape = "x".join(map(str, value.shape if order != "F" else value.shape[::-1]))
    if value.dtype.hasobject:
        return Leaf(role, component, f"object[{shape}]", digest_of(repr(value.tolist()).encode()))
    data = value.reshape(-1).view(np.uint8).data if value.size else b""
    return Leaf(role, component, f"{value.dtype.name}[{shape}]{order and '@' + order}", digest_of(data))


def digest_of(data: Any) -> str:
    """Return the XXH3-128 of bytes."""
    return str(xxhash.xxh3_128_hexdigest(data))


class Walk:
    """One walk: give it roots, then `finish`.

    Args:
        hide: Texts that differ between two equal runs, such as the folder, to what stands for them.
        keep: Paths whose values are wanted, as copies.
        finite: Whether floating arrays are searched for NaN and infinity, one copy at a time.
    """

    def __init__(
        self, hide: Mapping[str, str] | None = None, keep: Iterable[str] = (), *, finite: bool = False
    ) -> None:
        self.snapshot = Snapshot()
        self.names: dict[int, str] = {}
        """Object id to the name that its module gives it: the parameters, for optimizers."""
        self.noted: dict[str, Any] = {}
        """What visits note for each other, by a name of theirs."""
        self._hide = dict(hide or {})
        self._keep = frozenset(keep)
        self._finite = finite
        self._seen: dict[Any, tuple[str, str]] = {}
        self._held: list[Any] = []
        self._queue: list[tuple[int, int, str, Any, int]] = []
        self._count = itertools.count()
        self._depth = 0
        self._iterators: tuple[str, ...] = ()

    def root(self, name: str, value: Any, *, dead: bool = False) -> None:
        """Add a variable; a dead one is walked last, so that what is live gives the paths.

        Args:
            name: What its paths begin with.
            value: What it holds.
            dead: Whether the code writes it before it reads it again.
        """
        self._push(name, value, DEAD if dead else None, 0)

    def finish(self) -> Snapshot:
        """Walk everything that was added and return what was seen."""
        while self._queue:
            _, _, path, value, self._depth = heapq.heappop(self._queue)
            self._enter(path, value)
        return self.snapshot

    def visit(self, path: str, value: Any) -> None:
        """Walk a value that an object holds; the path is as its owner would write it."""
        self._push(path, value, None, self._depth + 1)

    def inside(self, path: str, value: Any) -> None:
        """Walk a value at once, before anything that waits: for parts that give names."""
        depth, self._depth = self._depth, self._depth + 1
        self._enter(path, value)
        self._depth = depth

    def leaf(self, path: str, value: Any, component: str, role: Role = "state") -> None:
        """Add a Python value: a number, a text, None; of anything else its `repr`.

        Args:
            path: Path of the value.
            value: The value.
            component: What it is in the field's words, such as `optimizer.hyperparameters`.
            role: As of `Leaf`.
        """
        kind = type(value).__name__
        text = repr(value)
        if isinstance(value, str):
            for hidden, shown in self._hide.items():
                text = text.replace(hidden, shown)
        if isinstance(value, np.generic):
            kind, text = f"numpy.{value.dtype.name}", repr(value.item())
        if len(text) > 120:
            text = digest_of(text.encode())
        self.add(path, Leaf(role, component, kind, text), lambda: value)

    def array(self, path: str, value: np.ndarray[Any, Any], component: str, role: Role = "state") -> None:
        """Add an array; arguments as of `leaf`."""
        self.add(path, array_leaf(role, component, value), lambda: np.array(value))

    def data(self, path: str, data: Any, kind: str, component: str, role: Role) -> None:
        """Add bytes, such as the state of a generator.

        Args:
            path: As of `leaf`.
            data: The bytes, of which the digest is kept.
            kind: Name of the type, such as `random.Random`.
            component: As of `leaf`.
            role: As of `Leaf`.
        """
        self.add(path, Leaf(role, component, kind, digest_of(data)), lambda: bytes(data))

    def add(self, path: str, leaf: Leaf, value: Callable[[], Any]) -> None:
        """Add a leaf; `value` copies what it stands for and is called if the path is wanted."""
        leaves = self.snapshot.leaves
        if leaf.role in ("array", "scalar") and path.startswith(self._iterators):
            leaf = Leaf("position", "data.position", leaf.kind, leaf.digest)
        if len(leaves) >= MOST_LEAVES:
            self.snapshot.unseen.setdefault("...", f"more than {MOST_LEAVES} leaves")
            return
        leaves[path] = leaf
        if path in self._keep:
            self.snapshot.values[path] = value()
        if self._finite and leaf.role in ("state", "array") and "float" in leaf.kind and "[" in leaf.kind:
            self._search(path, value())

    def _search(self, path: str, value: Any) -> None:
        """Note whether an array holds a number that is not finite."""
        if not isinstance(value, np.ndarray):
            return
        finite = np.isfinite(value if value.dtype.kind == "f" else value.astype(np.float32))
        if not finite.all():
            what = "nan" if np.isnan(value).any() else "inf"
            self.snapshot.not_finite[path] = what if finite.any() else f"only {what}"

    def inside_iterator(self, path: str) -> None:
        """Note that what lies below a path is the inside of an iterator: its numbers and arrays are its position."""
        self._iterators = (*self._iterators, f"{path}.")

    def is_new(self, path: str, value: Any, component: str, key: Any = None) -> bool:
        """Return whether an object is met for the first time; of one that was met before, add an alias.

        Args:
            path: Where it is met.
            value: The object; it is kept alive until the walk ends.
            component: What a broken tie is called.
            key: What identifies it, such as its memory, if not the object itself.
        """
        key = id(value) if key is None else key
        self._held.append(value)
        first, owner = self._seen.setdefault(key, (path, component))
        if first == path:
            return True
        shown = owner if owner in TIES else component
        self.add(path, Leaf("alias", shown, "alias", first), lambda: first)
        return False

    def not_seen(self, path: str, value: Any) -> None:
        """List a value that cannot be looked into."""
        self.snapshot.unseen[path] = f"{type(value).__module__}.{type(value).__qualname__}"

    def _push(self, path: str, value: Any, order: int | None, depth: int) -> None:
        if order is None:
            kind = kind_of(type(value))
            order = kind[1] if kind else CONTAINERS
        heapq.heappush(self._queue, (order, next(self._count), path, value, depth))

    def _enter(self, path: str, value: Any) -> None:
        cls = type(value)
        kind = kind_of(cls)
        if kind is not None:
            kind[0](self, path, value)
        elif isinstance(value, type | ModuleType | BuiltinFunctionType) or _root(cls) in SHOWING_ROOTS:
            return
        elif self._depth > MOST_DEPTH:
            self.not_seen(path, value)
        elif isinstance(value, PurePath):
            self.leaf(path, str(value), component_from_name(path), "scalar")
        elif isinstance(value, MethodType):
            self.visit(f"{path}.__self__", value.__self__)
        elif isinstance(value, FunctionType):
            self._function(path, value)
        elif self.is_new(path, value, component_from_name(path)):
            self._object(path, value)

    def _function(self, path: str, function: FunctionType) -> None:
        """Look into the variables that a user's function closes over."""
        if (function.__module__ or "").partition(".")[0] in LIBRARY_ROOTS or not self.is_new(path, function, "code"):
            return
        for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
            try:
                content = cell.cell_contents
            except ValueError:  # not assigned yet
                continue
            self.visit(f"{path}.{name}", content)

    def _object(self, path: str, value: Any) -> None:
        names = attributes_of(value)
        if names:
            for name, attribute in names.items():
                self.visit(f"{path}.{name}", attribute)
            return
        for ask in ("state_dict", "get_state", "__getstate__"):
            method = getattr(type(value), ask, None)
            if method is None or method is object.__getstate__:
                continue
            try:
                state = method(value)
            except Exception:  # the object's own code: what it cannot show is not seen
                continue
            self.visit(f"{path}.{ask}()", state)
            return
        if not type(value).__flags__ & (1 << 9):  # a class written in Python has no attributes: nothing to see
            self.not_seen(path, value)


def _root(cls: type) -> str:
    return cls.__module__.partition(".")[0]


def attributes_of(value: Any) -> dict[str, Any]:
    """Return the attributes that an object holds itself: its `__dict__` and its slots, properties not called."""
    found = dict(getattr(value, "__dict__", None) or {})
    for cls in type(value).__mro__:
        slots = cls.__dict__.get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else slots:
            if name in ("__dict__", "__weakref__"):
                continue
            mangled = (
                f"_{cls.__name__.lstrip('_')}{name}" if name.startswith("__") and not name.endswith("__") else name
            )
            descriptor = cls.__dict__.get(mangled)
            try:
                found[name] = descriptor.__get__(value) if descriptor is not None else getattr(value, name)
            except AttributeError:
                continue
    return found
