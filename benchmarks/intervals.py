"""The rule that says when to stop adding rounds, by the 95 % interval of a median (`parity.results`)."""

from __future__ import annotations

import os
from collections.abc import Sequence

import numpy as np

from parity.results import interval

__all__ = ["MOST_TIMES", "NARROW", "is_narrow"]

NARROW = 0.01
"""A width, relative to the median, below which more rounds are not worth their time."""

MOST_TIMES = int(os.environ.get("PARITY_BENCH_MOST_TIMES", "4"))
"""The limit: at most so many times the rounds that a benchmark asks for; 1 under `make bench-quick`."""


def is_narrow(values: Sequence[float], bar: float | None) -> bool:
    """Return whether more rounds would add nothing: the verdict is clear, or the interval is narrow already.

    Clear means that the bar lies outside of the interval by at least the interval's own width: a rule that stopped as
    soon as the bar is outside would, asked after every round, stop too often by chance. With this one, a ratio that
    lies on its bar is reported as met, and as missed, in 4 % of all runs each (simulated, normal noise).

    Args:
        values: One ratio for each round so far.
        bar: What the ratio should reach; None for a ratio that is not judged, which needs no more rounds.

    Example:
        >>> is_narrow([1.0, 1.1, 1.2], 3.0), is_narrow([1.0, 1.1, 1.2], 1.15), is_narrow([1.0, 1.1, 1.2], None)
        (True, False, True)
    """
    if bar is None:
        return True
    low, high = interval(values)
    width = high - low
    return width <= NARROW * abs(float(np.median(values))) or bar < low - width or bar > high + width
