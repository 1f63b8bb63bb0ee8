"""Averages of parameters in a training state, told by how they move: each time part of the way to them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from parity.checks.proving.lockstep import MODEL, Lane

__all__ = ["Average", "average_of", "averages_in", "share_of"]

FIT = 1e-9
"""How far an average may be from what its decay gives, relative to its largest move."""


@dataclass(frozen=True)
class Average:
    """How a slot follows the parameters."""

    shares: tuple[float, ...]
    """Part of the way that it goes at each update that was looked at: one less the decay."""
    late: bool
    """Whether it follows the parameters before the update."""

    @property
    def decay(self) -> float:
        """Return the decay at the last of them."""
        return 1.0 - self.shares[-1]


def average_of(lane: Lane, slot: str, done: int) -> Average | None:
    """Return how a slot follows the parameters; None where it is no average of them.

    Running statistics beside them are left out: what is a copy of a module holds them as they are.

    Args:
        lane: A run.
        slot: Of its state.
        done: Completed updates, at least 1.
    """
    for late in (False, True):
        shares = []
        for at in range(max(1, done - 2), done + 1):
            before, after = lane.moments[at - 1], lane.moments[at]
            if slot not in before.slots or slot not in after.slots:
                continue
            source = before if late else after
            trained = [leaf for leaf in after.slots[slot] if leaf not in lane.trainer.model.statistics]
            if not trained:
                return None
            held = {leaf: after.slots[slot][leaf] for leaf in trained}
            share = share_of(before.slots[slot], held, source.slots.get(MODEL, {}))
            if share is None:
                break
            shares.append(share)
        else:
            if len(shares) and any(share > 0.0 for share in shares):
                return Average(tuple(shares), late)
    return None


def averages_in(lane: Lane) -> frozenset[str]:
    """Return the slots of a run that follow its parameters: no move is made of what is made of it."""
    done = len(lane.moments) - 1
    slots = lane.moments[done].slots if done > 0 else {}
    return frozenset(slot for slot in slots if slot != MODEL and average_of(lane, slot, done) is not None)


def share_of(before, after, model) -> float | None:  # type: ignore[no-untyped-def]
    """Return c where an average has moved by c times its way to the parameters, the same for all leaves."""
    moves, ways = [], []
    for leaf, value in after.items():
        if leaf not in model or leaf not in before:
            return None
        moves.append((value - before[leaf]).ravel())
        ways.append((model[leaf] - before[leaf]).ravel())
    move, way = np.concatenate(moves), np.concatenate(ways)
    square = float(way @ way)
    rounding = 4 * 2.0**-52 * max(float(np.abs(v).max(initial=0.0)) for v in after.values())
    if square == 0.0:  # what it follows is where it is: d x + (1 - d) x is x but for rounding
        return 0.0 if float(np.abs(move).max(initial=0.0)) <= rounding else None
    share = float(move @ way) / square
    off = float(np.abs(move - share * way).max(initial=0.0))
    largest = float(np.abs(way).max(initial=0.0))
    return share if off <= max(FIT * largest, rounding) and -1e-9 <= share < 1.0 + 1e-9 else None
