"""What averages of the parameters in two states differ in: their decay, when they begin, and what is set from them.

A slot that stands still may begin to follow later, and an average that is a copy once may be what the parameters were
set from: the shares of single updates are told apart before a decay is named.
"""

from __future__ import annotations

import numpy as np

from parity.checks.proving.averaged_leaves import averaged_leaves_cause
from parity.checks.proving.averages import Average, average_of
from parity.checks.proving.lockstep import MODEL, Lane
from parity.checks.proving.walk import TwoWalks

__all__ = ["average_cause"]

SAME = 1e-6
"""Relative distance of two shares that count as one."""

NEAR = 0.1
"""How far from the model a slot may begin that is taken for one that follows it: moments begin at zero."""

Averages = dict[str, Average]


def average_cause(walk: TwoWalks) -> str:
    """Return what two averages of the parameters differ in; empty where there is none in either state."""
    if walk.what == MODEL and (cause := _set_from_average(walk)):
        return cause
    # each by its own updates, those made ahead too: an average of what was before has not moved after the first
    here, there = (
        {
            s: one
            for s in lane.moments[walk.done].slots
            if s != MODEL and (one := average_of(lane, s, len(lane.moments) - 1))
        }
        for lane in walk.lanes[:2]
    )
    # an average that is a copy yet equals the other's model itself: that is no average of the other
    here = {s: one for s, one in here.items() if walk.matched.get(s, MODEL) == MODEL}
    taken = set(walk.matched.values())
    there = {s: one for s, one in there.items() if s not in taken}
    if cause := averaged_leaves_cause(walk):
        return cause
    if bool(here) != bool(there):
        return _one_alone(walk, here, there)
    if not here:
        return ""
    (slot, one), (other, two) = next(iter(here.items())), next(iter(there.items()))
    if one.late != two.late:
        words = ("before", "after") if one.late else ("after", "before")
        return f"EMA: taken {words[0]} the update here, {words[1]} it there"
    return _shares_cause(walk, (slot, other), one, two)


def _shares_cause(walk: TwoWalks, slots: tuple[str, str], one: Average, two: Average) -> str:
    """Return at which update two averages move by other shares of the way."""
    # the last updates of both are the same ones; a slot that is made at the first update has one share less
    count = min(len(one.shares), len(two.shares))
    shares = list(zip(one.shares[-count:], two.shares[-count:], strict=True))
    last = len(walk.lanes[0].moments) - 1
    for at, (x, y) in enumerate(shares, last - count + 1):
        if abs(x - y) <= SAME * max(abs(x), abs(y)):
            continue
        if walk.what in (MODEL, "loss") and at >= walk.done:
            return ""  # what follows the parameters from where they parted is no cause of it
        if not (x and y):
            who, other = ("here", "there") if x else ("there", "here")
            return (
                f"EMA: {slots[not x]} moves at update {at} {who}, {slots[bool(x)]} does not {other}: it begins at "
                "another update, or moves at others"
            )
        steady = all(max(each) - min(each) <= SAME * max(each) for each in (one.shares, two.shares))
        when = "" if steady else f" at update {at}"
        return f"EMA: decay {1 - x:.6g} here, {1 - y:.6g} there{when}"
    begins = [_from_model(lane, slot) for lane, slot in zip(walk.lanes, slots, strict=False)]
    zeros = [_from_zero(lane, slot) for lane, slot in zip(walk.lanes, slots, strict=False)]
    if walk.what in slots and zeros[0] != zeros[1] and begins[zeros[0]] == 0.0:
        words = [("here", "there"), ("there", "here")][not zeros[0]]
        return f"EMA: the average begins at zero {words[0]}, as a copy of the parameters {words[1]}"
    # both follow their own parameters alike: where these or the losses part, that is no cause of it
    return "EMA: both move alike, from other values" if walk.what in slots else ""


def _one_alone(walk: TwoWalks, here: Averages, there: Averages) -> str:
    """Return that one state alone has an average, or that the other's does not move yet."""
    at = 0 if here else 1
    slot, one = next(iter((here or there).items()))
    moved = [n for n in range(1, len(walk.lanes[at].moments)) if _moves(walk.lanes[at], slot, n)]
    if walk.what == "loss" or (walk.what == MODEL and not _is_set(walk.lanes[at], slot, walk.done)):
        return ""  # an average that nothing is set from moves no parameter
    kept = _still_copies(walk, 1 - at)
    names = (("the trainer", "the port"), ("the port", "the trainer"))[at]
    if kept and moved:
        return (
            f"EMA: {slot} of {names[0]} follows the parameters, at update {moved[0]} first, and {kept[0]} of "
            f"{names[1]}, which begins as a copy of them, has not moved by update "
            f"{len(walk.lanes[1 - at].moments) - 1}: it begins later, or never moves"
        )
    if _has_other(walk, 1 - at):
        return ""  # what is kept there may be an average of another kind
    if here:
        return f"EMA absent: {slot} is an average of the parameters (decay {one.decay:.6g}), and the port keeps none"
    return (
        f"EMA absent: the port's {slot} is an average of the parameters (decay {one.decay:.6g}), the trainer has none"
    )


