"""Averages that are a part of the model itself, such as a target network: which leaves follow which, and how fast.

Their leaves move though no gradient reaches them: each goes a share of the way to another leaf of its shape. Where
they alone part, that share is what differs, or whether the leaf that is followed has made the update already.
"""

from __future__ import annotations

import numpy as np

from parity.checks.proving.averages import share_of
from parity.checks.proving.effective import one_value
from parity.checks.proving.lockstep import MODEL
from parity.checks.proving.slots import LeafArrays, names_of
from parity.checks.proving.walk import TwoWalks

__all__ = ["inner_average_cause"]

FEWEST = 8
"""Numbers from which a leaf shows what it follows: any move of one is a share of any way."""

Followed = tuple[str, bool, float]
"""The leaf that is followed, whether before the update, and the share of the way to it."""


def inner_average_cause(walk: TwoWalks) -> str:
    """Return how fast leaves of the model follow others of it, where these alone part; empty where others part too.

    Args:
        walk: Two trainers up to the update after which the model parts.
    """
    if walk.what != MODEL or walk.gap is None:
        return ""
    done, over = walk.done, walk.pairing.over
    before = over(walk.lanes[0].moments[done - 1].slots[MODEL])
    after = over(walk.lanes[0].moments[done].slots[MODEL]), walk.lanes[1].moments[done].slots[MODEL]
    # a single number may follow any other: the leaves of more than one tell what they follow
    parted = [leaf for leaf in walk.gap.leaves if before[leaf].size > 1]
    if cause := _stays_cause(walk, parted, before, after):
        return cause
    found: list[tuple[str, Followed, Followed]] = []
    for leaf in parted:
        others = _others(walk, leaf, before)
        ways = ([_followed(leaf, one, before, end) for end in after] for one in others)
        fits = [(one, two) for one, two in ways if one is not None and two is not None]
        if len(fits) != 1:
            return ""
        found.append((leaf, *fits[0]))
    if sum(before[leaf].size for leaf in parted) < FEWEST:
        return ""
    sides = [{leaf: pair[at] for leaf, *pair in found} for at in (0, 1)]
    shares = [one_value({leaf: one[2] for leaf, one in side.items()}, 1e-6) for side in sides]
    late = [{one[1] for one in side.values()} for side in sides]
    if None in shares or any(len(one) != 1 for one in late):
        return ""
    leaves, source = names_of([one[0] for one in found]), found[0][1][0]
    if late[0] != late[1]:
        words = [f"{'before' if True in one else 'after'} its update" for one in late]
        return f"EMA: {leaves} follow other leaves, such as {source}, {words[0]} here, {words[1]} there"
    return (
        f"EMA: {leaves} go {shares[0]:.6g} of the way to other leaves, such as {source}, here, {shares[1]:.6g} there "
        f"at update {done}"
    )


def _others(walk: TwoWalks, leaf: str, before: LeafArrays) -> list[str]:
    """Return the leaves that one may follow: those of its shape that do not part."""
    parted = walk.gap.leaves if walk.gap else ()
    return [one for one in before if one not in parted and before[one].shape == before[leaf].shape]


def _stays_cause(walk: TwoWalks, parted: list[str], before: LeafArrays, after: tuple[LeafArrays, LeafArrays]) -> str:
    """Return that in one the leaves stay where what they follow in the other was before its update.

    To follow that before its update, and not to follow it at all, are the same there.
    """
    for at, (who, other) in ((0, ("the trainer", "the port")), (1, ("the port", "the trainer"))):
        sources = []
        for leaf in parted:
            if share_of({leaf: before[leaf]}, {leaf: after[at][leaf]}, {leaf: before[leaf]}) is None:
                break  # it moves
            fits = [one for one in _others(walk, leaf, before) if np.array_equal(before[one], before[leaf])
                    and _followed(leaf, one, before, after[1 - at])]  # fmt: skip
            if len(fits) != 1:
                break
            sources += fits
        if sources and len(sources) == len(parted) and sum(before[leaf].size for leaf in parted) >= FEWEST:
            return (
                f"EMA: in {who} {names_of(parted)} stay at update {walk.done}, where {names_of(sources)} were before "
                f"it: they follow those before their update, or not at all; in {other} they follow them after it"
            )
    return ""


def _followed(leaf: str, source: str, before: LeafArrays, after: LeafArrays) -> Followed | None:
    """Return how a leaf follows another; None where it does not."""
    for late, held in ((False, after), (True, before)):
        share = share_of({leaf: before[leaf]}, {leaf: after[leaf]}, {leaf: held[source]})
        if share is not None and 0.0 < share < 1.0 and np.ptp(after[leaf] - before[leaf]):
            return source, late, share
    return None
