"""Walks as seen through a gradient that both runs were given alike: at an ascended point (SAM), or of parts.

Where both take their gradients at a point up the first one, or add those of parts of each batch, all that comes after
it, as clipping, decay, moments and rates, is of that gradient. Both losses are taken so, and causes are looked for
once more.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, Self, cast

import numpy as np
from numpy.typing import NDArray

from parity.checks.proving.batch_parts import BatchParts
from parity.checks.proving.gradient_forms import gradient_form
from parity.checks.proving.other_gradients import ascent_of
from parity.checks.proving.seen import SeenUpdate
from parity.checks.proving.slots import LeafArrays
from parity.checks.proving.sources import PortTrainer
from parity.checks.proving.walk import TwoWalks

__all__ = ["through_ascent", "through_parts"]


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
    return _through(walk, lambda trainer: _AscendedTrainer(trainer, up))


def through_parts(walk: TwoWalks) -> TwoWalks | None:
    """Return a walk whose losses are those of parts of each batch, where both runs add these alike; None where not.

    What a loss has beside a mean over rows, as a sum over the batch within it, is another one of the whole batch.

    Args:
        walk: Two trainers after some updates.
    """
    one = gradient_form(walk, 0)
    if one is None or not one.weights:
        return None
    two = gradient_form(walk, 1)
    if two is None or not one.same(two):
        return None
    return _through(
        walk, lambda trainer: _PartedTrainer(trainer, one.weights, BatchParts(len(one.weights), one.strided))
    )


def _through(walk: TwoWalks, made: Callable[[PortTrainer], Any]) -> TwoWalks:
    lanes = [replace(lane, trainer=cast(PortTrainer, made(lane.trainer)), gradients={}) for lane in walk.lanes[:2]]
    return replace(walk, lanes=[*lanes, *walk.lanes[2:]], given={})


class _SeenTrainer:
    """A trainer with another loss, which its classes have; all else is the trainer's."""

    def __init__(self, trainer: PortTrainer) -> None:
        self.trainer = trainer

    @property
    def probe(self) -> Self:
        """Return what has the loss."""
        return self

    def begin(self, values: Mapping[str, NDArray[np.float64]], *, lift: bool = False) -> Any:
        """Return a run of the trainer itself."""
        return self.trainer.probe.begin(values, lift=lift)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.trainer, name)


class _AscendedTrainer(_SeenTrainer):
    """One whose loss is that at a point up its gradient."""

    def __init__(self, trainer: PortTrainer, up: Callable[[SeenUpdate], LeafArrays]) -> None:
        super().__init__(trainer)
        self.up = up

    def loss(self, values: Mapping[str, NDArray[np.float64]], batch: Any) -> Any:
        """Return loss and gradients at the point up the gradient."""
        gradients = self.trainer.probe.loss(values, batch).gradients
        moving = {leaf: g for leaf, g in gradients.items() if leaf not in self.trainer.model.statistics}
        step = self.up(SeenUpdate(0, values, moving, {}, {}, {}))
        return self.trainer.probe.loss({leaf: one + step.get(leaf, 0.0) for leaf, one in values.items()}, batch)


class _PartedTrainer(_SeenTrainer):
    """One whose loss is the weighted sum of those of parts of a batch."""

    def __init__(self, trainer: PortTrainer, weights: tuple[float, ...], parts: BatchParts) -> None:
        super().__init__(trainer)
        self.weights, self.parts = weights, parts

    def loss(self, values: Mapping[str, NDArray[np.float64]], batch: Any) -> Any:
        """Return loss and gradients, summed over the parts."""
        made = [self.trainer.probe.loss(values, part) for part in self.parts.of(batch)]
        gradients = {
            leaf: np.asarray(sum(w * one.gradients[leaf] for w, one in zip(self.weights, made, strict=True)))
            for leaf in made[0].gradients
        }
        return SimpleNamespace(loss=sum(w * one.loss for w, one in zip(self.weights, made, strict=True)),
                               gradients=gradients)  # fmt: skip
