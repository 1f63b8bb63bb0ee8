"""Numbers that are read otherwise: in axes of another order, as a reshape without the turn that it needs has them."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from parity.checks.programs.edits import OperationChange
from parity.contract import OperationArrays, OperationEdit, ProgramOperation

__all__ = ["reread"]

MOST_AXES = 4
"""Axes up to which all orders are tried; of more those alone in which two neighbours are exchanged."""

LARGEST = 2**20


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
