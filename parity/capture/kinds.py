"""Kinds of the standard library and of NumPy: scalars, containers, dataclasses."""

from __future__ import annotations

import argparse
import collections
import datetime
import decimal
import enum
import fractions
import functools
import re
import threading
import types
from collections.abc import Iterable
from typing import Any

import numpy as np

from parity.capture.arrays import LONG, PLAIN, digest_of, role_of_array
from parity.capture.names import component_from_name
from parity.capture.registry import Visit, is_a, register
from parity.capture.walk import Walk
from parity.capture.whole import items_of, said_of_key

__all__ = ["TRAINED"]

TRAINED = ("model", "optimizer", "ema")
"""Components of which a single number is a parameter, not a figure for people."""


def _scalar(walk: Walk, path: str, value: Any) -> None:
    walk.leaf(path, value, component_from_name(path), "scalar")


def _ignore(walk: Walk, path: str, value: Any) -> None:
    """Locks, patterns, code: no state of a training loop."""


def _text(walk: Walk, path: str, value: Any) -> None:
    walk.leaf(path, str(value), component_from_name(path), "scalar")


def _array(walk: Walk, path: str, value: np.ndarray[Any, Any]) -> None:
    component = component_from_name(path)
    interface = value.__array_interface__
    key = ("array", interface["data"][0], value.shape, value.strides, value.dtype.str)
    if value.size and not walk.is_new(path, value, component, key):
        return
    walk.array(path, value, component, role_of_array(value.ndim))


def _sequence(walk: Walk, path: str, value: Any) -> None:
    component = component_from_name(path)
    if not isinstance(value, tuple) and not walk.is_new(path, value, component):
        return
    items = _items(value)
    if isinstance(value, collections.UserList):
        walk.is_new(path, value.data, component)
    walk.leaf(f"{path}.len", len(items), component, "structure")
    if isinstance(value, collections.deque) and value.maxlen is not None:
        walk.leaf(f"{path}.maxlen", value.maxlen, component, "scalar")
    if isinstance(value, tuple):
        walk.snapshot.tuples.add(path)
    fields = getattr(type(value), "_fields", None)
    if fields:
        for name, item in zip(fields, items, strict=False):
            walk.visit(f"{path}.{name}", item)
    elif not _is_whole(walk, path, value, items, component):
        for at, item in enumerate(items):
            walk.visit(f"{path}[{at}]", item)


def _is_whole(walk: Walk, path: str, value: Any, items: list[Any], component: str) -> bool:
    """Show a long sequence of plain values as one leaf, or what lies too deep to be shown; return whether it is."""
    flat = len(items) > LONG and all(_plain(item) for item in items)
    if flat or len(items) > LONG or walk.is_deep:
        return walk.whole(path, value, items, component, least=0 if flat else LONG if walk.is_deep else walk.many)
    return False


def _items(value: Any) -> list[Any]:
    """Return the items of a sequence by its own class's way: a user's subclass may count what is read of it."""
    classes: tuple[Any, ...] = (list, tuple, collections.deque)
    for cls in classes:
        if isinstance(value, cls):
            return list(cls.__iter__(value))
    return list(value.data)


def _plain(item: Any) -> bool:
    """Return whether an item of a long list is a scalar, or a list of scalars such as a document of tokens."""
    return type(item) in PLAIN or (type(item) in (list, tuple) and all(type(one) in PLAIN for one in item))


def _set(walk: Walk, path: str, value: Any) -> None:
    component = component_from_name(path)
    if not walk.is_new(path, value, component):
        return
    items = list(set.__iter__(value) if isinstance(value, set) else frozenset.__iter__(value))
    if len(items) > LONG and walk.whole(path, value, set(items), component):
        return
    said = sorted(map(_said, items))
    walk.data(path, repr(said).encode(), type(value).__name__, component, "scalar")
    for item in value:
        if not _is_name(item) and said.count(_said(item)) == 1:  # several that print alike have no order
            walk.visit(f"{path}[{_said(item)}]", item)


