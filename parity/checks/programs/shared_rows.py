"""What each example of a batch has of its own, taken of the first one for all: a flip, a time, a mask, a draw."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from parity.checks.programs.edits import OperationChange, edit_of
from parity.contract import ProgramOperation

__all__ = ["shared_rows"]

LARGEST = 2**20


def shared_rows(one: ProgramOperation) -> Iterator[OperationChange]:
    """Yield that all rows of what an operation makes are its first row.

    Args:
        one: An operation with one output.
    """
    y = one.outputs[0]
    if y.dtype.kind not in "bif" or not y.ndim or not y.shape[0] > 1 or y.size > LARGEST:
        return
    if (y == y[:1]).all():
        return  # they are one row already
    # of a scan's carry or a weight the first axis is no batch: that all values come out equal is what decides
    words = f"each row of what {one.kind} makes by itself", "the first row for all of them"
    yield OperationChange("rows", *words, 1, edit_of(lambda y: np.broadcast_to(y[:1], y.shape).copy()))
