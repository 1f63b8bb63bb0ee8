"""The walk over live objects: from variables to a flat list of leaves, by kind; nothing that it meets is changed.

A kind is a class and a function that shows the walk what an object of it holds. Kinds are looked up along the
class's own order of resolution, so a subclass is seen as its nearest registered base, and by its own attributes. What
has no kind is looked into by its attributes; what has none of those is asked for its state; what hides memory of C,
or does not answer, is listed as not seen, with a probe that tells whether it changes.
"""

from __future__ import annotations

import copy
import gc
import heapq
import itertools
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import PurePath
from types import BuiltinFunctionType, ModuleType
from typing import Any

import numpy as np

from parity.capture.arrays import array_leaf, digest_of, show_elements
from parity.capture.attributes import attributes_of, hides_memory
from parity.capture.leaf import Extent, Leaf, Role, StateSnapshot
from parity.capture.names import component_from_name
from parity.capture.pickled import digest_of_pickle
from parity.capture.probes import probe, without_places
from parity.capture.registry import (
    CONTAINERS,
    DEAD,
    PLACES,
    SHOWING_ROOTS,
    class_visits,
    is_a,
    kind_of,
    root_package,
)
from parity.capture.whole import MANY, kind_of_whole, whole_of

__all__ = ["Walk"]

TIES = ("model.ties", "optimizer.param_groups", "optimizer.identity", "schedule.identity")
"""Components of which a second path matters: what is edited through it must reach the first."""
MOST_LEAVES = 100_000
"""Leaves of one snapshot; what is above is listed as not seen."""
MOST_DEPTH = 40
_NUMBER = re.compile(r"float|numpy\.float\d+|b?float\d+\[\]")
"""Kinds of one floating number: of Python, of NumPy, and an array of no dimension."""

_CHECK = ("parity.checks", "parity.capture", "parity.pytest_plugin")
"""What checks the loop is no state of it."""


