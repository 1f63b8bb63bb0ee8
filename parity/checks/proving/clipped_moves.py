"""Updates of which every element is clipped by itself, after the optimizer made them: those at the limit tell it.

What lies below the limit follows the form of the moves; what lies at it is the same number everywhere.
"""

from __future__ import annotations

import numpy as np

from parity.checks.proving.move_forms import fitted_form, move_form, used_updates
from parity.checks.proving.seen import SeenUpdate, joined
from parity.checks.proving.slots import LeafArrays
from parity.checks.proving.walk import TwoWalks

__all__ = ["clipped_moves_cause"]

FLUSH = 1e-9
"""Relative distance from the largest move within which one is at the limit."""


def clipped_moves_cause(walk: TwoWalks) -> str:
    """Return that one clips every element of its updates and the other does not; empty where that is not seen.

    Args:
        walk: Two trainers after some updates.
    """
    limits = [0.0 if move_form(walk, at) is not None else _limit(walk, at) for at in (0, 1)]
    if bool(limits[0]) == bool(limits[1]) or None in limits:
        return ""
    who, other, limit = (
        ("the port", "the trainer", limits[1]) if limits[1] else ("the trainer", "the port", limits[0])
    )
    return (
        f"clipping: {who} clips every element of its update by itself, after it was scaled ({limit:.6g} at the "
        f"first), {other} does not"
    )


def _limit(walk: TwoWalks, at: int) -> float | None:
    """Return the largest element of the first update, where the others follow a form; None where they do not."""
    updates, born = used_updates(walk, at)
    inner, limits = [], []
    for update in updates:
        move = update.move
        sizes = np.abs(joined(move, list(move)))
        top = float(sizes.max(initial=0.0))
        flush = int((sizes >= top * (1 - FLUSH)).sum())
        if not top or flush > sizes.size - 8:
            return None
        inner.append(_below(update, top) if flush > 1 else update)
        limits.append(top if flush > 1 else 0.0)
    if len(limits) < 2 or not all(limits[:2]):
        return None
    return limits[0] if fitted_form(inner, born) is not None else None


def _below(update: SeenUpdate, top: float) -> SeenUpdate:
    """Return an update without the elements at a limit, its leaves flat."""
    below = {leaf: np.abs(one) < top * (1 - FLUSH) for leaf, one in update.move.items()}

    def cut(held: LeafArrays) -> LeafArrays:
        return {leaf: np.asarray(one)[below[leaf]] for leaf, one in held.items() if below[leaf].any()}

    slots = [{slot: cut(held) for slot, held in each.items()} for each in (update.held, update.kept)]
    return SeenUpdate(update.at, cut(update.before), cut(update.gradient), cut(update.after), slots[0], slots[1])
