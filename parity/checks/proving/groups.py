"""Two walks seen at those leaves alone that part: one group of them may be moved by another rule than the others."""

from __future__ import annotations

from dataclasses import replace

from parity.checks.proving.lockstep import MODEL
from parity.checks.proving.slots import names_of
from parity.checks.proving.walk import TwoWalks

__all__ = ["of_group", "parted_group", "parted_leaves"]


def parted_group(walk: TwoWalks) -> TwoWalks | None:
    """Return a walk of the leaves that part alone; None where all do, or what parts is no model.

    Args:
        walk: Two trainers up to the update after which something parts.
    """
    theirs = parted_leaves(walk)
    every = set(walk.lanes[1].moments[0].slots.get(MODEL, {})) - _statistics(walk)
    if not theirs or not every - set(theirs):
        return None
    names = walk.pairing.names()
    mine = frozenset(one for leaf in theirs for one in names.get(leaf, "").split(" + "))
    return replace(walk, only=(mine, frozenset(theirs)), given={})


def of_group(walk: TwoWalks) -> str:
    """Return which leaves these are, as the end of a sentence."""
    return f" (of {names_of(parted_leaves(walk))} alone)"


def parted_leaves(walk: TwoWalks) -> list[str]:
    """Return the port's parameters that part; none where what parts is no model.

    Args:
        walk: Two trainers up to the update after which something parts.
    """
    if walk.what != MODEL or walk.gap is None:
        return []
    return [leaf for leaf in walk.gap.leaves if leaf not in _statistics(walk)]


def _statistics(walk: TwoWalks) -> frozenset[str]:
    return frozenset(walk.pairing.subjects.second.statistics)
