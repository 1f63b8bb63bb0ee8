"""How a cost grows with a size: the straight line through the points, by least squares, and what a unit costs."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

import numpy as np

__all__ = ["fit", "per_unit"]


def fit(points: Sequence[tuple[float, float]]) -> dict[str, float]:
    """Fit y = slope * x + intercept by ordinary least squares.

    The largest sizes decide, as they should: what a checkpoint of 300 million parameters costs is the question, and
    the intercept is what any checkpoint costs.

    Args:
        points: Pairs (size, cost), at least two of different sizes.

    Returns:
        `slope`, `intercept` and `r2`, the share of the variance of y that the line explains.

    Raises:
        ValueError: There are fewer than two sizes.
    """
    x, y = (np.array(column, np.float64) for column in zip(*points, strict=True)) if points else (np.empty(0),) * 2
    if len(np.unique(x)) < 2:
        raise ValueError(f"a line needs points of at least two sizes, got {list(points)}")
    dx, dy = x - x.mean(), y - y.mean()
    slope = float(dx @ dy / (dx @ dx))
    left, whole = dy - slope * dx, float(dy @ dy)
    return {
        "slope": slope,
        "intercept": float(y.mean() - slope * x.mean()),
        "r2": 1.0 - float(left @ left) / whole if whole else 1.0,
    }


def per_unit(small: tuple[float, Sequence[float]], large: tuple[float, Sequence[float]]) -> list[float]:
    """Return what a unit costs at a size, round by round, over the median of what it costs at a smaller one.

    The rounds of two sizes are no pairs: one size runs after the other. Where the smaller costs nothing that can be
    distinguished from noise, there is no ratio and the list is empty.

    Args:
        small: A size and the costs of its rounds.
        large: A larger one and its costs; as many rounds or not.
    """
    (units, before), (more, after) = small, large
    each = median(before) / units
    return [cost / more / each for cost in after] if each > 0 else []
