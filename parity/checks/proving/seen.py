"""Single updates of one run, as arrays: the values before, the gradient of its own loss there, and what it left.

Each run is looked at by itself, at its own values: what its rule is does not depend on where the other has gone.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from parity.checks.proving.averages import averages_in
from parity.checks.proving.lockstep import MODEL, Lane, LeafSlots
from parity.checks.proving.slots import LeafArrays
from parity.checks.proving.walk import TwoWalks

__all__ = ["SeenUpdate", "decays_of", "gradient_at", "joined", "seen_updates", "without"]


@dataclass(frozen=True)
class SeenUpdate:
    """One update of one run. All arrays are of parameters that a gradient reaches."""

    at: int
    """Counted from 1."""
    before: LeafArrays
    gradient: LeafArrays
    after: LeafArrays
    held: LeafSlots
    """Slots that have every leaf, before the update: zeros where they are made at it. None is an average of the
    parameters: that has the move in it, and would make any."""
    kept: LeafSlots
    """The same after it."""

    @property
    def move(self) -> dict[str, NDArray[np.float64]]:
        """Return what the parameters went by."""
        return {leaf: one - self.before[leaf] for leaf, one in self.after.items()}


def joined(held: LeafArrays, leaves: Sequence[str]) -> NDArray[np.float64]:
    """Return the elements of leaves one after the other, [n]."""
    return np.concatenate([np.asarray(held[leaf]).ravel() for leaf in leaves]) if leaves else np.zeros(0)


def seen_updates(walk: TwoWalks, at: int, *, own: bool = True) -> list[SeenUpdate]:
    """Return the updates of one run of which both ends are kept, the first three and the last ones.

    Args:
        walk: Two trainers after some updates.
        at: 0 for the trainer, 1 for its port.
        own: Whether leaves are those of its own model; otherwise those of the port's.
    """
    lane = walk.lanes[at]
    over = at == 0 and not own
    only = walk.only[1 if over else at]
    statistics = walk.pairing.subjects.second.statistics if over else lane.trainer.model.statistics
    averages = averages_in(lane)
    found = []
    for step in range(1, len(lane.moments)):
        before, after = lane.moments[step - 1], lane.moments[step]
        if not before.slots or not after.slots:
            continue
        ends = [dict(one.slots[MODEL]) for one in (before, after)]
        grads = gradient_at(lane, step - 1)
        if over:
            ends, grads = [walk.pairing.over(one) for one in ends], walk.pairing.over(grads, grads=True)
        largest = max((float(np.abs(g).max(initial=0.0)) for g in grads.values()), default=0.0)
        leaves = [leaf for leaf, g in grads.items() if leaf not in statistics and leaf in ends[0]
                  and (not only or leaf in only) and float(np.abs(g).max(initial=0.0)) > 1e-9 * largest]  # fmt: skip
        kept: dict[str, LeafArrays] = {}
        held: dict[str, LeafArrays] = {}
        for slot, arrays in after.slots.items():
            now, old = dict(arrays), dict(before.slots.get(slot, {}))
            if over:
                now, old = walk.pairing.over(now), walk.pairing.over(old) if old else {}
            if slot not in (MODEL, *averages) and all(leaf in now for leaf in leaves):
                kept[slot] = {leaf: now[leaf] for leaf in leaves}
                held[slot] = {leaf: old.get(leaf, np.zeros_like(now[leaf])) for leaf in leaves}
        before_, grads_, after_ = ({leaf: one[leaf] for leaf in leaves} for one in (ends[0], grads, ends[1]))
        found.append(SeenUpdate(step, before_, grads_, after_, held, kept))
    return found


def without(update: SeenUpdate, leaves: Collection[str]) -> SeenUpdate:
    """Return an update without some leaves."""

    def cut(held: LeafArrays) -> LeafArrays:
        return {leaf: one for leaf, one in held.items() if leaf not in leaves}

    held, kept = ({slot: cut(one) for slot, one in each.items()} for each in (update.held, update.kept))
    return SeenUpdate(update.at, cut(update.before), cut(update.gradient), cut(update.after), held, kept)


def decays_of(update: SeenUpdate, leaves: Sequence[str]) -> list[list[NDArray[np.float64]]]:
    """Return what a decay that is added to a gradient may add: nothing, all parameters, or those of matrices.

    Returns:
        Columns of the size of all leaves for each of these, the plainest first.
    """
    whole = joined(update.before, leaves)
    flat = {leaf: update.before[leaf] * (update.before[leaf].ndim > 1) for leaf in leaves}
    matrices = joined(flat, leaves)
    found: list[list[NDArray[np.float64]]] = [[]]
    if np.any(whole):
        found.append([whole])
    if np.any(matrices) and not np.array_equal(matrices, whole):
        found.append([matrices])
    return found


def gradient_at(lane: Lane, step: int) -> LeafArrays:
    """Return the gradient of a run's own loss at its values before a step, on the batch of that step."""
    if step not in lane.gradients:
        values = lane.moments[step].slots[MODEL]
        lane.gradients[step] = lane.trainer.probe.loss(values, lane.trainer.batch(step)).gradients
    return lane.gradients[step]
