"""Masks of dropout that do not depend on a framework: two trainers that drop at the same places drop the same."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

__all__ = ["DropoutMasks"]


class DropoutMasks:
    """Gives a mask for each dropout of one evaluation of a loss, in the order in which they are called.

    Args:
        order: Which draw each place gets, by the order of calls; its own number where it is not said.
    """

    def __init__(self, order: Sequence[int] = ()) -> None:
        self.order = tuple(order)
        self.sites: list[tuple[float, tuple[int, ...]]] = []
        """Rate and shape of each mask that was given."""
        self.unseen: list[str] = []
        """What drops and was given none."""

    def mask(self, rate: float, shape: Sequence[int]) -> NDArray[np.bool_]:
        """Return which elements stay.

        The draw is of the extents in order of size, so that a layout with other orders of axes gets the same mask,
        as long as no two extents are equal.

        Example:
            >>> one, two = DropoutMasks().mask(0.5, (2, 3)), DropoutMasks().mask(0.5, (3, 2))
            >>> bool((one == two.T).all())
            True
        """
        at = len(self.sites)
        self.sites.append((round(float(rate), 12), tuple(shape)))
        number = self.order[at] if at < len(self.order) else at
        axes = sorted(range(len(shape)), key=lambda axis: shape[axis])
        draws = np.random.default_rng([11, number]).random([shape[axis] for axis in axes])
        kept: NDArray[np.bool_] = draws.transpose(np.argsort(axes)) >= rate
        return kept
