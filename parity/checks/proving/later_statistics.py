"""Running statistics of a batch that one run takes with the parameters after its update, in a second call.

The other run is begun once more, from the parameters that the update left and the statistics from before it: where
its next statistics of the same batch are those of the run that parts, that is what that one does.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from parity.checks.proving.lockstep import MODEL, Lane
from parity.checks.proving.slots import LeafArrays, names_of
from parity.checks.proving.walk import TwoWalks
from parity.errors import ParityError

__all__ = ["later_statistics_cause"]

CLOSE = 1e-9
"""Relative distance within which two statistics are one: the parameters after the update differ by rounding."""


def later_statistics_cause(walk: TwoWalks, leaves: Sequence[str]) -> str:
    """Return that one run takes its statistics after the update and the other before; empty where that is not so.

    Args:
        walk: Two trainers whose running statistics alone part after an update.
        leaves: Of the second model, those that part.
    """
    over = walk.pairing.over
    held = [lane.moments[walk.done].slots.get(MODEL, {}) for lane in walk.lanes[:2]]
    for at, names in ((1, ("the port", "the trainer")), (0, ("the trainer", "the port"))):
        again = _again(walk, 1 - at)
        if again is None:
            return ""
        pair = (held[1], over(again)) if at else (over(held[0]), again)
        if all(_is_one(*(np.asarray(one[leaf]) for one in pair)) for leaf in leaves):
            return (
                f"running statistics: {names[0]} takes those of the batch with the parameters after the update, "
                f"{names[1]} with those before it, on {names_of(list(leaves))}"
            )
    return ""


def _again(walk: TwoWalks, at: int) -> LeafArrays | None:
    """Return the leaves of a run after an update that begins at the parameters which the same update left."""
    old = walk.lanes[at]
    if not old.moments[walk.done - 1].slots:
        return None
    statistics = old.trainer.model.statistics
    before, after = (dict(old.moments[done].slots[MODEL]) for done in (walk.done - 1, walk.done))
    lane = Lane(old.trainer, old.second, nudged=False, homes=old.homes, lift=old.lift)
    try:
        lane.run = old.trainer.probe.begin({**after, **{leaf: before[leaf] for leaf in statistics}}, lift=old.lift)
        lane.keep(float("nan"))
        lane.advance(walk.done - 1)
    except ParityError:
        return None
    return lane.moments[-1].slots.get(MODEL)


def _is_one(a: np.ndarray, b: np.ndarray) -> bool:
    return a.shape == b.shape and float(np.abs(a - b).max(initial=0.0)) <= CLOSE * float(np.abs(b).max(initial=0.0))
