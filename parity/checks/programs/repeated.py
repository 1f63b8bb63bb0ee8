"""Parts of an axis that stand there several times: each one after the other, or the whole axis over and over.

Keys that several queries share are repeated either way: a library that repeats each of them and one that tiles all of
them give the same numbers in another order, of which the queries take the wrong ones.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from parity.checks.programs.edits import OperationChange
from parity.contract import OperationArrays, OperationEdit, ProgramOperation

__all__ = ["repeated"]

LARGEST = 2**20

FEWEST = 8
"""Numbers of a value from which that parts of it are equal tells how it was made."""

_WAYS = ("each part of axis {axis} {times} times, one after the other", "the parts of axis {axis} {times} times over")


def repeated(operations: Sequence[ProgramOperation], line: Sequence[int]) -> Iterator[tuple[int, OperationChange]]:
    """Yield the other order of the parts that a line repeats, in all that it repeats and in each value by itself.

    Args:
        operations: Of a program.
        line: Places of those that one line of it asks for.
    """
    found = {at: way for at in line if (way := _way_of(operations[at])) is not None}
    for at, (axis, times, tiled) in found.items():
        edit = OperationEdit(after=_other(axis, times, tiled=tiled))
        rest = {n: OperationEdit(after=_other(*way[:2], tiled=way[2])) for n, way in found.items()
                if n != at and way[1:] == (times, tiled)}  # fmt: skip
        own, other = (one.format(axis=axis, times=times) for one in (_WAYS[::-1] if tiled else _WAYS))
        for more in (rest, {}) if rest and at == min(found) else ({},):
            yield at, OperationChange("repeats", own, other, 1, edit, more, whole=True)


def _way_of(one: ProgramOperation) -> tuple[int, int, bool] | None:
    """Return along which axis an operation repeats what it takes, how many times, and whether all of it is."""
    if len(one.outputs) != 1 or one.outputs[0].dtype.kind != "f" or not FEWEST <= one.outputs[0].size <= LARGEST:
        return None
    y = one.outputs[0]
    if any(x.shape == y.shape for x in one.inputs):
        return None  # what is repeated was so before
    for axis, count in enumerate(y.shape):
        for times in (n for n in range(2, count) if count % n == 0):
            parts = np.moveaxis(y, axis, 0).reshape(count, -1)
            inner = parts.reshape(count // times, times, -1), parts.reshape(times, count // times, -1)
            if np.array_equal(parts, np.broadcast_to(parts[:1], parts.shape)):
                break  # of parts that are all equal no order shows
            if (inner[0] == inner[0][:, :1]).all():
                return axis, times, False
            if (inner[1] == inner[1][:1]).all():
                return axis, times, True
    return None


def _other(
    axis: int, times: int, *, tiled: bool
) -> Callable[[OperationArrays, OperationArrays, object], OperationArrays]:  # fmt: skip
    def after(outputs: OperationArrays, inputs: OperationArrays, sources: object) -> OperationArrays:
        y: NDArray[Any] = outputs[0]
        count = y.shape[axis]
        numbers = np.arange(count).reshape((times, count // times) if tiled else (count // times, times))
        return (np.ascontiguousarray(np.take(y, numbers.T.ravel(), axis)),)

    return after
