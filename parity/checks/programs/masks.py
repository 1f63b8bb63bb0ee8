"""Masks the other way round wherever a program takes them: all that take one value, at whatever lines they stand.

Layers that take a mask and its opposite in turn take both at the same lines, and one of them at several of these.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from parity.checks.programs.edits import NamedValues, OperationChange
from parity.contract import OperationArrays, OperationEdit, ProgramOperation

__all__ = ["is_mask", "masks_apart", "turned_masks"]

MOST = 12
"""Masks of a program that are tried."""

SHOWN = 4


def turned_masks(operations: Sequence[ProgramOperation], names: NamedValues) -> Iterator[tuple[int, OperationChange]]:
    """Yield each mask of a program with its two values exchanged, at all operations that take it.

    Args:
        operations: Of a program.
        names: Of values that it is given.
    """
    taken: list[tuple[NDArray[Any], dict[int, list[int]]]] = []
    for at, one in enumerate(operations):
        for place, x in enumerate(one.inputs):
            if not is_mask(x) or _made_in_line(operations, at, x):
                continue
            held = next((slots for value, slots in taken if _same(value, x)), None)
            if held is None:
                held = {}
                taken.append((x, held))
            held.setdefault(at, []).append(place)
    for value, slots in taken[:MOST]:
        if len(slots) < 2:
            continue  # that of one operation is tried with all else of its line
        edits = {at: _turned(places) for at, places in slots.items()}
        first = min(edits)
        own = edits.pop(first)
        name = next((name for name, one in names.items() if _same(one, value)), f"the mask {_shown(value)}")
        words = f"{name} as it is, at all {len(slots)} operations that take it"
        yield first, OperationChange("mask", words, "the other way round", 1, own, edits, whole=True)


def _made_in_line(operations: Sequence[ProgramOperation], at: int, value: NDArray[Any]) -> bool:
    """Return whether the line of an operation made a value just before it, as one less a mask, which is one as well.

    Of the values alone that of one layer cannot be told from the mask that another one is given.
    """
    line = itertools.takewhile(lambda n: operations[n].place == operations[at].place, range(at - 1, -1, -1))
    return any(_same(made, value) for n in line for made in operations[n].outputs)


def is_mask(value: NDArray[Any]) -> bool:
    """Return whether a value is of two numbers of which one is nothing, or of truths that are not all the same.

    Args:
        value: Of a program.
    """
    if value.size < 2 or value.dtype.kind not in "bf":
        return False
    low, high = value.min(), value.max()
    if low == high or (low != 0 and high != 0):
        return False
    return value.dtype.kind == "b" or bool(((value == low) | (value == high)).all())


def _turned(places: Sequence[int]) -> OperationEdit:
    def given(inputs: OperationArrays, held: object) -> OperationArrays:
        return tuple(_exchanged(x) if place in places else x for place, x in enumerate(inputs))

    return OperationEdit(given=given)


def _exchanged(value: NDArray[Any]) -> NDArray[Any]:
    return np.logical_not(value) if value.dtype.kind == "b" else np.asarray(value.max() + value.min() - value)


def _same(a: NDArray[Any], b: NDArray[Any]) -> bool:
    return a.shape == b.shape and a.dtype == b.dtype and np.array_equal(a, b)


def _shown(value: NDArray[Any]) -> str:
    first = ", ".join(f"{float(x):.4g}" for x in value.ravel()[:SHOWN])
    return f"{list(value.shape)} that begins with {first}"


def masks_apart(first: NDArray[Any], second: NDArray[Any]) -> str:
    """Return at which places two masks differ, in words; empty where they are no masks, or are the same.

    Args:
        first: Truths that a program makes.
        second: Those that another one makes in their place, or their opposite, whichever is nearer.
    """
    if first.dtype.kind != "b" or second.dtype.kind != "b" or min(first.size, second.size) < 2:
        return ""
    one, two = (value.reshape([n for n in value.shape if n > 1]) for value in (first, second))
    one, two = _as_few(one, two.ndim), _as_few(two, one.ndim)
    if one.shape != two.shape:
        return ""
    opposite = 2 * int((one != two).sum()) > one.size  # what is True in one is hidden, and in the other seen
    places = np.argwhere(one == two if opposite else one != two)
    if not len(places):
        return ""
    more = f" and {len(places) - 1} more places" if len(places) > 1 else ""
    said = f"differs at [{', '.join(map(str, places[0].tolist()))}]{more} of {list(one.shape)}"
    here = {bool(one[tuple(place)]) for place in places}
    if opposite or len(here) > 1:
        return said
    return f"{said}, {'set here and not there' if here == {True} else 'set there and not here'}"


def _as_few(mask: NDArray[Any], ndim: int) -> NDArray[Any]:
    """Return a mask without axes over which it is spread, such as that of heads, while it has more than wanted."""
    for axis in range(mask.ndim - 1, -1, -1):
        if mask.ndim > ndim and (mask == mask.take([0], axis)).all():
            mask = mask.take(0, axis)
    return mask
