"""Walks as seen through a gradient that both runs were given alike: that at an ascended point (SAM).

Where both take their gradients at a point up the first one, all that comes after it, as clipping, decay, moments and
rates, is of the gradient there. Both losses are taken at that point too, and causes are looked for once more.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from parity.checks.proving.gradient_forms import gradient_form
from parity.checks.proving.other_gradients import ascent_of
from parity.checks.proving.seen import SeenUpdate
from parity.checks.proving.slots import LeafArrays
from parity.checks.proving.sources import PortTrainer
from parity.checks.proving.walk import TwoWalks

__all__ = ["through_ascent"]


def through_ascent(walk: TwoWalks) -> TwoWalks | None:
    """Return a walk whose losses are taken up the gradient, where both runs do that alike; None where not.

    Args:
        walk: Two trainers after some updates.
    """
    one = gradient_form(walk, 0)
    if one is None or (up := ascent_of(one)) is None:
        return None
    two = gradient_form(walk, 1)
    if two is None or not one.same(two):
        return None
    lanes = [
        replace(lane, trainer=cast(PortTrainer, _AscendedTrainer(lane.trainer, up)), gradients={})
        for lane in walk.lanes[:2]
    ]
    return replace(walk, lanes=[*lanes, *walk.lanes[2:]], given={})


class _AscendedTrainer:
    """A trainer whose loss is that at a point up its gradient; all else is the trainer's."""

    def __init__(self, trainer: PortTrainer, up: Callable[[SeenUpdate], LeafArrays]) -> None:
        self.trainer, self.up = trainer, up

    @property
    def probe(self) -> _AscendedTrainer:
        """Return what has the loss."""
        return self

    def begin(self, values: Mapping[str, NDArray[np.float64]], *, lift: bool = False) -> Any:
        """Return a run of the trainer itself."""
        return self.trainer.probe.begin(values, lift=lift)

    def loss(self, values: Mapping[str, NDArray[np.float64]], batch: Any) -> Any:
        """Return loss and gradients at the point up the gradient."""
        gradients = self.trainer.probe.loss(values, batch).gradients
        moving = {leaf: g for leaf, g in gradients.items() if leaf not in self.trainer.model.statistics}
        step = self.up(SeenUpdate(0, values, moving, {}, {}, {}))
        return self.trainer.probe.loss({leaf: one + step.get(leaf, 0.0) for leaf, one in values.items()}, batch)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.trainer, name)
