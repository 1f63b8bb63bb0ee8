"""Weak dictionaries and sets: what they keep, by the paths at which the objects that they keep it for are held.

They hold nothing alive: an object in one is held by something else, which mostly gives it a path. By the order in
which they hold their objects nothing could be told from one run to the next, as objects of earlier runs in the same
process may not be gone yet.
"""

from __future__ import annotations

import re
import weakref
from typing import Any

from parity.capture.names import component_from_name
from parity.capture.registry import WEAK, register
from parity.capture.walk import Walk

__all__: list[str] = []


class _Content:
    """Stands in the walk's queue for what a weak collection keeps, until all else has been met."""

    def __init__(self, collection: Any) -> None:
        self.collection = collection


def _collection(walk: Walk, path: str, value: Any) -> None:
    if walk.is_new(path, value, component_from_name(path)):
        walk.visit(path, _Content(value))


def _content(walk: Walk, path: str, value: _Content) -> None:
    """Show what a weak dictionary or set keeps; `items` of it would hold up its own cleaning."""
    walk.is_new(f"{path}.content", value, component_from_name(path))  # it is kept alive, and its address with it
    collection = value.collection
    if isinstance(collection, weakref.WeakValueDictionary):
        pairs = [(key, kept, None) for key, one in list(collection.data.items()) if (kept := one()) is not None]
    elif isinstance(collection, weakref.WeakKeyDictionary):
        pairs = [(one, kept, one()) for one, kept in list(collection.data.items()) if one() is not None]
    else:
        pairs = [(one, one(), one()) for one in list(collection.data) if one() is not None]
    walk.leaf(f"{path}.len", len(pairs), component_from_name(path), "structure")
    used = set[str]()
    for at, (key, kept, owner) in enumerate(pairs):
        met = None if owner is None else walk.first_path(id(owner))
        said = _AT.sub("", repr(key)) if owner is None else met or type(owner).__qualname__
        name = f"{path}[{said}]"
        name = f"{name[:-1]}#{at}]" if name in used else name
        used.add(name)
        walk.visit(name, kept)
        if met is None and owner is not None and owner is not kept:
            walk.visit(f"{name}.key", owner)


_AT = re.compile(r" at 0x[0-9a-f]+")
"""An address in a key, which differs from process to process."""


def _register() -> None:
    register(_Content, _content, order=WEAK)
    for kind in (weakref.WeakKeyDictionary, weakref.WeakValueDictionary, weakref.WeakSet):
        register(kind, _collection)


_register()
