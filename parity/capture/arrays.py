"""Arrays of NumPy: their leaves by bytes; of fields and of objects element by element, never by a printed form."""

from __future__ import annotations

from typing import Any

import numpy as np
import xxhash

from parity.capture.leaf import Leaf, Role

__all__ = ["LONG", "PLAIN", "array_leaf", "digest_of", "role_of_array", "show_elements", "without_padding"]

LONG = 64
"""Length above which a list of plain scalars is one leaf."""
PLAIN = (bool, int, float, complex, str, bytes, type(None))
"""Types of Python's own values that hold nothing else."""


def role_of_array(axes: int) -> Role:
    """Return the role of an array of unknown purpose: a single number without axes is a scalar, whatever its name.

    Args:
        axes: Number of its axes.
    """
    return "array" if axes else "scalar"


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
    data = without_padding(np.asarray(value).reshape(-1)).view(np.uint8).data if value.size else b""
    return Leaf(role, component, f"{value.dtype.name}[{shape}]{order and '@' + order}", digest_of(data))


def without_padding(values: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Return numbers of one axis whose bytes say nothing else: those of extended precision have 80 bits of 128.

    The others hold whatever was there, and differ where the numbers do not.
    """
    if values.dtype.char not in "gG" or np.finfo(np.longdouble).nmant != _BITS_OF_80:
        return values
    parts = np.ascontiguousarray(values).view(np.uint8).reshape(-1, np.dtype(np.longdouble).itemsize).copy()
    parts[:, 10:] = 0
    return parts.reshape(-1).view(values.dtype)


_BITS_OF_80 = 63
"""Bits of the fraction of a number of 80 bits."""


def show_elements(walk: Any, path: str, value: np.ndarray[Any, Any], component: str) -> None:
    """Show an array of fields or objects: its shape, then what is in it, each by its own kind.

    An array of many plain scalars is one leaf, as a list of them is.

    Args:
        walk: Takes the leaves.
        path: Path of the array.
        value: Its dtype has fields or holds objects.
        component: As of `Leaf`.
    """
    walk.leaf(f"{path}.shape", value.shape, component, "structure")
    if value.dtype.names:
        for name in value.dtype.names:
            walk.visit(f"{path}[{name!r}]", np.asarray(value)[name])
        return
    items = np.asarray(value).reshape(-1).tolist()
    if len(items) > LONG and all(type(item) in PLAIN for item in items):
        walk.data(path, repr(items).encode(), f"object[{len(items)}]", component, "array")
        return
    for at, item in zip(np.ndindex(value.shape), items, strict=True):
        walk.visit(f"{path}[{','.join(map(str, at))}]" if at else f"{path}[()]", item)


def digest_of(data: Any) -> str:
    """Return the XXH3-128 of bytes."""
    return str(xxhash.xxh3_128_hexdigest(data))
