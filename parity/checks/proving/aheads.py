"""What a move ahead of a momentum is relative to: what the momentum keeps of itself, and takes of the gradient.

A move by a momentum less some of the one before it is Nesterov's, or is by what enters the momentum alone: only what
it keeps of itself tells the two apart. What of a gradient is added to a momentum is less where the gradient was
clipped, and so is what the momentum takes of it.
"""

from __future__ import annotations

import numpy as np

from parity.checks.proving.effective import fitted, one_value
from parity.checks.proving.lockstep import MODEL, Lane
from parity.checks.proving.momentum_causes import shares_of
from parity.checks.proving.move_forms import entering_form
from parity.checks.proving.seen import gradient_at
from parity.checks.proving.walk import TwoWalks

__all__ = ["kept_share", "taken_share", "unused_momentum_cause"]

FIT = 1e-7
"""How far a moment may be from what its shares give, relative to its largest element."""

SAME = 1e-5
"""Relative distance within which two shares are one."""

FEWEST = 6
"""Elements of a leaf from which three shares are fitted to it."""


def kept_share(walk: TwoWalks, at: int, slot: str) -> float | None:
    """Return what a momentum keeps of itself; None where neither gradients nor what is made of them show it.

    Args:
        walk: Two trainers after some updates.
        at: 0 for the trainer, 1 for its port.
        slot: The momentum.
    """
    shares = shares_of(walk.lanes[at], slot, 2)
    kept = shares.kept if shares is not None else _leaf_shares(walk.lanes[at], slot, 2)[0]
    if kept is not None:
        return kept
    entering = entering_form(walk, at, slot)
    if entering is None:
        return None
    # of what enters it the part that is a multiple of itself is what it loses of itself
    lost = {f"{n} {leaf}": one.decay for n, leaves in entering.moves.items() if n > 1 for leaf, one in leaves.items()}
    return one_value(lost, SAME)


def taken_share(lane: Lane, slot: str, at: int) -> float | None:
    """Return what a momentum takes of the gradient at an update, of each leaf alike; None where that is not seen.

    Decay that is added to the gradient may be of some leaves alone, so that each leaf is looked at by itself.

    Args:
        lane: A run.
        slot: Of its state.
        at: The update, at least 2.
    """
    return _leaf_shares(lane, slot, at)[1]


def _leaf_shares(lane: Lane, slot: str, at: int) -> tuple[float | None, float | None]:
    """Return what a momentum keeps of itself and takes of the gradient, where these are the same of all leaves."""
    if len(lane.moments) <= at or any(slot not in lane.moments[n].slots for n in (at - 1, at)):
        return None, None
    old, new = lane.moments[at - 1].slots[slot], lane.moments[at].slots[slot]
    values, gradients = lane.moments[at - 1].slots[MODEL], gradient_at(lane, at - 1)
    kept, taken = {}, {}
    for leaf, made in new.items():
        columns = [np.asarray(one[leaf]).ravel() for one in (old, gradients, values) if leaf in one]
        if len(columns) == 3 and made.size >= FEWEST and all(map(np.any, columns)):
            parts = fitted(columns, np.asarray(made).ravel(), FIT)
            if parts is None:
                return None, None
            kept[leaf], taken[leaf] = float(parts[0]), float(parts[1])
    return one_value(kept, SAME), one_value(taken, SAME)


def unused_momentum_cause(walk: TwoWalks, at: int, slot: str, share: float) -> str | None:
    """Return that a run keeps a momentum and moves without it; None where its move is Nesterov's.

    Args:
        walk: Two trainers after some updates.
        at: The run that moves by a momentum and a share of the one before it.
        slot: The momentum.
        share: That share, relative to the momentum's own.

    Returns:
        A phrase; empty where the move is of neither kind.
    """
    kept = kept_share(walk, at, slot)
    # Nesterov's is b / (1 + b) of the one before, which is less than a half, and a move without a momentum all of b
    if kept is not None and kept > 0.0 and abs(share + kept / (1.0 + kept)) <= SAME * abs(share):
        return None
    if share >= 0.0:
        return ""
    alone = share < -0.5 if kept is None else abs(share + kept) <= SAME * abs(share)
    if not alone:
        return None if kept is None else ""
    who, other = ("the trainer", "the port") if at == 0 else ("the port", "the trainer")
    return (
        f"momentum: {other} moves by it, {who} keeps it in {slot} and moves by what enters it alone, which is "
        f"{slot} less {-share:.6g} of the one before"
    )
