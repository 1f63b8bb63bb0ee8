"""Causes that single slots tell: leaves that one does not train, where a slot begins, a largest second moment."""

from __future__ import annotations

import itertools

import numpy as np
from numpy.typing import NDArray

from parity.checks.proving.lockstep import MODEL
from parity.checks.proving.slots import names_of
from parity.checks.proving.walk import TwoWalks, go_on

__all__ = ["begin_cause", "frozen_cause", "largest_cause", "largest_slot"]


def frozen_cause(walk: TwoWalks) -> str:
    """Return the leaves that the first update moves in one alone, though a gradient reaches them.

    Decay moves a leaf without a gradient too: such a leaf is no evidence. Where all of one stays, its rate may be 0.
    """
    lanes, over = walk.lanes[:2], walk.pairing.over
    start = lanes[0].moments[0].slots[MODEL]
    gradients = over(lanes[0].trainer.probe.loss(start, lanes[0].trainer.batch(0)).gradients, grads=True)
    before = over(start)
    after = over(lanes[0].moments[1].slots[MODEL]), lanes[1].moments[1].slots[MODEL]
    moved = [{leaf for leaf in gradients if not np.array_equal(one[leaf], before[leaf])} for one in after]
    if not moved[0] & moved[1]:
        return ""
    largest = max((float(np.abs(grad).max(initial=0.0)) for grad in gradients.values()), default=0.0)
    for who, other, still in (("the port", "the trainer", moved[0] - moved[1]),
                              ("the trainer", "the port", moved[1] - moved[0])):  # fmt: skip
        leaves = [leaf for leaf in gradients if leaf in still
                  and float(np.abs(gradients[leaf]).max(initial=0.0)) > 1e-9 * largest]  # fmt: skip
        if leaves and (cause := _later_cause(walk, who, other, leaves)):
            return cause
        if leaves:
            more = f" and {len(leaves) - 3} more" if len(leaves) > 3 else ""
            return f"frozen: {who} does not move {', '.join(leaves[:3])}{more}, {other} does"
    return ""


def _later_cause(walk: TwoWalks, who: str, other: str, leaves: list[str]) -> str:
    """Return that leaves which stay at the first update move at a later one: they are not frozen."""
    at = 1 if who == "the port" else 0
    lane = walk.lanes[at]

    def moves() -> dict[int, list[str]]:
        found: dict[int, list[str]] = {}
        for done in range(2, len(lane.moments)):
            old, now = (lane.moments[n].slots.get(MODEL, {}) for n in (done - 1, done))
            old, now = (walk.pairing.over(one) if at == 0 and one else one for one in (old, now))
            if old and now:
                found[done] = [leaf for leaf in leaves if not np.array_equal(old[leaf], now[leaf])]
        return found

    moved = moves()
    if not any(moved.values()):
        go_on(walk)
        moved = moves()
    first = min((done for done, those in moved.items() if those), default=0)
    if not first:
        return ""
    when = "its first update" if first == 2 else f"its first {first - 1} updates"
    kept = [slot for slot, held in lane.moments[1].slots.items() if slot != MODEL and any(
            leaf in held and np.any(held[leaf]) for leaf in leaves)] if at else []  # fmt: skip
    held = ", its moments take their gradients" if kept else ""
    return (
        f"learning rate of the first update: 0 for {names_of(leaves)} in {when} of {who}{held}, which moves them "
        f"from update {first} on; {other} moves them at the first (a warm-up from 0, or leaves that are freed later)"
    )


def begin_cause(walk: TwoWalks) -> str:
    """Return a slot that begins at one number in the one and at another in the other, such as a sum of squares."""
    for slot, (_, gap) in walk.suspects.items():
        here, there = (
            lane.moments[0].slots.get(name, {}) for lane, name in zip(walk.lanes, (slot, gap.other), strict=False)
        )
        a, b = (_constant(list(held.values())) for held in (here, there))
        if a is not None and b is not None and a != b and (a != 0.0) != (b != 0.0):
            return f"state: {slot} begins at {a:.6g} here, {gap.other} at {b:.6g} there"
    return _begun_lazily(walk)


