"""The tolerances by which two curves count as equal: one table, each with its reason."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from parity.checks.gap import distance
from parity.contract import Precision

__all__ = [
    "ENVELOPE_LIMIT",
    "FLOAT64_LIMIT",
    "FLOAT64_NOISE_FLOOR",
    "FLOOR_ULPS",
    "SEEDS",
    "WINDOW",
    "envelope",
    "envelope_multiple",
    "ulp",
    "widest",
]

FLOAT64_LIMIT = 1e-12
"""Largest relative difference of the loss, float64, across sides. Clean presets stay below 4e-14 over 1,000 steps; a
LayerNorm epsilon of 1e-6 for 1e-5, which float32 cannot show, is 6e-7 at the first step."""

FLOAT64_NOISE_FLOOR = 1e-13
"""Largest relative change that one unit in the last place at the start may grow to, for float64 to be conclusive."""

ENVELOPE_LIMIT: Mapping[Precision, float] = {"float32": 3.0, "bfloat16": 3.0, "float16": 3.0}
"""Largest multiple of the measured envelope that passes. Clean twins and handovers of the presets reach at most 1.0;
faulty ports that show at all start at 3.8, most at 5 to 400,000. docs/method.md has the table; what it shows to be
invisible below float64 is what the float64 criterion is for."""

SEEDS = 16
"""Perturbed runs on each side from which an envelope is measured."""

WINDOW = 25
"""Steps over which an envelope takes its largest spread."""

FLOOR_ULPS = 4
"""An envelope is never narrower than this many units in the last place of the loss: the first steps show none."""


def ulp(values: NDArray[np.float64], precision: Precision) -> NDArray[np.float64]:
    """Return one unit in the last place of a precision at each value, float64, same shape.

    Args:
        values: Of any shape; at and around zero, the unit is that of the smallest normal number.
        precision: Whose last place it is.

    Source: significand widths of IEEE 754 binary64, binary32 and binary16 (53, 24, 11 bits) and bfloat16 (8 bits).

    Example:
        >>> ulp(np.array([1.0, -3.0]), "float32").tolist() == [2**-23, 2**-22]
        True
    """
    bits = {"float64": 53, "float32": 24, "bfloat16": 8, "float16": 11}[precision]
    lowest = {"float64": -1021, "float32": -125, "bfloat16": -125, "float16": -13}[precision]
    exponent = np.frexp(values)[1]  # value = m * 2**e with m in [0.5, 1)
    exponent = np.where(values == 0.0, lowest, np.maximum(exponent, lowest))
    return np.ldexp(1.0, exponent - bits)


def envelope(
    base: Sequence[float], perturbed: Sequence[Sequence[float]], window: int = WINDOW
) -> NDArray[np.float64]:
    """Return the half-width of the envelope at each step, float64, shape [steps].

    Args:
        base: Losses of the unperturbed run of the side the perturbed runs belong to.
        perturbed: Losses of runs whose start was moved by one unit in the last place.
        window: Steps over which the largest spread is taken.
    """
    reference = np.asarray(base, np.float64)
    spread = np.max([distance(reference, np.asarray(run, np.float64)) for run in perturbed], axis=0)
    return np.maximum(widest(spread, window), FLOOR_ULPS * ulp(reference, "float32"))


def widest(spread: NDArray[np.float64], window: int) -> NDArray[np.float64]:
    """Return the largest value in the window of each step, float64, shape [steps].

    Args:
        spread: A value for each step, shape [steps].
        window: Steps of a window; the last one may be shorter.

    Example:
        >>> widest(np.array([1.0, 3.0, 2.0]), 2).tolist()
        [3.0, 3.0, 2.0]
    """
    largest = np.maximum.reduceat(spread, np.arange(0, len(spread), window))
    return np.repeat(largest, window)[: len(spread)]


def envelope_multiple(a: Sequence[float], b: Sequence[float], width: NDArray[np.float64]) -> float:
    """Return the largest deviation of two curves as a multiple of an envelope: the smallest limit that would pass.

    Args:
        a: Losses of one run.
        b: Losses of the other, at the same steps.
        width: Half-width of the envelope at each step, shape [steps].

    Example:
        >>> envelope_multiple([1.0, 0.5], [1.0, 0.75], np.array([0.125, 0.125]))
        2.0
    """
    gap = distance(np.asarray(a, np.float64), np.asarray(b, np.float64))
    return float((gap / width).max()) if len(gap) else 0.0
