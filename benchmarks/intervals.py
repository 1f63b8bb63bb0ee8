"""The 95 % interval of a median, by bootstrap over rounds, and the rule that says when to stop adding rounds."""

from __future__ import annotations

import os
from collections.abc import Sequence

import numpy as np

__all__ = ["LEVEL", "MOST_TIMES", "NARROW", "interval", "is_narrow"]

LEVEL = 0.95
"""The share of resamples whose median lies in the interval."""

RESAMPLES = 10_000
"""The ends of an interval then change by less than a tenth of a per cent of its width from seed to seed."""

NARROW = 0.01
"""A width, relative to the median, below which more rounds are not worth their time."""

MOST_TIMES = int(os.environ.get("PARITY_BENCH_MOST_TIMES", "4"))
"""The limit: at most so many times the rounds that a benchmark asks for; 1 under `make bench-quick`."""


def interval(values: Sequence[float]) -> tuple[float, float]:
    """Return the 95 % interval of the median: the percentiles of the medians of resampled rounds.

    Args:
        values: One ratio for each round, at least one.

    Returns:
        Its low and high ends; both lie within the values, with the median between them. The same values always give
        the same interval.

    Numerics:
        The median of few rounds takes few values, so the true coverage moves with their number: 94 % at 5 rounds,
        88 % at 7, 91 % to 94 % from 9 to 20 (simulated, normal noise).

    Source:
        B. Efron, R. Tibshirani, An Introduction to the Bootstrap (1993), section 13.3: the percentile interval.

    Example:
        >>> interval([1.0, 1.01, 1.02, 1.03, 1.04])
        (1.0, 1.04)
        >>> interval([2.0])
        (2.0, 2.0)
    """
    found = np.asarray(values, np.float64)
    drawn = np.random.default_rng(0).integers(len(found), size=(RESAMPLES, len(found)))
    medians = np.median(found[drawn], axis=1)
    tail = (1 - LEVEL) / 2
    low, high = np.quantile(medians, [tail, 1 - tail], method="inverted_cdf")
    return float(low), float(high)


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
