"""Numbers that are read otherwise: in axes of another order, as a reshape without the turn that it needs has them.

So are the pairs of an axis: its halves, or its neighbours, as turns by places (rotary) and gates take them.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from parity.checks.programs.edits import OperationChange
from parity.contract import OperationArrays, OperationEdit, ProgramOperation

__all__ = ["pairs_taken", "reread"]

MOST_AXES = 4
"""Axes up to which all orders are tried; of more those alone in which two neighbours are exchanged."""

LARGEST = 2**20

FEWEST = 8
"""Numbers from which a part of them is known by its values."""


def reread(operations: Sequence[ProgramOperation], line: Sequence[int]) -> Iterator[tuple[int, OperationChange]]:
    """Yield the numbers that a line lays out, read in another order of the axes that it gives them.

    Args:
        operations: Of a program.
        line: Places of those that one line of it asks for.

    What has the shape (a, b) is read as (b, a) and turned about: the same shape with its numbers elsewhere. All that
    the line lays out in as many axes is read alike, and each by itself.
    """
    laid = [at for at in line if _is_laid(operations[at])]
    for at in laid:
        shape = operations[at].outputs[0].shape
        alike = [other for other in laid if operations[other].outputs[0].ndim == len(shape)]
        for order in _orders(shape):
            edit = OperationEdit(after=_read(order))
            other = f"as {[shape[axis] for axis in order]}, then turned"
            rest = dict.fromkeys((place for place in alike if place != at), edit) if at == alike[0] else {}
            for more in ({}, rest) if rest else ({},):
                yield at, OperationChange("layout", f"numbers read as {list(shape)}", other, 1, edit, more,
                                          whole=True)  # fmt: skip


def pairs_taken(operations: Sequence[ProgramOperation], line: Sequence[int]) -> Iterator[tuple[int, OperationChange]]:
    """Yield the pairs that a line takes of the last axis, neighbours in place of halves or the other way round.

    Args:
        operations: Of a program.
        line: Places of those that one line of it asks for, each time that it is computed.
    """
    ways = {at: way for at in line if (way := _halved(operations[at]))}
    for way in dict.fromkeys(ways.values()):
        first, *others = [at for at, own in ways.items() if own == way]
        edit = OperationEdit(given=_paired(way))
        other = "neighbours" if way == "halves" else "halves"
        yield first, OperationChange("pairs", f"{way} of the last axis", other, 1, edit, dict.fromkeys(others, edit),
                                     whole=True)  # fmt: skip


def _halved(one: ProgramOperation) -> str:
    """Return what of the last axis an operation takes: its halves, or every second one; empty for neither."""
    floats = [x for x in one.inputs if x.dtype.kind == "f"]
    if len(floats) != 1 or not floats[0].ndim or floats[0].shape[-1] % 2 or not FEWEST <= floats[0].size <= LARGEST:
        return ""
    x = floats[0]
    half = x.shape[-1] // 2
    for way, parts in (
        ("halves", (x[..., :half], x[..., half:])),
        ("neighbours", (x[..., ::2], x[..., 1::2])),
    ):
        if one.outputs and half > 1 and all(any(np.array_equal(y, part) for part in parts) for y in one.outputs):
            return way
    return ""


def _paired(way: str) -> Callable[[OperationArrays, object], OperationArrays]:
    """Return what gives an operation that takes pairs in one way the numbers of the other way."""

    def given(inputs: OperationArrays, sources: object) -> OperationArrays:
        return tuple(_turned(x, way) if x.dtype.kind == "f" else x for x in inputs)

    return given


def _turned(x: NDArray[Any], way: str) -> NDArray[Any]:
    sizes = (-1, 2) if way == "halves" else (2, x.shape[-1] // 2)
    return np.ascontiguousarray(x.reshape(*x.shape[:-1], *sizes).swapaxes(-1, -2).reshape(x.shape))


def _is_laid(one: ProgramOperation) -> bool:
    """Return whether an operation gives the numbers that it takes, in their order, in axes of other extents."""
    floats = [x for x in one.inputs if x.dtype.kind == "f"]
    if len(floats) != 1 or len(one.outputs) != 1:
        return False
    x, y = floats[0], one.outputs[0]
    inner = [n for n in y.shape if n > 1]
    return (
        len(inner) > 1
        and y.dtype.kind == "f"
        and x.size == y.size <= LARGEST
        and [n for n in x.shape if n > 1] != inner
        and np.array_equal(x.ravel(), y.ravel())
    )


def _orders(shape: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
    """Yield orders of axes in which numbers lie otherwise."""
    plain = tuple(range(len(shape)))
    if len(shape) <= MOST_AXES:
        ways = list(itertools.permutations(plain))
    else:
        ways = [(*plain[:at], at + 1, at, *plain[at + 2 :]) for at in plain[:-1]]
    seen = {tuple(axis for axis in plain if shape[axis] > 1)}
    for order in ways:
        moved = tuple(axis for axis in order if shape[axis] > 1)
        if moved not in seen:
            seen.add(moved)
            yield order


def _read(order: Sequence[int]) -> Callable[[OperationArrays, OperationArrays, object], OperationArrays]:
    def after(outputs: OperationArrays, inputs: OperationArrays, sources: object) -> OperationArrays:
        y = outputs[0]
        read = y.reshape([y.shape[axis] for axis in order])
        return (np.ascontiguousarray(read.transpose(np.argsort(order))),)

    return after
