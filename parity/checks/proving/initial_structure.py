"""What draws share beside their spread: constant and equal parts, orthogonal rows, tails, leaves of one key."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

__all__ = ["equal_leaves", "tail_unlike", "unlike_structure"]

ORTHOGONAL = 1e-4
"""How far a product of rows may be from a multiple of the identity: it is drawn in float32."""


def unlike_structure(a: NDArray[np.float64], b: NDArray[np.float64]) -> str:
    """Return which structure one leaf has and the other not; empty where both have the same.

    Args:
        a: Initial values of a leaf here, as the second model has it.
        b: The values there, of the same shape.
    """
    if a.ndim < 2 or a.shape != b.shape:
        return ""
    for axis in range(a.ndim):
        here, there = (np.moveaxis(one, axis, 0).reshape(one.shape[axis], -1) for one in (a, b))
        if here.shape[1] < 2:
            continue
        flat = [{at: float(row[0]) for at, row in enumerate(one) if not np.ptp(row)} for one in (here, there)]
        for at in sorted(flat[0].keys() | flat[1].keys()):
            x, y = (one.get(at) for one in flat)
            if x is None or y is None or abs(x - y) > 1e-6 * max(abs(x), abs(y)):
                shown = ["drawn" if one is None else f"{one:.6g}" for one in (x, y)]
                return f"index {at} of axis {axis} is {shown[0]} here, {shown[1]} there"
        many = [len(np.unique(one, axis=0)) for one in (here, there)]
        if many[0] != many[1]:
            return f"{many[0]} of {len(here)} indices of axis {axis} differ from one another here, {many[1]} there"
    orthogonal = [_orthogonal(one) for one in (a, b)]
    if orthogonal[0] != orthogonal[1]:
        return f"orthogonal {'here, not there' if orthogonal[0] else 'there, not here'}"
    return ""


def _orthogonal(array: NDArray[np.float64]) -> bool:
    """Return whether rows or columns are orthogonal to one another, and of one length."""
    for matrix in (array.reshape(len(array), -1), array.reshape(-1, array.shape[-1])):
        short = matrix if matrix.shape[0] <= matrix.shape[1] else matrix.T
        if len(short) < 3:
            continue
        product = short @ short.T
        size = float(np.trace(product)) / len(short)
        if size and float(np.abs(product / size - np.eye(len(short))).max()) <= ORTHOGONAL:
            return True
    return False


def tail_unlike(a: NDArray[np.float64], b: NDArray[np.float64], chance: float) -> str:
    """Return that one has many elements larger than the largest of the other, as a normal has beside a uniform.

    Args:
        a: Draws here, flat.
        b: As many there.
        chance: Probability below which it is not taken for chance.

    Numerics: of equal distributions each of the largest m of both is on either side alike, so that all of them are on
    one by a chance of 2 ** (1 - m), whatever the distribution is.
    """
    x, y = np.abs(a), np.abs(b)
    more = max(int((y > x.max()).sum()), int((x > y.max()).sum()))
    if more and math.ldexp(2.0, -more) < chance:
        shown = f"({x.max():.4g} here, {y.max():.4g} there)"
        return f"another distribution: {more} elements are larger than the largest of the other {shown}"
    return ""


def equal_leaves(
    here: Mapping[str, NDArray[np.float64]], there: Mapping[str, NDArray[np.float64]]
) -> list[tuple[str, str]]:
    """Return leaves that are drawn as another leaf in one model alone, as from one key, each with what is said.

    Args:
        here: Initial values of the first model, as the second has them.
        there: Of the second.
    """
    groups = [_groups(one) for one in (here, there)]
    found = []
    for leaf in there:
        one, two = (group.get(leaf, leaf) for group in groups)
        if one == two:
            continue
        side, other = ("there", two) if two != leaf else ("here", one)
        found.append((leaf, f"drawn as {other} {side}, from the same random numbers; by itself in the other"))
    return found


def _groups(leaves: Mapping[str, NDArray[np.float64]]) -> dict[str, str]:
    """Return leaf to the first leaf that holds the same numbers, but for a factor; of constants nothing."""
    first: dict[bytes, str] = {}
    found = {}
    for leaf, array in leaves.items():
        if array.size < 3 or not np.ptp(array):
            continue
        scaled = np.round(array / np.abs(array).max(), 5) + 0.0
        found[leaf] = first.setdefault(scaled.tobytes() + repr(array.shape).encode(), leaf)
    return found
