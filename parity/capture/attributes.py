"""Attributes that an object holds itself, read without running any code of its class."""

from __future__ import annotations

import types
from typing import Any

__all__ = ["attributes_of", "hides_memory"]

_MISSING = object()


def attributes_of(value: Any) -> dict[str, Any]:
    """Return the attributes that an object holds itself: its `__dict__` and its slots, properties not called.

    A class may define `__getattr__`, `__getattribute__` or a property named `__dict__`: none of them is asked.
    """
    try:
        own = object.__getattribute__(value, "__dict__")
    except AttributeError:  # no dict, or one that a class of C keeps for itself
        own = None
    found = dict(own) if isinstance(own, dict) else {}
    for cls in type(value).__mro__:
        slots = cls.__dict__.get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else slots:
            if name in ("__dict__", "__weakref__"):
                continue
            mangled = (
                f"_{cls.__name__.lstrip('_')}{name}" if name.startswith("__") and not name.endswith("__") else name
            )
            item = _slot(cls, mangled, value)
            if item is not _MISSING:
                found[name] = item
    return found


def _slot(cls: type, name: str, value: Any) -> Any:
    descriptor = cls.__dict__.get(name)
    try:
        if isinstance(descriptor, types.MemberDescriptorType):
            return descriptor.__get__(value)
        if descriptor is None:  # `__slots__` was changed after the class was made
            return object.__getattribute__(value, name)
    except AttributeError:  # not assigned
        pass
    return _MISSING


_OF_C = (types.WrapperDescriptorType, types.MethodDescriptorType, types.ClassMethodDescriptorType)
_KNOWN: dict[type, bool] = {}


def hides_memory(cls: type) -> bool:
    """Return whether objects of a class may hold what is in no attribute: whether a class of C is among its bases.

    A class that Python made defines none of its methods in C. It tells the two apart whether or not the class lives
    on the heap, where those of most extensions do.
    """
    known = _KNOWN.get(cls)
    if known is None:
        known = any(base is not object and _is_of_c(base) for base in cls.__mro__)
        if len(_KNOWN) > 1 << 14:
            _KNOWN.clear()
        _KNOWN[cls] = known
    return known


def _is_of_c(cls: type) -> bool:
    if not cls.__flags__ & (1 << 9):  # not on the heap: only C makes those
        return cls.__basicsize__ > object.__basicsize__ or cls.__itemsize__ > 0
    for item in vars(cls).values():
        if isinstance(item, _OF_C) and item.__objclass__ is cls:
            return True
        if isinstance(item, types.BuiltinFunctionType) and item.__self__ is cls:
            return True
    return False
