"""Tables of numbers that a program is given, such as the variances of a diffusion: what they hold, how two lie."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["is_table", "table_relation", "table_text"]

SHOWN = 3
"""Numbers of a table that are told, and the last one."""

WHOLE = 16
"""Numbers of a table that is told as a whole."""

FEWEST = 4
"""Numbers of which a table is told."""

FURTHEST = 2
"""Places by which one table may be moved against another."""

CLOSE = 1e-9
"""Relative distance within which two numbers are one."""


def is_table(value: NDArray[Any]) -> bool:
    """Return whether a value is a line of several numbers, not all the same.

    Args:
        value: That a program is given.
    """
    plain = value.ndim == 1 and value.size >= FEWEST and value.dtype.kind in "if"
    return plain and bool(np.isfinite(value).all()) and float(np.ptp(value)) > 0.0


def table_text(table: NDArray[Any]) -> str:
    """Return some numbers of a table in words.

    Args:
        table: A line of numbers.
    """
    first = ", ".join(f"{float(x):.6g}" for x in (table if table.size <= WHOLE else table[:SHOWN]))
    if table.size <= WHOLE:
        return f"the numbers {first}"
    return f"{table.size} numbers {first} to {float(table[-1]):.6g}"


def table_relation(first: NDArray[Any], second: NDArray[Any]) -> str:
    """Return how far the numbers of one table are moved in another; empty where they are others.

    That of numbers turned round, or squared, is told as a change of an operation, which comes before this.

    Args:
        first: A line of numbers.
        second: The other.
    """
    one, two = np.asarray(first, np.float64), np.asarray(second, np.float64)
    for by in range(1, FURTHEST + 1):
        for ahead, (a, b) in ((False, (one, two[by:])), (True, (one[by:], two))):
            count = min(a.size, b.size)
            if count >= FEWEST and max(a.size, b.size) - count <= FURTHEST and _same(a[:count], b[:count]):
                return f"{by} place{'s' if by > 1 else ''} {'earlier' if ahead else 'later'}"
    return ""


def _same(a: NDArray[np.float64], b: NDArray[np.float64]) -> bool:
    return bool(np.abs(a - b).max(initial=0.0) <= CLOSE * float(np.abs(b).max(initial=0.0)))
