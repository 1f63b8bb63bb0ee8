"""Rounding noise: a unit in the last place, values moved by it, how far runs part by it, and the envelope of that.

Every measure of noise goes through here: of twins and of ports, of states that are moved and of live parameters. Who
moves what, and who runs, lies with the checks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import ml_dtypes  # noqa: F401  registers bfloat16 with NumPy by name
import numpy as np
from numpy.typing import NDArray

from parity.contract import Precision

__all__ = [
    "EPSILON",
    "FLOOR_ULPS",
    "SEEDS",
    "WINDOW",
    "distance",
    "envelope",
    "half_width",
    "one_ulp_away",
    "rounded",
    "spread_of",
    "ulp",
    "widest",
]

SEEDS = 16
"""Perturbed runs on each side from which an envelope is measured."""

WINDOW = 25
"""Steps over which an envelope takes its largest spread."""

FLOOR_ULPS = 4
"""An envelope is never narrower than this many units in the last place of the loss: the first steps show none."""

_BITS: Mapping[Precision, int] = {"float64": 53, "float32": 24, "bfloat16": 8, "float16": 11}
"""Widths of the significands of IEEE 754 binary64, binary32, bfloat16 and binary16, the hidden bit included."""

_LOWEST: Mapping[Precision, int] = {"float64": -1021, "float32": -125, "bfloat16": -125, "float16": -13}
"""Exponent of the smallest normal number, as `frexp` gives it."""

EPSILON: Mapping[str, float] = {name: 2.0 ** (1 - bits) for name, bits in _BITS.items()}
"""Type to one unit in the last place of 1."""


def ulp(values: NDArray[np.float64], precision: Precision) -> NDArray[np.float64]:
    """Return one unit in the last place of a precision at each value, float64, same shape.

    Args:
        values: Of any shape; at and around zero, the unit is that of the smallest normal number.
        precision: Whose last place it is.

    Source: IEEE 754, and bfloat16 as a float32 without its lower half.

    Example:
        >>> ulp(np.array([1.0, -3.0]), "float32").tolist() == [2**-23, 2**-22]
        True
    """
    lowest = _LOWEST[precision]
    exponent = np.frexp(values)[1]  # value = m * 2**e with m in [0.5, 1)
    exponent = np.where(values == 0.0, lowest, np.maximum(exponent, lowest))
    return np.ldexp(1.0, exponent - _BITS[precision])


def one_ulp_away(values: NDArray[Any], up: NDArray[np.bool_], precision: Precision) -> NDArray[Any]:
    """Return a parameter whose every element moved by one unit in the last place, same shape and type.

    Args:
        values: The parameter, of any floating type.
        up: Which elements move up, same shape; the others move down.
        precision: Type in which the products are computed.

    Numerics: zeros count as 0.5, as biases start at 0 and are added to values of size 1. The unit is the coarser of
    the precision's and the parameter's own: a finer one would vanish in a cast.

    Example:
        >>> one_ulp_away(np.array([1.0, 0.0], np.float32), np.array([True, False]), "bfloat16").tolist()
        [1.0078125, -0.00390625]
    """
    wide = values.astype(np.float64)
    size = np.where(wide == 0.0, 0.5, wide)
    own: Precision = "float64" if values.dtype == np.float64 else "float32"
    unit = np.maximum(ulp(size, precision), ulp(size, own))
    return np.asarray(wide + np.where(up, 1.0, -1.0) * unit, values.dtype)


def rounded(values: NDArray[Any], precision: Precision) -> NDArray[np.float64]:
    """Return values rounded to a type, to nearest and ties to even, as float64 of the same shape.

    Args:
        values: Of any floating type and shape.
        precision: The type.

    Numerics: what is beyond the largest number of the type becomes infinite.

    Example:
        >>> rounded(np.array([1.0, 1.001]), "bfloat16").tolist()
        [1.0, 1.0]
    """
    with np.errstate(over="ignore"):
        return np.asarray(values).astype(np.dtype(precision)).astype(np.float64)


def distance(a: NDArray[np.float64], b: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return |a - b|: 0 where both are NaN or equal, infinite where one is NaN.

    Args:
        a: float64, any shape.
        b: float64, the same shape.

    Returns:
        float64, the same shape.

    Numerics: two equal infinities are 0 apart.

    Example:
        >>> nan = float("nan")
        >>> distance(np.array([1.0, nan, nan]), np.array([1.5, nan, 2.0])).tolist()
        [0.5, 0.0, inf]
    """
    with np.errstate(invalid="ignore"):
        gap = np.abs(a - b)
    gap = np.where(np.isnan(a) & np.isnan(b) | (a == b), 0.0, gap)
    return np.where(np.isnan(gap), np.inf, gap)


def spread_of(a: Any, b: Any) -> float:
    """Return the largest absolute difference of two values; infinite where one is NaN and the other is not.

    Args:
        a: A number or an array.
        b: The same of the other; of another shape it is infinitely far.

    Numerics: float64; 0 for arrays without elements.

    Example:
        >>> spread_of([1.0, 2.0], [1.0, 2.5]), spread_of(1.0, float("nan"))
        (0.5, inf)
    """
    left, right = (np.asarray(x, np.float64) for x in (a, b))
    if left.shape != right.shape:
        return float("inf")
    return float(distance(left, right).max(initial=0.0))


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


def half_width(
    spread: NDArray[np.float64], reference: NDArray[np.float64], window: int = WINDOW
) -> NDArray[np.float64]:
    """Return the half-width of an envelope at each step, float64, shape [steps].

    Args:
        spread: How far moved runs part from the reference at each step, shape [steps].
        reference: Losses of the reference, shape [steps]: no envelope is narrower than `FLOOR_ULPS` of their units.
        window: Steps over which the largest spread is taken.
    """
    return np.maximum(widest(spread, window), FLOOR_ULPS * ulp(reference, "float32"))


def envelope(
    base: Sequence[float], perturbed: Sequence[Sequence[float]], window: int = WINDOW
) -> NDArray[np.float64]:
    """Return the half-width of the envelope that moved runs span, float64, shape [steps].

    Args:
        base: Losses of the unperturbed run of the side the perturbed runs belong to.
        perturbed: Losses of runs whose start was moved by one unit in the last place.
        window: Steps over which the largest spread is taken.
    """
    reference = np.asarray(base, np.float64)
    spread = np.max([distance(reference, np.asarray(run, np.float64)) for run in perturbed], axis=0)
    return half_width(spread, reference, window)
