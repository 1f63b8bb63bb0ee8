"""Weak dictionaries and sets: what they keep, by the paths at which the objects that they keep it for are held.

They hold nothing alive: an object in one is held by something else, which gives it a path. Where some of the objects
have one, those that have none are of earlier runs in the same process, and not gone yet: they are left out. So is
each that once had one. Where none has, all others are shown, by their class.
"""

from __future__ import annotations

import re
import weakref
from itertools import compress
from typing import Any

from parity.capture.names import component_from_name
from parity.capture.registry import WEAK, register
from parity.capture.walk import Walk

__all__: list[str] = []

_had_path: dict[int, weakref.ref[Any]] = {}
"""Objects that some walk in this process met outside of weak collections, by their `id`, while they are there."""


class _KeptWeakly:
    """Stands in the walk's queue for what a weak collection keeps, until all else has been met."""

    def __init__(self, collection: Any) -> None:
        self.collection = collection


def _collection(walk: Walk, path: str, value: Any) -> None:
    if walk.is_new(path, value, component_from_name(path)):
        walk.visit(path, _KeptWeakly(value))


def _content(walk: Walk, path: str, value: _KeptWeakly) -> None:
    """Show what a weak dictionary or set keeps; `items` of it would hold up its own cleaning."""
    walk.is_new(f"{path}.content", value, component_from_name(path))  # it is kept alive, and its address with it
    pairs = _pairs(value.collection)
    met = [walk.first_path(id(owner)) for _, _, owner in pairs]
    for (_, _, owner), there in zip(pairs, met, strict=True):
        if there is not None:
            _keep_in_mind(owner)
    of_now = met if any(met) else [not _is_of_before(owner) for _, _, owner in pairs]
    pairs, met = list(compress(pairs, of_now)), list(compress(met, of_now))
    if isinstance(value.collection, weakref.WeakSet):
        held = sorted(there or type(owner).__qualname__ for (_, _, owner), there in zip(pairs, met, strict=True))
        walk.data(path, repr(held).encode(), "WeakSet", component_from_name(path), "scalar")
    elif not all(met):  # else each has a name, and one that is gone says more than how many are left
        walk.leaf(f"{path}.len", len(pairs), component_from_name(path), "structure")
    used = set[str]()
    for at, ((said, kept, owner), there) in enumerate(zip(pairs, met, strict=True)):
        name = f"{path}[{said or there or type(owner).__qualname__}]"
        name = f"{name[:-1]}#{at}]" if name in used else name
        used.add(name)
        walk.visit(name, kept)
        if there is None and owner is not kept:
            walk.visit(f"{name}.key", owner)


def _keep_in_mind(owner: Any) -> None:
    identity = id(owner)
    if identity not in _had_path:
        _had_path[identity] = weakref.ref(owner, lambda _: _had_path.pop(identity, None))


def _is_of_before(owner: Any) -> bool:
    """Return whether an object, which now has no path, had one: of a run before, or let go of in this one."""
    known = _had_path.get(id(owner))
    return known is not None and known() is owner


def _pairs(collection: Any) -> list[tuple[str, Any, Any]]:
    """Return of all that a collection keeps the key as text, if it is no object itself, the value, and the object."""
    held = collection.data
    if isinstance(collection, weakref.WeakValueDictionary):
        values = ((key, one()) for key, one in list(held.items()))
        return [(_AT.sub("", repr(key)), kept, kept) for key, kept in values if kept is not None]
    if isinstance(collection, weakref.WeakKeyDictionary):
        kept_for = ((one(), kept) for one, kept in list(held.items()))
        return [("", kept, owner) for owner, kept in kept_for if owner is not None]
    return [("", owner, owner) for one in list(held) if (owner := one()) is not None]


_AT = re.compile(r" at 0x[0-9a-f]+")
"""An address in a key, which differs from process to process."""


def _register() -> None:
    register(_KeptWeakly, _content, order=WEAK)
    for kind in (weakref.WeakKeyDictionary, weakref.WeakValueDictionary, weakref.WeakSet):
        register(kind, _collection)


_register()
