"""The gap between two loss curves: absolute, relative, and where it is largest."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

__all__ = ["CurveGap", "curve_gap", "distance"]


@dataclass(frozen=True, kw_only=True)
class CurveGap:
    """The gap between two loss curves, over the steps that both have."""

    steps: int
    max_abs: float
    max_rel: float
    worst_step: int
    """Step of the largest relative difference; 0 when nothing was compared."""


def curve_gap(a: Mapping[int, float], b: Mapping[int, float]) -> CurveGap:
    """Return the gap between two curves over the steps that both have.

    Args:
        a: Step to loss of the reference.
        b: Step to loss of the other curve.

    Numerics: float64; a NaN in one curve only is infinitely far, and a relative gap is taken to the reference.
    """
    steps = sorted({*a} & {*b})
    if not steps:
        return CurveGap(steps=0, max_abs=0.0, max_rel=0.0, worst_step=0)
    left, right = (np.array([curve[s] for s in steps]) for curve in (a, b))
    gap = distance(left, right)
    scale = np.maximum(np.abs(left), np.finfo(np.float64).tiny)
    with np.errstate(over="ignore"):  # a gap from a loss of zero is infinitely large, relatively
        relative = gap / np.where(np.isfinite(scale), scale, 1.0)
    return CurveGap(
        steps=len(steps),
        max_abs=float(gap.max()),
        max_rel=float(relative.max()),
        worst_step=steps[int(relative.argmax())],
    )


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