class Walk:
    """One walk: give it roots, then `finish`.

    Args:
        hide: Texts that differ between two equal runs, such as the folder, to what stands for them.
        keep: Paths whose values are wanted, as copies.
        finite: Whether floating arrays are searched for NaN and infinity, one copy at a time.
        many: Elements above which a container of plain values is one leaf, if it is not one of a long list.
    """

    def __init__(
        self, hide: Mapping[str, str] | None = None, keep: Iterable[str] = (), *, finite: bool = False,
        many: int = MANY,
    ) -> None:  # fmt: skip
        self.snapshot = StateSnapshot()
        self.names: dict[int, str] = {}
        """Object id to the name that its module gives it: the parameters, for optimizers."""
        self.noted: dict[str, Any] = {}
        """What visits note for each other, by a name of theirs."""
        self._hide = dict(hide or {})
        self._keep = frozenset(keep)
        self._finite = finite
        self.many = many
        self._seen: dict[Any, tuple[str, str]] = {}
        self._paths: dict[int, str] = {}
        self._left: dict[int, str] = {}
        self._held: list[Any] = []
        self._queue: list[tuple[int, int, str, Any, int]] = []
        self._count = itertools.count()
        self._depth = 0
        self._iterators: tuple[str, ...] = ()
        self._batches: tuple[str, ...] = ()
        self._opened: set[int] = set()
        self._known_classes: set[type] = set()

    def root(self, name: str, value: Any, *, dead: bool = False) -> None:
        """Add a variable; a dead one is walked last, so that what is live gives the paths.

        Args:
            name: What its paths begin with.
            value: What it holds.
            dead: Whether the code writes it before it reads it again.
        """
        self._push(name, value, DEAD if dead else None, 0)

    def place(self, name: str, value: Any) -> None:
        """Add what no variable of the loop leads to, such as an attribute of a class; it is walked after all else.

        Args:
            name: What its paths begin with.
            value: What it holds.
        """
        self._push(name, value, PLACES, 0)

    def finish(self) -> StateSnapshot:
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
            text = without_places(text)
        if isinstance(value, np.generic):
            kind, text = f"numpy.{value.dtype.name}", repr(value.item())
        if type(value) is bytes and (held := digest_of_pickle(value)) is not None:
            text = held
        elif len(text) > 120:  # bytes as those of an array that they may be of
            text = digest_of(value if type(value) is bytes else text.encode())
        self.add(path, Leaf(role, component, kind, text), lambda: value)

    def array(self, path: str, value: np.ndarray[Any, Any], component: str, role: Role = "state") -> None:
        """Add an array, of fields or objects its elements; arguments as of `leaf`."""
        if value.dtype.names or (value.dtype.hasobject and value.ndim):
            show_elements(self, path, value, component)
            return
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

    @property
    def is_deep(self) -> bool:
        """Whether what is walked lies so deep in containers that it is asked for plain values, at every so many."""
        return self._depth > MOST_DEPTH and self._depth % MOST_DEPTH == 1

    def whole(self, path: str, value: Any, held: Any, component: str, *, least: int = 0) -> bool:
        """Add a container of nothing but plain values as one leaf; return whether it is such a one.

        Args:
            path: As of `leaf`.
            value: The container.
            held: What is in it, as a list, a set or a dict.
            component: As of `leaf`.
            least: Elements that it has to have more of; where it is none, containers in it may be there twice.
        """
        found = whole_of(held, least, self._hide, shared=not least)
        if found is None:
            return False
        leaf = Leaf("scalar", component, kind_of_whole(value, len(held), found.numbers), digest_of(found.text))
        self.add(path, leaf, lambda: copy.deepcopy(held))
        if found.sample:
            self.snapshot.samples[path] = found.sample
        return True

    def add(self, path: str, leaf: Leaf, value: Callable[[], Any]) -> None:
        """Add a leaf; `value` copies what it stands for and is called if the path is wanted."""
        leaves = self.snapshot.leaves
        inside = self._batches if _is_floats(leaf) else self._iterators
        if leaf.role in ("array", "scalar") and path.startswith(inside):
            leaf = Leaf("position", "data.position", leaf.kind, leaf.digest)
        if len(leaves) >= MOST_LEAVES:
            self.snapshot.unseen.setdefault("...", f"more than {MOST_LEAVES} leaves")
            return
        leaves[path] = leaf
        if path in self._keep:
            self.snapshot.values[path] = value()
        if leaf.component == "loss" and _NUMBER.fullmatch(leaf.kind):
            self.snapshot.losses[path] = float(np.asarray(value()).reshape(-1)[0])
        if self._finite and leaf.role in ("state", "array") and "float" in leaf.kind and "[" in leaf.kind:
            self._search(path, value())

    def copied(self, path: str, copy: str, extent: Extent | None = None) -> None:
        """Say of a leaf that was added that processes hold copies of it, and which part of a whole it is.

        Args:
            path: Path of the leaf; one that is not there, or is an alias, stays as it is.
            copy: As of `Leaf`.
            extent: As of `Leaf`.
        """
        leaf = self.snapshot.leaves.get(path)
        if leaf is not None and leaf.role != "alias":
            self.snapshot.leaves[path] = replace(leaf, copy=copy, extent=extent or leaf.extent)

    def _search(self, path: str, value: Any) -> None:
        """Note whether an array holds a number that is not finite."""
        if not isinstance(value, np.ndarray):
            return
        finite = np.isfinite(value if value.dtype.kind == "f" else value.astype(np.float32))
        if not finite.all():
            what = "nan" if np.isnan(value).any() else "inf"
            self.snapshot.not_finite[path] = what if finite.any() else f"only {what}"

    def inside_iterator(self, path: str, *, floats: bool = True) -> None:
        """Note that a path is an iterator's: numbers and arrays below are its position.

        Args:
            path: Path of the iterator.
            floats: Whether arrays of floats are too, as batches that a library has ready.
        """
        self._iterators = (*self._iterators, f"{path}.")
        if floats:
            self._batches = (*self._batches, f"{path}.")

    def dead(self, path: str) -> None:
        """Note that what lies below a path is written before it is read, as a variable of a suspended generator."""
        self.snapshot.dead |= {path}

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
        self._paths.setdefault(id(value), first)
        if first == path:
            return True
        shown = owner if owner in TIES else component
        self.add(path, Leaf("alias", shown, "alias", first), lambda: first)
        return False

    @property
    def owners(self) -> dict[int, str]:
        """Return the path of each object that was met, by its `id`; the walk keeps them alive."""
        return {key: path for key, (path, _) in self._seen.items() if isinstance(key, int)}

    def first_path(self, address: int) -> str | None:
        """Return the path of the object of an `id`; None of one that was not met so far."""
        return self._paths.get(address) or self._left.get(address)

    def not_seen(self, path: str, value: Any) -> None:
        """List a value that cannot be looked into, with a probe that tells whether it changes."""
        self.snapshot.unseen[path] = f"{type(value).__module__}.{type(value).__qualname__}"
        self.snapshot.probes[path] = probe(value)

    def _push(self, path: str, value: Any, order: int | None, depth: int) -> None:
        if order is None:
            kind = kind_of(type(value))
            order = kind[1] if kind else CONTAINERS
        # before what is keyed by its address is walked; one run alone may have a variable that a loop has left behind
        (self._left if order == DEAD else self._paths).setdefault(id(value), path)
        heapq.heappush(self._queue, (order, next(self._count), path, value, depth))

    def _enter(self, path: str, value: Any) -> None:
        try:
            self._show(path, value)
        except Exception:  # whatever an object raises when it is looked at: it is said, and the walk goes on
            self.not_seen(path, value)

    def _show(self, path: str, value: Any) -> None:
        cls = type(value)
        kind = kind_of(cls)
        if cls not in self._known_classes:
            self._known_classes.add(cls)
            for visit in class_visits:
                visit(self, cls)
        if kind is not None:
            kind[0](self, path, value)
            if kind[2]:
                self._open(path, value)
        elif is_a(value, ModuleType) or _is_left_out(cls):
            return
        elif self._depth > MOST_DEPTH:
            self.not_seen(path, value)
        elif is_a(value, BuiltinFunctionType):
            if not is_a(value.__self__, ModuleType, type, type(None)):  # `history.append` holds the history
                self.visit(f"{path}.__self__", value.__self__)
        elif is_a(value, PurePath):
            self.leaf(path, str(value), component_from_name(path), "scalar")
        elif self.is_new(path, value, component_from_name(path)):
            self._object(path, value)

    def _open(self, path: str, value: Any) -> None:
        """Show the attributes that a subclass of a known kind has beside what its kind says."""
        if not type(value).__flags__ & _ON_THE_HEAP or id(value) in self._opened:
            return
        self._opened.add(id(value))
        self._held.append(value)
        for name, attribute in attributes_of(value).items():
            if name != "_mmap":  # the memory of an array in a file
                self.visit(f"{path}.{name}", attribute)

    def _object(self, path: str, value: Any) -> None:
        names = attributes_of(value)
        for name, attribute in names.items():
            self.visit(f"{path}.{name}", attribute)
        hidden = hides_memory(type(value))
        if (names and not hidden) or self._asked(path, value):
            return
        if hidden:
            self.not_seen(path, value)
            for at, part in enumerate(gc.get_referents(value)):  # what a queue of C holds
                if is_a(part, list, tuple, dict, np.ndarray) and not _is_namespace(part):
                    self.visit(f"{path}.of[{at}]", part)

    def _asked(self, path: str, value: Any) -> bool:
        """Ask an object that shows no attributes for its state; return whether it answered."""
        for ask in ("state_dict", "get_state", "__getstate__"):
            method = getattr(type(value), ask, None)
            if method is None or method is object.__getstate__:
                continue
            try:
                state = method(value)
            except Exception:  # the object's own code: what it cannot show is not seen
                continue
            if not isinstance(state, _NO_STATE):
                self.visit(f"{path}.{ask}()", state)
                return True
        return False


_ON_THE_HEAP = 1 << 9
"""Flag of classes that `class` statements make; those of the standard library's C code have no attributes to open."""
_NO_STATE = (str, type(None))
"""What a class without a state of its own answers."""


def _is_left_out(cls: type) -> bool:
    return root_package(cls) in SHOWING_ROOTS or cls.__module__.startswith(_CHECK)


def _is_namespace(part: Any) -> bool:
    return is_a(part, dict) and ("__builtins__" in part or "__module__" in part)


def _is_floats(leaf: Leaf) -> bool:
    return leaf.role == "array" and "float" in leaf.kind and not leaf.kind.endswith("[]")
