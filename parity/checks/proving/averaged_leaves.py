"""Leaves of which two averages are taken by other decays, the rest alike: one that is a copy, or does not move."""

from __future__ import annotations

import numpy as np

from parity.checks.proving.averages import share_of
from parity.checks.proving.lockstep import MODEL, LeafSlots
from parity.checks.proving.slots import LeafArrays, names_of
from parity.checks.proving.walk import TwoWalks

__all__ = ["averaged_leaves_cause"]

SAME = 1e-6
"""Relative distance of two shares that count as one."""

FEWEST = 3
"""Elements from which a leaf shows a share: any one number is a share of any way."""


def averaged_leaves_cause(walk: TwoWalks) -> str:
    """Return the leaves on which two averages of the parameters have other decays; empty where all or none differ.

    Each leaf of both must go a share of its way to the parameters by itself, at the update after which they part.

    Args:
        walk: Two trainers of which an average parts.
    """
    found = walk.suspects.get(walk.what)
    if found is None or walk.done < 1 or not found[1].other:
        return ""
    over, done = walk.pairing.over, walk.done
    sides = []
    for at, slot in ((0, walk.what), (1, found[1].other)):
        before, after = (walk.lanes[at].moments[n].slots for n in (done - 1, done))
        if slot not in before or slot not in after:
            return ""
        ends: list[LeafArrays] = [before[slot], after[slot], _params(after, slot)]
        sides.append(_shares(*(over(one) if at == 0 else one for one in ends)))
    here, there = sides
    if here is None or there is None or here.keys() != there.keys():
        return ""
    # running statistics are copied as they are, by any average: that they agree says nothing of the others
    here = {leaf: share for leaf, share in here.items() if leaf not in walk.pairing.subjects.second.statistics}
    other = [leaf for leaf, share in here.items() if abs(share - there[leaf]) > SAME * max(share, there[leaf])]
    if not other or len(other) == len(here):
        return ""
    kinds = {(f"{1 - here[leaf]:.6g}", f"{1 - there[leaf]:.6g}") for leaf in other}
    if len(kinds) != 1:
        return ""
    decays = [abs(float(one)) for one in next(iter(kinds))]
    words = [f"{one:.6g}" + (" (a copy of the parameters)" if one == 0.0 else " (it stays)" if one == 1.0 else "")
             for one in decays]  # fmt: skip
    return f"EMA: of {names_of(other)} alone its decay is {words[0]} here, {words[1]} there at update {done}"


def _params(slots: LeafSlots, slot: str) -> LeafArrays:
    return {leaf: one for leaf, one in slots[MODEL].items() if leaf in slots[slot]}


def _shares(before: LeafArrays, after: LeafArrays, model: LeafArrays) -> dict[str, float] | None:
    """Return the share of the way to the parameters that each leaf has gone; None where one has gone another way."""
    found = {}
    for leaf, now in after.items():
        if now.size < FEWEST or leaf not in before or leaf not in model or np.array_equal(model[leaf], before[leaf]):
            continue
        share = share_of({leaf: before[leaf]}, {leaf: now}, {leaf: model[leaf]})
        if share is None:
            return None
        found[leaf] = float(share)
    return found