def _unmatched(walk: TwoWalks, at: int) -> list[str]:
    """Return slots of one state that equal none of the other and have all leaves of the model."""
    taken = {s for s, other in walk.matched.items() if other != MODEL} if at == 0 else set(walk.matched.values())
    slots = walk.lanes[at].moments[walk.done].slots
    leaves = walk.lanes[at].trainer.model.leaves.keys() - walk.lanes[at].trainer.model.statistics
    return [slot for slot, held in slots.items() if slot not in (MODEL, *taken) and leaves <= held.keys()]


def _still_copies(walk: TwoWalks, at: int) -> list[str]:
    """Return slots that begin as the model's values and have not moved."""
    lane = walk.lanes[at]
    return [
        slot
        for slot in _unmatched(walk, at)
        if _from_model(lane, slot) == 0.0 and not any(_moves(lane, slot, n) for n in range(1, len(lane.moments)))
    ]


def _has_other(walk: TwoWalks, at: int) -> bool:
    """Return whether a state has a slot near the model's first values that equals nothing of the other."""
    return any(_from_model(walk.lanes[at], slot) <= NEAR for slot in _unmatched(walk, at))


def _from_model(lane: Lane, slot: str) -> float:
    """Return how far a slot first was from the model at the start, relative to its largest element.

    What is the very arrays of the model at the start, as in a state of JAX, is a slot of its own after one update.
    """
    first = next((moment.slots[slot] for moment in lane.moments if slot in moment.slots), {})
    start = lane.moments[0].slots[MODEL]
    leaves = [leaf for leaf in first if leaf in start]
    if not leaves or len(leaves) < len(first):
        return float("inf")
    a, b = (np.concatenate([held[leaf].ravel() for leaf in leaves]) for held in (first, start))
    return float(np.abs(a - b).max()) / max(float(np.abs(b).max()), 1e-300)


def _from_zero(lane: Lane, slot: str) -> bool:
    """Return whether a slot begins as zeros, and is no copy of parameters that are zeros themselves."""
    first = lane.moments[0].slots.get(slot, {})
    return bool(first) and not any(np.any(one) for one in first.values())


def _moves(lane: Lane, slot: str, at: int) -> bool:
    """Return whether a slot moved at an update."""
    before, after = (lane.moments[n].slots.get(slot, {}) for n in (at - 1, at))
    return any(leaf in before and not np.array_equal(one, before[leaf]) for leaf, one in after.items())


def _set_from_average(walk: TwoWalks) -> str:
    """Return that parameters are set from a slot that follows them, as a Lookahead does, by another way.

    Where the first moves of the parameters part it is not asked: an average may be a copy of them then.
    """
    done = walk.done
    if done < 2:
        return ""
    homes = [[s for s in walk.lanes[at].moments[done].slots if s != MODEL and _is_set(walk.lanes[at], s, done)]
             for at in (0, 1)]  # fmt: skip
    if len(homes[0]) > 1 or len(homes[1]) > 1 or not any(homes):
        return ""
    over = walk.pairing.over
    if homes[0] and homes[1]:
        slots = homes[0][0], homes[1][0]
        ends = [[lane.moments[n].slots[slot] for n in (done - 1, done)]
                for lane, slot in zip(walk.lanes, slots, strict=False)]  # fmt: skip
        before, after = (over(one) for one in ends[0])
        leaves = [leaf for leaf in after if leaf in ends[1][1]]
        if not leaves:
            return ""
        a = np.concatenate([(after[leaf] - before[leaf]).ravel() for leaf in leaves])
        b = np.concatenate([(ends[1][1][leaf] - ends[1][0][leaf]).ravel() for leaf in leaves])
        factor = float(a @ b) / float(a @ a)
        if a.size < 8 or float(np.abs(b - factor * a).max()) > SAME * float(np.abs(b).max()):
            return ""
        return (
            f"lookahead: at update {done} the parameters are {slots[0]} itself here and {slots[1]} there, which "
            f"moves {factor:.6g} times as far there: another share of the way to the parameters"
        )
    at = 0 if homes[0] else 1
    slot = homes[at][0]
    same = (
        walk.matched.get(slot) if at == 0 else next((s for s, other in walk.matched.items() if other == slot), None)
    )
    if same is None or same == MODEL:
        return ""
    words = ("here", "there") if at == 0 else ("there", "here")
    return f"lookahead: after update {done} the parameters are {slot} itself {words[0]}, {words[1]} they are not"


def _is_set(lane: Lane, slot: str, done: int) -> bool:
    """Return whether a slot moves at an update and is the parameters after it, which it was not before."""
    before, after = lane.moments[done - 1].slots, lane.moments[done].slots
    params = after[MODEL].keys() - lane.trainer.model.statistics
    held = after[slot]
    if slot not in before or not params <= held.keys() or not _moves(lane, slot, done):
        return False
    return all(np.array_equal(held[leaf], after[MODEL][leaf]) for leaf in params) and not all(
        np.array_equal(before[slot].get(leaf, np.nan), before[MODEL][leaf]) for leaf in params
    )