def _begun_lazily(walk: TwoWalks) -> str:
    """Return a slot that begins at a number in one, where the other has none before its first update.

    Both keep a share of themselves and add the same, so after one update they differ by one number everywhere. A slot
    may be called by another group of leaves at another update: it is known by what it holds.
    """
    if not all(len(lane.moments) > 1 for lane in walk.lanes[:2]):
        return ""
    own = {slot: walk.pairing.over(held) for slot, held in walk.lanes[0].moments[1].slots.items()}
    after = own, walk.lanes[1].moments[1].slots
    for at, who, side, other in ((1, "port", "there", "here"), (0, "trainer", "here", "there")):
        held = walk.lanes[at].moments[0].slots
        numbers = {n for slot, one in held.items() if slot != MODEL and (n := _constant(list(one.values())))}
        for slot, lazy in itertools.product(after[at], after[1 - at]) if numbers else ():
            mine, theirs = after[at][slot], after[1 - at][lazy]
            if MODEL in (slot, lazy) or mine.keys() != theirs.keys():
                continue
            one, two = (np.concatenate([held[leaf].ravel() for leaf in mine]) for held in (mine, theirs))
            apart = one - two
            if np.ptp(two) and apart[0] and np.ptp(apart) <= 1e-9 * abs(apart[0]):
                began = next((n for n in sorted(numbers, key=abs) if 0.0 < apart[0] / n <= 1.0), None)
                if began is not None:
                    return f"state: {slot} of the {who} begins at {began:.6g} {side}, {lazy} at 0 {other}"
    return ""


def _constant(arrays: list[NDArray[np.float64]]) -> float | None:
    """Return the number that all arrays hold everywhere; None where they do not."""
    values = np.concatenate([array.ravel() for array in arrays]) if arrays else np.zeros(0)
    return float(values[0]) if values.size and not np.ptp(values) else None


def largest_cause(walk: TwoWalks) -> str:
    """Return that one divides by the largest second moment so far, told by a slot that is the maximum of another."""
    sides = [largest_slot(walk, at) for at in (0, 1)]
    if sides[0] and sides[1]:
        corrected = [bool(side[2]) for side in sides if side]
        if corrected[0] == corrected[1]:
            return ""
        words = ["of the corrected one" if one else "of the second moment as it is" for one in corrected]
        return f"AMSGrad: the largest {words[0]} so far here, {words[1]} there (before or after the bias correction)"
    for who, other, found, slots in (("the trainer", "the port", sides[0], walk.suspects.keys()),
                                     ("the port", "the trainer", sides[1], walk.extra)):  # fmt: skip
        if found and found[0] in slots:
            return (
                f"AMSGrad: {found[0]} of {who} is the largest {found[1]} so far, and nothing in the state of "
                f"{other} equals it"
            )
    return ""


def largest_slot(walk: TwoWalks, at: int) -> tuple[str, str, bool] | None:
    """Return the slot of a state that is the largest of another so far, which, and whether that is scaled first."""
    moments = walk.lanes[at].moments
    now, before = moments[walk.done].slots, moments[walk.done - 1].slots
    for slot in (one for one in now if one != MODEL):
        for second in (one for one in now if one not in (MODEL, slot)):
            leaves = [leaf for leaf in now[slot] if leaf in now[second] and leaf in before.get(slot, {})]
            if not leaves:
                continue
            held, old, made = (np.concatenate([one[leaf].ravel() for leaf in leaves])
                               for one in (now[slot], before[slot], now[second]))  # fmt: skip
            if np.array_equal(held, np.maximum(old, made)) and not np.array_equal(held, made):
                return slot, second, False
            grown = (held > old) & (made > 0.0)
            if int(grown.sum()) < 4 or grown.all() or not np.array_equal(held[~grown], old[~grown]):
                continue
            factor = float(np.median(held[grown] / made[grown]))
            close = np.abs(held - np.maximum(old, factor * made)) <= 1e-12 * np.abs(held).max()
            if factor > 1.0 + 1e-9 and close.all():
                return slot, second, True
    return None
