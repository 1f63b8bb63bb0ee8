"""What two momenta take of the gradient, at the first update and at later ones: dampening, and averages.

A momentum that holds half of the other's gradient after the first update is no evidence that gradients were halved:
PyTorch's SGD takes the first gradient whole and dampens later ones, and an average takes one less what it keeps. Only
the updates that follow tell these from a scale of the gradient itself.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from parity.checks.proving.effective import FEWEST, MomentShares, TakenParts, fitted, one_value
from parity.checks.proving.lockstep import MODEL, Lane
from parity.checks.proving.seen import gradient_at
from parity.checks.proving.slots import LeafArrays
from parity.checks.proving.walk import TwoWalks

__all__ = ["momentum_cause", "scaled_gradients", "second_update_cause", "shares_of"]

FIT = 1e-7
"""How far a moment may be from what its shares give, relative to its largest element."""

SAME = 1e-6
"""Relative distance within which two shares are one."""

SMALLEST = 0.4
"""Share of the elements that is looked at where the smallest alone are."""

FEWEST_BELOW = 10
"""Elements that must be left where the smallest alone are looked at."""


def shares_of(lane: Lane, slot: str, at: int, *, power: int = 1, below: bool = False) -> MomentShares | None:
    """Return what a moment keeps of itself and takes of the gradient; None where these do not make it.

    Args:
        lane: A run.
        slot: Of its state.
        at: The update, at least 2.
        power: Of the gradient: 2 for a second moment.
        below: Whether those elements alone are looked at whose gradients are smallest: where elements are
            clipped one by one, these show what a moment keeps.

    Numerics: a fit by least squares to the moment before, the gradient and the parameters (decay that is added to the
    gradient), within 1e-7 of the largest element.
    """
    if len(lane.moments) <= at or any(slot not in lane.moments[n].slots for n in (at - 1, at)):
        return None
    old, new = lane.moments[at - 1].slots[slot], lane.moments[at].slots[slot]
    values = lane.moments[at - 1].slots[MODEL]
    gradients = gradient_at(lane, at - 1)
    leaves = [leaf for leaf in new if leaf in old and leaf in gradients and leaf in values and np.any(old[leaf])]
    if not leaves:
        return None
    columns = [np.concatenate([one[leaf].ravel() for leaf in leaves]) for one in (old, gradients, values)]
    columns[1] = columns[1] ** power
    made = np.concatenate([new[leaf].ravel() for leaf in leaves])
    if not all(np.isfinite(one).all() for one in (*columns, made)):
        return None
    if below:
        small = np.abs(columns[1]) <= np.quantile(np.abs(columns[1]), SMALLEST)
        columns, made = [one[small] for one in columns], made[small]
        if made.size < FEWEST_BELOW:
            return None
    for count in (2, 3)[: 3 - power]:  # without decay where that is enough
        if (parts := fitted(columns[:count], made, FIT)) is not None:
            return MomentShares(parts[0], parts[1])
    return _beside_plain_leaves(new, (old, gradients, values), leaves) if power == 1 and not below else None


def _beside_plain_leaves(
    new: LeafArrays, given: Sequence[LeafArrays], leaves: Sequence[str]
) -> MomentShares | None:  # fmt: skip
    """Return the shares of a moment of which some leaves alone have decay that is added to the gradient.

    Args:
        new: What it holds.
        given: What it held, the gradient, and the parameters.
        leaves: Those that are looked at; of few elements any shares make one.
    """

    def of(some: Sequence[str], count: int) -> tuple[float, ...] | None:
        columns = [np.concatenate([np.asarray(one[leaf]).ravel() for leaf in some]) for one in given[:count]]
        return fitted(columns, np.concatenate([np.asarray(new[leaf]).ravel() for leaf in some]), FIT)

    several = [leaf for leaf in leaves if np.size(new[leaf]) > FEWEST]
    plain = [leaf for leaf in several if of([leaf], 2) is not None]
    decayed = [leaf for leaf in several if leaf not in plain]
    if not plain or not decayed:
        return None
    one, two = of(plain, 2), of(decayed, 3)
    if one is None or two is None or any(abs(a - b) > SAME * abs(a) for a, b in zip(one[:2], two[:2], strict=True)):
        return None
    return MomentShares(one[0], one[1])


def momentum_cause(walk: TwoWalks, here: TakenParts, there: TakenParts) -> str:
    """Return that two momenta weigh gradients otherwise, which are the same; empty where nothing shows that.

    Args:
        walk: Two trainers after their first updates.
        here: What the trainer's momentum holds after the first update.
        there: The port's.
    """
    if here.square or there.square:
        return ""  # beside a second moment the betas tell it
    firsts = [one_value(_of_several(one), SAME) for one in (here, there)]
    steady = [_steady(walk.lanes[at], one.slot) for at, one in ((0, here), (1, there))]
    if None in firsts or None in steady:
        return ""
    (a, b), (one, two) = firsts, steady
    assert a is not None
    assert b is not None
    assert one is not None
    assert two is not None
    begins = [first / share.taken if share.taken else 0.0 for first, share in ((a, one), (b, two))]
    if not _same(*begins):
        # dampening leaves the first gradient whole; what is clipped at the first update alone looks much like it
        if not all(_same(start, 1.0) or _same(first, 1.0) for start, first in zip(begins, (a, b), strict=True)):
            return ""
        words = [f"{first:.6g} of the first gradient and {share.taken:.6g} of later ones"
                 for first, share in ((a, one), (b, two))]  # fmt: skip
        return f"momentum: it takes {words[0]} here, {words[1]} there (dampening, or where it begins)"
    for who, mean, full in (("the port", two, one), ("the trainer", one, two)):
        if _same(mean.kept, full.kept) and _same(mean.taken, (1.0 - mean.kept) * full.taken) and mean.kept:
            shown = [f"{share.kept:.6g} of itself and {share.taken:.6g} of the gradient" for share in (one, two)]
            return (
                f"momentum: it is {shown[0]} here, {shown[1]} there: {who} keeps an average of gradients, the other "
                "a sum (or the gradients themselves are scaled by as much)"
            )
    if not _same(one.kept, two.kept) and not _same(one.taken, two.taken):
        shown = [f"{share.kept:.6g} of itself and {share.taken:.6g} of the gradient" for share in (one, two)]
        return f"momentum: it is {shown[0]} here, {shown[1]} there"
    return ""


def second_update_cause(walk: TwoWalks) -> str:
    """Return what two momenta keep of themselves and take of the gradient, where they are one after one update.

    Args:
        walk: Two trainers whose models part after the second update.
    """
    if walk.done != 2 or walk.what != MODEL:
        return ""
    for slot, (since, gap) in walk.suspects.items():
        if since != 2 or not gap.other or gap.other == MODEL:
            continue
        one, two = (_steady(lane, name) for lane, name in zip(walk.lanes, (slot, gap.other), strict=False))
        if one is None or two is None:
            # where gradients are clipped by their norm, what is taken of them changes, and what is kept does not
            one, two = (shares_of(lane, name, 2) for lane, name in zip(walk.lanes, (slot, gap.other), strict=False))
            if one is not None and two is not None and _same(one.taken, two.taken) and not _same(one.kept, two.kept):
                return f"momentum: at the second update it keeps {one.kept:.6g} of itself here, {two.kept:.6g} there"
            continue
        if _same(one.kept, two.kept) and _same(one.taken, two.taken):
            continue
        shown = [f"{share.kept:.6g} of itself and {share.taken:.6g} of the gradient" for share in (one, two)]
        return f"momentum: from the second update on it is {shown[0]} here, {shown[1]} there"
    return ""


def scaled_gradients(walk: TwoWalks, here: TakenParts, there: TakenParts, ratio: float) -> bool:
    """Return whether gradients themselves are scaled by a ratio, and not what the moments take of them.

    Args:
        walk: Two trainers after their first updates.
        here: What the trainer's first moment holds after the first update.
        there: The port's.
        ratio: Of the port's first moment to the trainer's.
    """
    if here.square and there.square:
        # a second moment of the same part of the squared first one: equal betas, and what they take is scaled
        squares = one_value({leaf: there.square[leaf] / part for leaf, part in here.square.items()
                             if part and leaf in there.square})  # fmt: skip
        return squares is not None and _same(squares, 1.0)
    one, two = (_steady(walk.lanes[at], taken.slot) for at, taken in ((0, here), (1, there)))
    return one is not None and two is not None and _same(one.kept, two.kept) and _same(two.taken, ratio * one.taken)


def _of_several(taken: TakenParts) -> dict[str, float]:
    return {leaf: part for leaf, part in taken.gradient.items() if part and leaf not in taken.loose}


def _steady(lane: Lane, slot: str) -> MomentShares | None:
    """Return the shares that a moment has at each later update; None where they change, as under clipping by norm."""
    found = [one for at in (2, 3) if len(lane.moments) > at for one in (shares_of(lane, slot, at),)]
    first = found[0] if found else None
    if first is None or any(one is None or not _same(one.taken, first.taken) for one in found):
        return None
    return first


def _same(one: float, two: float) -> bool:
    return abs(one - two) <= SAME * max(abs(one), abs(two))
