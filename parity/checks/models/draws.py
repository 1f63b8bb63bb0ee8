"""LeafValues for leaves: equal in both models before anyone knows which leaf is which, or drawn for each alone.

A value that depends only on the extents of an array, and stays the same when its axes change places, can be given to
every array of these extents in both models. Then both compute the same, whichever leaf is which, and the gradient of
a leaf is that of its counterpart with its axes in the other order: exactly, not on average.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

__all__ = ["drawn", "symmetric", "weights"]


def symmetric(shape: Sequence[int], kind: str, seed: int) -> NDArray[np.float64]:
    """Return values that any array of these extents gets, in any order of its axes, float64.

    Args:
        shape: Of the array.
        kind: What it is.
        seed: Another one gives other values.

    Example:
        >>> a, b = symmetric((2, 3, 3), "parameter", 0), symmetric((3, 2, 3), "parameter", 0)
        >>> bool((a.transpose(1, 0, 2) == b).all() and (a == a.transpose(0, 2, 1)).all())
        True
    """
    base = drawn(sorted(shape), kind, (seed, *sorted(shape)))
    grids = np.indices(tuple(shape), sparse=False) if shape else np.zeros((0,), np.intp)
    order: list[NDArray[np.intp]] = []
    for extent in sorted(set(shape)):
        same = np.stack([grids[axis] for axis, n in enumerate(shape) if n == extent])
        order += list(np.sort(same, axis=0))  # the same whichever of these axes comes first
    return np.asarray(base[tuple(order)], np.float64)


def drawn(shape: Sequence[int], kind: str, seed: Sequence[int]) -> NDArray[np.float64]:
    """Return values of an array of its own, float64.

    Args:
        shape: Of the array.
        kind: What it is.
        seed: Numbers of which the values follow.

    Numerics: matrices have a standard deviation of one over the root of their elements per longest axis, which keeps
    what goes through them at the same size; what has one axis lies around a half, as scales of norms must not vanish.
    """
    rng = np.random.default_rng([11, *map(int, seed), len(shape), *map(int, shape)])
    if kind == "statistic":
        return rng.uniform(0.5, 1.5, tuple(shape))
    draws = rng.standard_normal(tuple(shape))
    if len(shape) < 2:
        return 0.5 + 0.4 * draws
    return draws / math.sqrt(max(1.0, math.prod(shape) / max(shape)))


def weights(place: int, shape: tuple[int, ...]) -> NDArray[np.float64]:
    """Return the weights of an output, by which it counts in the sum that gradients are of.

    Args:
        place: Number of the output.
        shape: Its shape; the weights, float64, have it too.
    """
    return np.asarray(np.random.default_rng([23, place, *shape]).standard_normal(shape))
