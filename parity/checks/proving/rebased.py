"""Walks as seen from a later update on: that at which gradients first part, as where a clipping begins to act there.

Both runs are at one point before it, their moments too. What these held by then is taken off, as much as each keeps
of itself, so that they hold what they would have begun with there; causes of first updates are looked for once more.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

import numpy as np

from parity.checks.proving.bias_forms import both_at
from parity.checks.proving.effective import one_value
from parity.checks.proving.lockstep import MODEL, Lane, SlotMoment
from parity.checks.proving.momentum_causes import shares_of
from parity.checks.proving.move_forms import move_form
from parity.checks.proving.slots import LeafArrays
from parity.checks.proving.sources import PortTrainer
from parity.checks.proving.walk import TwoWalks, go_on

__all__ = ["rebased_walk"]

SAME = 1e-6
"""Relative distance of two shares that are one."""


def rebased_walk(walk: TwoWalks, first: int) -> TwoWalks | None:
    """Return a walk whose first update is a later one; None where what the moments keep is not known.

    Args:
        walk: Two trainers that part at that update or after it.
        first: The update that becomes the first one, at least 2.
    """
    if min(len(lane.moments) for lane in walk.lanes[:2]) < first + 2:
        go_on(walk)  # it drops what other causes are read off, and is not asked for where two updates are there
    kept = [_kept(walk, at) for at in (0, 1)]
    if any(not lane.moments[first - 1].slots for lane in walk.lanes[:2]):
        return None
    held = walk.lanes[0].moments[0].slots
    moments = {slot: one for slot, one in walk.suspects.items() if not _begun(held.get(slot, {}))}
    for slot, (_, gap) in moments.items():
        # a run whose gradients are clipped one by one shows no share: that of the other is tried, forms have to fit
        one, two = kept[0].get(slot), kept[1].get(gap.other)
        one, two = two if one is None else one, one if two is None else two
        if one is None or two is None or abs(one - two) > SAME * abs(one):
            return None  # what is kept of a moment differs itself, or is not known
        kept[0][slot], kept[1][gap.other] = one, two
    lanes = [_rebased(lane, first - 1, one) for lane, one in zip(walk.lanes, kept, strict=False)]
    suspects = {slot: (since - first + 1, gap) for slot, (since, gap) in moments.items() if since >= first}
    if len(suspects) < len(moments):
        return None
    steps = min(len(lane.moments) for lane in lanes) - 1  # no run goes on from here: its moments are others
    return replace(walk, lanes=lanes, done=walk.done - first + 1, steps=steps, suspects=suspects, given={})


def _kept(walk: TwoWalks, at: int) -> dict[str, float]:
    """Return slot to what it keeps of itself at each update, of moments of which an update shows that."""
    lane = walk.lanes[at]
    updates = [n for n in range(2, len(lane.moments)) if lane.moments[n].slots and lane.moments[n - 1].slots]
    found: dict[str, float] = {}
    form = move_form(walk, at)
    if form is not None and form.top and form.under:
        # after one update a second moment is a multiple of the squared first one, and the next tells no beta
        pairs = (both_at(lane, form.top, form.under, n) for n in reversed(updates) if n > 2)
        found |= dict(zip((form.top, form.under), next((pair for pair in pairs if pair), ()), strict=False))
    for slot in lane.moments[-1].slots:
        if slot == MODEL or slot in found or _begun(lane.moments[0].slots.get(slot, {})):
            continue
        for power, below in ((1, False), (2, False), (1, True)):
            shares = [shares_of(lane, slot, n, power=power, below=below) for n in updates]
            share = one_value({str(n): one.kept for n, one in enumerate(shares) if one and one.taken > 0.0}, SAME)
            if share is not None and 0.0 < share < 1.0:
                found[slot] = share
                break
    return found


def _begun(held: LeafArrays) -> bool:
    """Return whether a slot begins with values, as an average of the parameters does: that is no moment."""
    return any(np.any(one) for one in held.values())


def _rebased(lane: Lane, before: int, kept: dict[str, float]) -> Lane:
    """Return a run that begins after some updates, its moments from zero."""
    base = lane.moments[before].slots
    moments = [
        SlotMoment(one.loss, one.view, {
            slot: _less(held, base.get(slot, {}), kept[slot] ** n) if slot in kept else held
            for slot, held in one.slots.items()
        })
        for n, one in enumerate(lane.moments[before:])
    ]  # fmt: skip
    gradients = {step - before: one for step, one in lane.gradients.items() if step >= before}
    trainer = cast(PortTrainer, _LaterTrainer(lane.trainer, before))
    return replace(lane, trainer=trainer, moments=moments, gradients=gradients, kept=kept)


def _less(held: LeafArrays, base: LeafArrays, share: float) -> LeafArrays:
    return {leaf: one - share * base[leaf] if leaf in base else one for leaf, one in held.items()}


class _LaterTrainer:
    """A trainer whose batches begin with a later one; all else is the trainer's."""

    def __init__(self, trainer: PortTrainer, before: int) -> None:
        self.trainer, self.before = trainer, before

    def batch(self, step: int) -> Any:
        """Return the batch of a step, counted from the later update."""
        return self.trainer.batch(step + self.before)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.trainer, name)
