"""A number with which a program gives what another one gives: by least squares, and proven by all values."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

__all__ = ["solve_number"]

MOST_STEPS = 14

FIRST = 1e-4
"""Share of a number by which it is moved to see what follows it."""


def solve_number(
    run: Callable[[float], NDArray[np.float64] | None], start: float, wanted: NDArray[np.float64], limit: float
) -> float | None:
    """Return the number with which a program gives what is wanted; None where none is found.

    Args:
        run: Returns what the program gives with a number, flat; None where it fails.
        start: The number that it has.
        wanted: What the other one gives, flat.
        limit: Largest distance that counts as equal.

    Numerics: Gauss-Newton steps in one unknown, the slope by a difference; a step that makes it worse is halved.
    """
    here = run(start)
    if here is None:
        return None
    at, off = start, float(np.abs(wanted - here).max(initial=0.0))
    for step in range(MOST_STEPS):
        delta = FIRST * (abs(at) or 1.0)
        moved = run(at + delta)
        if moved is None:
            return None
        slope = (moved - here) / delta
        square = float(slope @ slope)
        if not np.isfinite(square) or square == 0.0:
            return None
        change = float(slope @ (wanted - here)) / square
        best = None
        for _ in range(4):
            tried = run(at + change)
            if tried is not None:
                gap = float(np.abs(wanted - tried).max(initial=0.0))
                if np.isfinite(gap) and gap < off:
                    best = gap, tried
                    break
            change /= 2.0
        if best is None:
            return None
        at, (gap, here) = at + change, best
        if gap <= limit:
            return _round(run, at, wanted, limit)
        if step >= 2 and gap > 0.7 * off:
            return None  # a number that explains all of it is found faster
        off = gap
    return None


def _round(
    run: Callable[[float], NDArray[np.float64] | None], at: float, wanted: NDArray[np.float64], limit: float
) -> float:
    """Return the number with fewer digits that does as well."""
    for digits in range(1, 13):
        short = float(f"{at:.{digits}g}")
        if abs(short - at) > 1e-6 * abs(at):
            continue
        made = run(short)
        if made is not None and float(np.abs(wanted - made).max(initial=0.0)) <= limit:
            return short
    return at
