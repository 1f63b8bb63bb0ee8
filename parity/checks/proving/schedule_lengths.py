"""Lengths of schedules of which few updates are seen, such as a cosine over a thousand of which fifty are.

Of such a piece many lengths give all rates to within the rounding of one that was saved in few digits. Where rates
are exact in float64 one length alone does: the residual of the next one is as large as what tells them apart.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

__all__ = ["LongLength", "exact_length"]

LONGEST = 4000
"""Updates that a schedule is tried to have at most."""

EXACT = 1e-10
"""How far a rate may be from what the length gives, relative to the largest rate: rounding of float64."""

CLEARLY = 30.0
"""How many times as far the rates must be from the next length, shorter or longer."""

FEWEST = 8
"""Rates from which a floor beside the length is told: of fewer, three numbers give nearly any."""

_ShareCurve = Callable[[NDArray[np.float64]], NDArray[np.float64]]


@dataclass(frozen=True)
class LongLength:
    """The one length with which a schedule gives all rates."""

    length: int
    shift: int
    """What the update is counted from, 0 or 1."""
    top: float
    floor: float


def exact_length(
    rates: NDArray[np.float64], shape: _ShareCurve, shortest: int, shifts: Sequence[int]
) -> LongLength | None:
    """Return the one length with which a shape gives all rates; None where none does, or several do.

    Args:
        rates: Of updates one after the other, from the first of the schedule on.
        shape: Takes shares of the length to values from 1 down to 0.
        shortest: That is tried.
        shifts: What updates may be counted from; of a power each is another length, and one is tried.

    Numerics: in float64, top and floor by least squares; where a floor of zero is enough it is the one that is meant.
    """
    n = np.arange(len(rates), dtype=np.float64)
    limit = EXACT * float(np.abs(rates).max(initial=0.0))
    lengths = np.arange(shortest, LONGEST + 1, dtype=np.float64)
    found = []
    for floored in (False, True)[: 1 + (len(rates) >= FEWEST)]:
        for shift in shifts:
            parts, off = _fitted(shape((n + shift)[None] / lengths[:, None]), rates, floored)
            fits = np.flatnonzero(off <= limit)
            at = int(off.argmin())
            beside = [off[one] for one in (at - 1, at + 1) if 0 <= one < len(off)]
            if not len(fits) or len(beside) < 2 or min(beside) < CLEARLY * max(off[at], limit / CLEARLY):
                continue
            found.append(LongLength(int(lengths[at]), shift, float(parts[at].sum()), float(parts[at, 1])))
        if found:
            break
    return found[0] if len(found) == 1 else None


def _fitted(
    shapes: NDArray[np.float64], rates: NDArray[np.float64], floored: bool
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:  # fmt: skip
    """Return scale and floor of each shape, [m, 2], and how far the rates are from it at most, [m]."""
    if not floored:
        scale = (shapes @ rates) / (shapes**2).sum(1)
        floor = np.zeros_like(scale)
    else:
        centred = shapes - shapes.mean(1, keepdims=True)
        # products of values that are nearly 1 would be rounded at their size, and not at that of what moves
        scale = (centred @ (rates - rates.mean())) / (centred**2).sum(1)
        floor = rates.mean() - scale * shapes.mean(1)
    off = np.abs(scale[:, None] * shapes + floor[:, None] - rates[None]).max(1)
    return np.stack([scale, floor], 1), off
