"""Lookaheads: at which updates the parameters are set from a slot that follows them.

A slot that equals the parameters after an update may be an average that is a copy yet: it is one that they are set
from where it was another one before an update, and is what they are after it.
"""

from __future__ import annotations

from parity.checks.proving.lockstep import MODEL, Lane
from parity.checks.proving.walk import TwoWalks, go_on

__all__ = ["lookahead_cause"]


def lookahead_cause(walk: TwoWalks) -> str:
    """Return that the parameters are set from a slot at the update at which two part in one of them alone.

    Args:
        walk: Two trainers whose models part after an update.
    """
    if walk.what != MODEL or not walk.lanes[0].moments[walk.done - 1].slots:
        return ""
    equal = [lane.equal_slots(walk.done) for lane in walk.lanes[:2]]
    if bool(equal[0]) == bool(equal[1]):
        return ""
    go_on(walk)
    at = 0 if equal[0] else 1
    slots = [slot for slot in equal[at] if any(lane_slot == slot for lane_slot in _set(walk.lanes[at]).values())]
    if not slots:
        return ""
    seen = [n for n in range(1, len(walk.lanes[0].moments)) if walk.lanes[0].moments[n - 1].slots]
    updates = [[n for n in _equal(lane) if n in seen] for lane in walk.lanes[:2]]
    if not _set(walk.lanes[1 - at]):
        updates[1 - at] = []
    shown = [f"at update {', '.join(map(str, each))}" if each else f"at none of updates {seen[0]} to {seen[-1]}"
             for each in updates]  # fmt: skip
    return f"lookahead: the parameters are set from {slots[0]} {shown[0]} here, {shown[1]} there"


def _kept(lane: Lane) -> list[int]:
    return [n for n in range(1, len(lane.moments)) if lane.moments[n].slots and lane.moments[n - 1].slots]


def _set(lane: Lane) -> dict[int, str]:
    """Return the updates at which the parameters are set from a slot, with that slot."""
    return {n: slot for n in _kept(lane) if (slot := lane.set_from(n))}


def _equal(lane: Lane) -> list[int]:
    """Return the updates after which a slot that moved is the parameters."""
    return [n for n in _kept(lane) if lane.equal_slots(n)]
