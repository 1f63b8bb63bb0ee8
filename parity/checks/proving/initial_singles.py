"""Initial values of leaves of one element: a number that was written down is told from a drawn one by a second draw.

One number of one draw shows no distribution. Built once more, a model whose leaf is another number then draws it; one
that has 0, or another number of few digits, each time does not.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
from numpy.typing import NDArray

__all__ = ["StartDraws", "unlike_singles"]

StartDraws = tuple[Mapping[str, NDArray[np.float64]], Mapping[str, NDArray[np.float64]]]
"""Initial values of the first model, as the second has them, and of the second."""


def unlike_singles(draws: StartDraws, again: Callable[[], StartDraws | None]) -> list[tuple[str, str]]:
    """Return leaves of one element that are drawn in one model alone, or written down as other numbers, with words.

    Args:
        draws: As both models were built.
        again: Builds both once more; None where that cannot be done.
    """
    one, two = draws
    asked = [leaf for leaf in one if np.size(one[leaf]) == 1 and leaf in two and not _close(one[leaf], two[leaf])
             and (_written(one[leaf]) or _written(two[leaf]))]  # fmt: skip
    more = again() if asked else None
    if more is None:
        return []
    found = []
    for leaf in asked:
        moved = [not np.array_equal(held[leaf], other[leaf]) for held, other in zip(draws, more, strict=True)]
        shown = [f"{float(np.ravel(held[leaf])[0]):.6g}" for held in draws]
        if moved == [True, False] and _written(two[leaf]):
            found.append((leaf, f"drawn here ({shown[0]}, and another number when it is built once more), {shown[1]} "
                                "there each time"))  # fmt: skip
        elif moved == [False, True] and _written(one[leaf]):
            found.append((leaf, f"{shown[0]} here each time, drawn there ({shown[1]}, and another number when it is "
                                "built once more)"))  # fmt: skip
        elif moved == [False, False] and _written(one[leaf]) and _written(two[leaf]):
            found.append((leaf, f"{shown[0]} here, {shown[1]} there, each time"))
    return found


def _close(one: NDArray[np.float64], two: NDArray[np.float64]) -> bool:
    a, b = float(np.ravel(one)[0]), float(np.ravel(two)[0])
    return abs(a - b) <= 1e-6 * max(abs(a), abs(b))


def _written(value: NDArray[np.float64]) -> bool:
    """Return whether a number has so few digits, in either type, that none draws it."""
    number = float(np.ravel(value)[0])
    short = float(f"{number:.3g}")
    return number in (short, float(np.float32(short)))
