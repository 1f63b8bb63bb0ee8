"""Why parameters part though what the optimizers hold agrees: rate, decay, epsilon, running statistics."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from parity.checks.proving.aheads import unused_momentum_cause
from parity.checks.proving.effective import fitted, one_value
from parity.checks.proving.later_statistics import later_statistics_cause
from parity.checks.proving.lockstep import MODEL
from parity.checks.proving.move_decays import beside_decay_cause
from parity.checks.proving.move_forms import move_form
from parity.checks.proving.projected import projected_leaves
from parity.checks.proving.rate_causes import FEW, rate_cause
from parity.checks.proving.running_counts import running_counts_cause, running_forms_cause
from parity.checks.proving.schedule_forms import rates_of
from parity.checks.proving.slots import LeafArrays, names_of
from parity.checks.proving.walk import TwoWalks, go_on

__all__ = ["move_cause"]

FIT = 1e-6
"""How far a difference may be from what a cause gives, relative to its largest element."""

FEWEST = 8
"""Elements from which a line is drawn."""

MOMENTA = (0.1, 0.01, 0.05, 0.001, 0.03, 0.2, 0.9, 0.99)
"""Weights of the new batch in a running statistic that are tried."""


def move_cause(walk: TwoWalks) -> str:
    """Return why an update moves the models to different places from the same one; empty where nothing known does."""
    done = walk.done
    if walk.gap is None or walk.what != MODEL:
        return ""
    over, lanes = walk.pairing.over, walk.lanes
    before = over(lanes[0].moments[done - 1].slots[MODEL])
    after = over(lanes[0].moments[done].slots[MODEL]), lanes[1].moments[done].slots[MODEL]
    statistics = walk.pairing.subjects.second.statistics
    held = projected_leaves(walk, 1)
    parted = [leaf for leaf in walk.gap.leaves if leaf not in statistics]
    if set(parted) <= held:
        held = frozenset()
    parted = [leaf for leaf in parted if leaf not in held]
    if not parted:
        return _statistics_cause(walk, before, after, [leaf for leaf in walk.gap.leaves if leaf in statistics])
    moves = [{leaf: one[leaf] - before[leaf] for leaf in before if leaf not in statistics | held}
             for one in after]  # fmt: skip
    return (
        _nesterov_cause(walk)
        or rate_cause(walk, moves)
        or _decay_cause(walk, before, moves, parted)
        or _epsilon_cause(walk, before, moves, parted)
        or _still_cause(walk, moves)
        or _frozen_cause(moves, parted)
    )


def _still_cause(walk: TwoWalks, moves: Sequence[LeafArrays]) -> str:
    """Return that one moves nothing at all at an update: where it moves later, its rate is 0; nothing is frozen."""
    moved = [any(np.any(one) for one in each.values()) for each in moves]
    if all(moved) or not any(moved):
        return ""
    at = moved.index(False)
    who, other = ("the trainer", "the port") if at == 0 else ("the port", "the trainer")
    go_on(walk)
    held = [moment.slots.get(MODEL, {}) for moment in walk.lanes[at].moments]
    leaves = [leaf for leaf in walk.lanes[at].trainer.model.leaves
              if leaf not in walk.lanes[at].trainer.model.statistics]  # fmt: skip
    later = [done for done in range(walk.done + 1, len(held)) if held[done - 1] and held[done] and any(
                 not np.array_equal(held[done - 1][leaf], held[done][leaf]) for leaf in leaves)]  # fmt: skip
    said = f"{who} moves nothing at update {walk.done}, {other} does"
    if not later:
        return f"update: {said}, and nothing at those after it: it is not made, or its learning rate is 0"
    return f"schedule: {said}: its learning rate is 0 until update {later[0]} (a warm-up from 0)"


def _frozen_cause(moves: Sequence[LeafArrays], parted: Sequence[str]) -> str:
    for who, one, other in (("the port", moves[1], moves[0]), ("the trainer", moves[0], moves[1])):
        still = [leaf for leaf in parted if not np.any(one[leaf]) and np.any(other[leaf])]
        if still:
            return f"frozen: {who} does not move {names_of(still)}, the other does"
    return ""


def _nesterov_cause(walk: TwoWalks) -> str:
    """Return that one moves by its momentum, and the other ahead of it: by the momentum before it too."""
    parts: list[tuple[str, float]] = []
    for lane in walk.lanes[:2]:
        now, before, start = (lane.moments[at].slots if len(lane.moments) > at else {} for at in (2, 1, 0))
        part = _ahead(now, before)
        if part is None or not now or not start:
            return ""
        parts.append(part)
    ahead = [abs(share) > 1e-6 for _, share in parts]
    if ahead[0] == ahead[1]:
        return ""
    who, other = ("the trainer", "the port") if ahead[0] else ("the port", "the trainer")
    unused = unused_momentum_cause(walk, int(ahead[1]), *parts[ahead[1]])
    return f"Nesterov: {who} moves ahead of its momentum, {other} by its momentum alone" if unused is None else unused


def _ahead(now: Mapping[str, LeafArrays], before: Mapping[str, LeafArrays]) -> tuple[str, float] | None:
    """Return the momentum of a move and how much of the one before is in it too; None where no slot makes it."""
    params = [leaf for leaf in now.get(MODEL, {}) if leaf in before.get(MODEL, {})]
    for slot, held in now.items():
        leaves = [leaf for leaf in params if leaf in held and leaf in before.get(slot, {}) and np.any(held[leaf])]
        if slot == MODEL or not leaves:
            continue
        u = np.concatenate([(now[MODEL][leaf] - before[MODEL][leaf]).ravel() for leaf in leaves])
        found = fitted(
            [np.concatenate([one[slot][leaf].ravel() for leaf in leaves]) for one in (now, before)], u, FIT
        )
        if found is not None and found[0]:
            return slot, found[1] / found[0]
    return None


def _decay_cause(walk: TwoWalks, before: LeafArrays, moves: Sequence[LeafArrays], parted: Sequence[str]) -> str:
    """Return that the difference of the updates is a multiple of the parameters."""
    if sum(before[leaf].size for leaf in parted) < FEWEST:
        return ""  # any number is a multiple of one
    start = walk.lanes[1].moments[0].slots.get(MODEL, {})
    if walk.done == 2 and not any(np.any(start.get(leaf, 1.0)) for leaf in parted):
        return ""  # leaves of zeros hold their first move then, a multiple of which momentum takes too
    shares: dict[str, float] = {}
    single: dict[str, float] = {}
    for leaf in parted:
        gap, p = (moves[1][leaf] - moves[0][leaf]).ravel(), before[leaf].ravel()
        square = float(p @ p)
        if square == 0.0:
            return ""
        share = float(gap @ p) / square
        if float(np.abs(gap - share * p).max()) > 1e-4 * float(np.abs(gap).max()):
            return ""
        (shares if p.size >= FEW else single)[leaf] = share
    # any number is a multiple of one: leaves of few elements count where they have the strength that others show
    strength = one_value(shares or single, 1e-4)
    if strength is None and not shares:
        return ""
    if strength is not None and one_value({"": strength, **single}, 1e-4) is None:
        return ""
    if strength is None:
        one, two = move_form(walk, 0), move_form(walk, 1)
        cause = beside_decay_cause(walk, one, two) if one is not None and two is not None else ""
        more = [f"{-share:.4g} more of {leaf}" for leaf, share in shares.items()]
        told = f"the port takes {', '.join(more[:2])}{f' and {len(more) - 2} more' if len(more) > 2 else ''}"
        return cause or f"weight decay: leaves decay at other strengths: {told}"
    used = rates_of(walk).get(walk.done - 1)
    than = (
        f"{'weaker' if strength > 0 else 'stronger'} than the trainer's by {abs(strength / (used or 1.0)):.4g}"
        f"{'' if used else ' of the parameters for each update'}"
    )
    # leaves of zeros do not decay, by whatever strength
    moving = [
        leaf for leaf, move in moves[0].items() if np.any(before[leaf]) and (np.any(move) or np.any(moves[1][leaf]))
    ]
    flat = [leaf for leaf in parted if before[leaf].ndim <= 1]
    where = names_of(list(parted))
    if len(parted) >= len(moving):
        return f"weight decay: another strength on all leaves: the port's is {than}"
    kinds = " (norms and biases)" if len(flat) == len(parted) else ""
    count = f"{len(parted)} {'leaf' if len(parted) == 1 else 'leaves'}"
    return f"weight decay: on other leaves: the port's is {than} on {count}{kinds}: {where}"


def _epsilon_cause(walk: TwoWalks, before: LeafArrays, moves: Sequence[LeafArrays], parted: Sequence[str]) -> str:
    """Return that two divide by a root of equal second moments and other epsilons."""
    done = walk.done
    slots = [
        {s: walk.pairing.over(h) for s, h in walk.lanes[0].moments[done].slots.items()},
        walk.lanes[1].moments[done].slots,
    ]
    for first in (s for s in slots[0] if s != MODEL):
        for second in (s for s in slots[0] if s not in (MODEL, first)):
            if first in walk.suspects or second in walk.suspects:
                continue  # moments that differ themselves tell nothing of what divides them
            under = [_line(slots[0], first, second, move, before, parted, squared=True) for move in moves]
            one, two = (_line(slots[0], first, second, move, before, parted) for move in moves)
            if one is not None and two is None and under[1] is not None:
                return "epsilon of the optimizer: under the root there, beside it here"
            if two is not None and one is None and under[0] is not None:
                return "epsilon of the optimizer: under the root here, beside it there"
            if one is None or two is None:
                continue
            (slope, cut), (other, moved) = one, two
            if bool(slope) != bool(other):
                who, not_so = ("the trainer", "the port") if slope else ("the port", "the trainer")
                return (
                    f"second moment: at update {done} {who} divides by its root, {not_so} moves by the first moment "
                    "alone (a threshold, as of RAdam, or a warm-up)"
                )
            if not slope:
                continue
            if abs(other - slope) <= 1e-4 * abs(slope) and abs(cut - moved) > 1e-3 * max(abs(cut), abs(moved)):
                ratio = moved / cut if cut else float("inf")
                return (
                    f"epsilon of the optimizer: the port's is {ratio:.6g} times the trainer's, beside "
                    f"the root of the second moment"
                )
    return ""


def _line(
    slots: Mapping[str, LeafArrays], first: str, second: str, move: LeafArrays, before: LeafArrays,
    parted: Sequence[str], *, squared: bool = False,
) -> tuple[float, float] | None:  # fmt: skip
    """Return slope and cut where a moment over its move is a line of the root of another moment.

    Where `squared`, both are squared, as an epsilon under the root has it.
    """
    xs, ys = [], []
    # where parameters are zero, as biases are at the start, decay moves nothing: these elements tell most
    zeros = sum(int((before[leaf] == 0.0).sum()) for leaf in parted) >= FEWEST
    for leaf in parted:
        if leaf not in slots[first] or leaf not in slots[second] or before[leaf].ndim > 1:
            continue
        m, v, u = slots[first][leaf].ravel(), slots[second][leaf].ravel(), move[leaf].ravel()
        good = (before[leaf].ravel() == 0.0) | (not zeros)
        good &= (u != 0.0) & (v > 0.0) & (np.abs(u) > 1e-3 * np.abs(u).max(initial=0.0))
        xs.append(v[good] if squared else np.sqrt(v[good]))
        ys.append((m[good] / u[good]) ** (2 if squared else 1))
    x, y = (np.concatenate(one) if one else np.zeros(0) for one in (xs, ys))
    if len(x) < 4:
        return None
    found = fitted([x, np.ones_like(x)], y, 1e-6)
    if found is None:
        return None
    # what does not follow the root at all is divided by nothing: its slope is rounding
    return (found[0] if abs(found[0]) * float(x.max()) > 1e-6 * float(np.abs(y).max()) else 0.0, found[1])


def _statistics_cause(walk: TwoWalks, before: LeafArrays, after: Sequence[LeafArrays], leaves: Sequence[str]) -> str:
    """Return why running statistics part though parameters do not."""
    moved = [{leaf: one[leaf] - before[leaf] for leaf in leaves} for one in after]
    factors = {}
    for leaf in leaves:
        a, b = moved[0][leaf].ravel(), moved[1][leaf].ravel()
        square = float(a @ a)
        if square == 0.0 or not np.any(b):
            who, other = ("the port", "the trainer") if square else ("the trainer", "the port")
            # in evaluation mode losses would part before
            return (
                f"running statistics: {who} does not move {names_of(list(leaves))}, {other} does; losses and "
                f"parameters agree, so both normalize alike, and {who} does not keep the new statistics"
            )
        factor = float(a @ b) / square
        if float(np.abs(b - factor * a).max()) <= 1e-6 * float(np.abs(b).max()):
            factors[leaf] = factor
    shared = one_value(factors) if len(factors) == len(leaves) else None
    if shared is not None:
        return (
            f"momentum of running statistics: the port's move by {shared:.6g} times the trainer's on "
            f"{names_of(list(leaves))}"
        )
    counts = []
    for leaf in leaves:
        for weight in MOMENTA:
            kept = (1 - weight) * before[leaf]
            a, b = (one[leaf] - kept for one in after)
            ratio = one_value(
                {str(i): float(x) for i, x in enumerate((a / np.where(b == 0.0, np.nan, b)).ravel())}, 1e-8
            )
            for who, r in (("the port", ratio), ("the trainer", 1 / ratio if ratio else None)):
                if r is not None and r > 1.0 and abs(n := r / (r - 1.0)) < 1e7 and abs(n - round(n)) <= 1e-4 * n:
                    counts.append((who, round(n)))
                    break
            else:
                continue
            break
    if len(counts) == len(leaves):
        who = counts[0][0]
        return (
            f"biased variance: {who} keeps the running variance over n = {counts[0][1]} values, the other over n - 1"
        )
    given = (before, after, leaves, MOMENTA)
    return running_counts_cause(*given) or later_statistics_cause(walk, leaves) or running_forms_cause(*given)
