"""Leaves that a run projects after its steps: limits, norms. What moves them by is no rule of the optimizer.

Both runs may do so alike; what else differs between them is looked for at the other leaves then.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from parity.checks.proving.lockstep import MODEL, Lane
from parity.checks.proving.walk import TwoWalks

__all__ = ["projected_leaves"]

SAME = 1e-7
"""Relative distance of norms that are one limit."""

UNEQUAL = 1e-3
"""Relative distance of moves that are not one: at its first update Adam moves everything by its rate."""


def projected_leaves(walk: TwoWalks, at: int) -> frozenset[str]:
    """Return the leaves of one run's own model that either run projects; empty where that would be all of them.

    Args:
        walk: Two trainers after some updates.
        at: 0 for the trainer, 1 for its port.
    """
    first = _of_lane(walk.lanes[0])
    names = walk.pairing.names()
    second = _of_lane(walk.lanes[1]) | {leaf for leaf, said in names.items() if set(said.split(" + ")) & first}
    if not second:
        return frozenset()
    mine = second if at else {one for leaf in second for one in names.get(leaf, "").split(" + ")}
    every = set(_leaves(walk.lanes[at]))
    return frozenset(mine) if every - mine else frozenset()


def _of_lane(lane: Lane) -> set[str]:
    """Return the leaves of a run that show a limit after its updates."""
    held = [dict(one.slots[MODEL]) for one in lane.moments if one.slots.get(MODEL)]
    leaves = _leaves(lane)
    found: set[str] = set()
    limits: set[float] = set()
    for leaf in leaves:
        series = [np.asarray(one[leaf]) for one in held]
        pairs = [(old, now) for old, now in pairwise(series) if not np.array_equal(old, now)]
        seen = [one for old, now in pairs for one in _ends(old, now)]
        if seen or any(_norms_meet(old, now) for old, now in pairs) or _again(pairs):
            found.add(leaf)
            limits |= set(seen)
    # one element at a limit is known by others that are at it
    found |= {leaf for leaf in leaves if any(np.isin(one[leaf], list(limits)).any() for one in held[1:])}
    return found


def _leaves(lane: Lane) -> list[str]:
    """Return the parameters of a run's own model, in their order.

    What it holds before a step and not after it, such as the count of a stream of dropout, is none.
    """
    held = [one.slots[MODEL] for one in lane.moments if one.slots.get(MODEL)]
    statistics = lane.trainer.model.statistics
    return [leaf for leaf in (held[0] if held else {}) if leaf not in statistics and all(leaf in one for one in held)]


def _ends(old: NDArray[np.float64], now: NDArray[np.float64]) -> list[float]:
    """Return the largest or smallest number where several elements have it that moved by unequal amounts."""
    flat, moves = now.ravel(), np.abs(now - old).ravel()
    found = []
    for end in (flat.max(), flat.min()) if flat.size > 2 and np.ptp(flat) else ():
        at = flat == end
        if int(at.sum()) > 1 and np.ptp(moves[at]) > UNEQUAL * moves[at].max():
            found.append(float(end))
    return found


def _norms_meet(old: NDArray[np.float64], now: NDArray[np.float64]) -> bool:
    """Return whether the largest norm is that of several parts, which moved by unequal amounts."""
    for axis in range(now.ndim) if now.ndim > 1 else ():
        norms, moves = (np.linalg.norm(np.moveaxis(one, axis, 0).reshape(now.shape[axis], -1), axis=1)
                        for one in (now, now - old))  # fmt: skip
        at = norms >= norms.max() * (1 - SAME)
        if norms.max() > 0.0 and int(at.sum()) > 1 and np.ptp(moves[at]) > UNEQUAL * moves[at].max():
            return True
    return False


def _again(pairs: list[tuple[NDArray[np.float64], NDArray[np.float64]]]) -> bool:
    """Return whether a norm of all of it, or of its largest part, is that of the update before, though it moves.

    It is one part that moves and stays as large: of parts that began alike another one may be as large then.
    """
    for _, now in pairs[:1]:
        if now.size < 3:
            return False
    for (_, one), (_, two) in pairwise(pairs):
        for axes in (tuple(range(one.ndim)), *(tuple(n for n in range(one.ndim) if n != at) for at in range(one.ndim)
                                               if one.ndim > 1)):  # fmt: skip
            before, after, moved = (np.sqrt((held**2).sum(axes)).ravel() for held in (one, two, two - one))
            largest = int(before.argmax())
            # signs that cancel out move a norm by the square of the move alone, which may be small too
            limit = min(SAME, UNEQUAL * (moved[largest] / max(before[largest], 1e-300)) ** 2) * before[largest]
            stays = max(abs(after[largest] - before[largest]), abs(after.max() - before[largest])) <= limit
            if limit > 0.0 and stays and moved[largest] > UNEQUAL * moved.max():
                return True
    return False
