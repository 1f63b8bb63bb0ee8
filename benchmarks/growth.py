"""How a cost grows with a size: the straight line through the points, by least squares."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

__all__ = ["fit"]


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