def _mapping(walk: Walk, path: str, value: Any) -> None:
    component = component_from_name(path)
    if not walk.is_new(path, value, component):
        return
    if isinstance(value, collections.UserDict):
        walk.is_new(path, value.data, component)
        value = value.data
    pairs = items_of(value)
    if len(pairs) > LONG and walk.whole(path, value, dict(pairs), component, least=walk.many):
        walk.leaf(f"{path}.len", len(pairs), component, "structure")
    else:
        _pairs(walk, path, pairs)
    factory = getattr(value, "default_factory", None) if isinstance(value, collections.defaultdict) else None
    if factory is not None:
        walk.visit(f"{path}.default_factory", factory)


def _pairs(walk: Walk, path: str, pairs: Iterable[tuple[Any, Any]]) -> None:
    """Show keys and values; a key that is more than a name may hold state itself."""
    pairs, used, order = list(pairs), set[str](), list[str]()
    walk.leaf(f"{path}.len", len(pairs), component_from_name(path), "structure")
    for at, (key, item) in enumerate(pairs):
        # an address tells nothing from one run to the next: what lies there does, if it was met
        met = walk.first_path(key) if type(key) is int else None
        said = _said(key) if met is None else f"id({met})"
        name = f"{path}.{key}" if isinstance(key, str) and key.isidentifier() else f"{path}[{said}]"
        if name in used:  # two objects that print alike
            name = f"{path}[{said}#{at}]"
        used.add(name)
        order.append(name[len(path) :])
        walk.visit(name, item)
        if not _is_name(key):
            walk.visit(f"{name}.key", key)
    if len(order) > 1:
        said = ", ".join(one[1:-1] if one.endswith("]") else one[1:] for one in order)
        walk.snapshot.orders[path] = said if len(said) <= _SHORT else digest_of(said.encode())


_SHORT = 60
"""Letters of keys up to which their order is shown."""


def _is_name(key: Any) -> bool:
    """Return whether a key or an element says all that it is in its printed form."""
    if is_a(key, tuple, frozenset):
        return all(_is_name(item) for item in key)
    return is_a(key, *PLAIN, enum.Enum, type, np.generic, np.dtype, types.FunctionType) or type(key) is object


def _said(key: object) -> str:
    """Return the representation of a key without addresses, which differ from process to process, in one order.

    One of several lines, as of an array, shows values: it would be another path after each step. Its class stands
    for it.
    """
    said = _AT.sub("", said_of_key(key))
    return type(key).__qualname__ if "\n" in said else said


_AT = re.compile(r" at 0x[0-9a-f]+")


def _partial(walk: Walk, path: str, value: functools.partial[Any]) -> None:
    walk.visit(f"{path}.func", value.func)
    for at, item in enumerate(value.args):
        walk.visit(f"{path}.args[{at}]", item)
    for name, item in value.keywords.items():
        walk.visit(f"{path}.{name}", item)


def _enum(walk: Walk, path: str, value: enum.Enum) -> None:
    """Show which member it is, and what was put on it."""
    _text(walk, path, value)
    for name, item in list(vars(value).items()):
        if name not in _OF_MEMBERS and not (name == "_value_" and isinstance(item, PLAIN)):
            walk.visit(f"{path}.{name}", item)


_OF_MEMBERS = ("_name_", "__objclass__", "_sort_order_", "name", "value")


def _install() -> None:
    """Register the kinds of this module."""
    constants = (decimal.Context, slice, range, type(...))
    numbers = (complex, decimal.Decimal, fractions.Fraction)
    others = (datetime.datetime, datetime.date, datetime.time, datetime.timedelta, np.dtype)
    nothing = (
        threading.Event, type(threading.Lock()), type(threading.RLock()), threading.Condition,
        argparse.ArgumentParser, re.Pattern, re.Match, types.CodeType, types.TracebackType, datetime.timezone,
        np.ufunc,
    )  # fmt: skip
    rows: tuple[tuple[tuple[Any, ...], Visit, int], ...] = (
        ((*PLAIN, *numbers, np.generic), _scalar, 3),
        ((*constants, *others), _text, 3),
        (nothing, _ignore, 3),
        ((enum.Enum,), _enum, 3),
        ((list, tuple, collections.deque, collections.UserList), _sequence, 2),
        ((set, frozenset), _set, 3),
        ((dict, types.MappingProxyType, collections.UserDict), _mapping, 2),
        ((np.ndarray,), _array, 3),
        ((functools.partial,), _partial, 3),
    )
    for kinds, visit, order in rows:
        for kind in kinds:
            register(kind, visit, order=order, attributes=visit not in (_ignore, _text, _enum))


_install()
