"""Rates in straight pieces, such as of a triangle that repeats, or of a constant rate between a rise and a fall."""

from __future__ import annotations

import itertools

import numpy as np
from numpy.typing import NDArray

__all__ = ["straight_pieces"]

MOST_PIECES = 5

SPARE = 2
"""Rates that must be left over beside those that two numbers of each piece could be fitted to."""


def straight_pieces(rates: NDArray[np.float64], limit: float) -> str:
    """Return the pieces of straight lines that rates lie on, in words; empty where there are too many, or one.

    Args:
        rates: Of the first updates of a run, all of them.
        limit: How far a rate may be from its piece.
    """
    steps = np.diff(rates)
    ends = [at + 1 for at in range(len(steps) - 1) if abs(steps[at + 1] - steps[at]) > 2 * limit]
    bounds = [0, *ends, len(rates) - 1]
    lengths = np.diff(bounds)
    count = len(lengths)
    if not 2 <= count <= MOST_PIECES or 2 * count + SPARE > len(rates) or (lengths[1:-1] < 2).any():
        return ""  # two bends side by side are no bend between two updates, or of no line at all
    told = []
    for first, last in itertools.pairwise(bounds):
        slope = float(rates[last] - rates[first]) / (last - first)
        told.append(f"{slope:+.6g} each" if abs(slope) > limit else "the same")
    return ", ".join([*(f"{words} up to update {at + 1}" for words, at in zip(told, ends, strict=False)),
                      f"then {told[-1]}"])  # fmt: skip
