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

__all__ = ["is_mask", "turned_masks"]

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
