"""How the moments of an optimizer move: how much of itself, and of the squared gradient, each takes at an update.

An RMSprop or an Adagrad keeps no part of the gradient itself after one update, and what it divides by is told by its
second moment and by the move. Two updates tell both shares of a moment, without any name.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from parity.checks.proving.clip_causes import is_clipped_by_value
from parity.checks.proving.effective import FEWEST, MomentShares, fitted
from parity.checks.proving.lockstep import MODEL, Lane
from parity.checks.proving.momentum_causes import shares_of
from parity.checks.proving.slots import LeafArrays
from parity.checks.proving.walk import TwoWalks, scaled

__all__ = ["ahead_cause", "another_gradient_cause", "divisor_cause", "rate_inside_cause", "second_moment_cause"]

FIT = 1e-8
"""How far a moment may be from what its shares give, relative to its largest element."""

SAME = 1e-7
"""Relative distance within which two shares are one."""


@dataclass(frozen=True)
class SecondMoment(MomentShares):
    """How the slot moves that takes a part of the squared gradient."""

    slot: str


def second_moment_cause(walk: TwoWalks) -> str:
    """Return what two second moments differ in, where both are made of the squared gradient; empty where not."""
    here, there = (_second(lane) for lane in walk.lanes[:2])
    if here is None or there is None:
        return ""
    sums = [abs(one.kept - 1.0) <= SAME and abs(one.taken - 1.0) <= SAME for one in (here, there)]
    words = [
        "the sum of squared gradients (Adagrad)" if is_sum
        else f"a running mean of squared gradients that keeps {one.kept:.6g} of itself"
        for is_sum, one in zip(sums, (here, there), strict=True)
    ]  # fmt: skip
    ratio = there.taken / here.taken
    if abs(here.kept - there.kept) <= SAME and abs(ratio - 1.0) > SAME and (here.kept == 1.0 or sums[0] != sums[1]):
        return (
            f"accumulation: the second moment takes {ratio:.6g} times as much of the squared gradient there as here: "
            f"the gradients of the port are {ratio**0.5:.6g} times the trainer's"
        )
    if sums[0] != sums[1]:
        return f"second moment: {here.slot} is {words[0]} here, {there.slot} {words[1]} there"
    if abs(here.kept - there.kept) > SAME:
        said = f"beta2: the second moment keeps {here.kept:.6g} of itself here, {there.kept:.6g} there"
        return said + _first_moments(walk, here.slot)
    return ""


def _first_moments(walk: TwoWalks, second: str) -> str:
    """Return that what first moments keep of themselves differs too, as the end of a sentence."""
    for slot, (since, gap) in walk.suspects.items():
        if since > 2 or slot in (MODEL, second) or not gap.other:
            continue
        one, two = (shares_of(lane, name, 2) for lane, name in zip(walk.lanes, (slot, gap.other), strict=False))
        if one is not None and two is not None and abs(one.kept - two.kept) > SAME:
            return f"; beta1 too: the first moment keeps {one.kept:.6g} of itself here, {two.kept:.6g} there"
    return ""


def _second(lane: Lane) -> SecondMoment | None:
    """Return how the slot moves that takes a part of the squared gradient; None where there is none."""
    if len(lane.moments) < 3:
        return None
    squares = [{leaf: grad**2 for leaf, grad in _gradient(lane, at).items()} for at in (0, 1)]
    for slot, last in lane.moments[2].slots.items():
        held = [dict(lane.moments[at].slots.get(slot, {})) for at in (0, 1)]
        if not held[0]:  # an optimizer of PyTorch makes its state at the first update, of zeros
            held[0] = {leaf: np.zeros_like(array) for leaf, array in held[1].items()}
        leaves = [leaf for leaf in last if leaf in squares[0] and leaf in held[0] and leaf in held[1]
                  and np.any(squares[1][leaf])]  # fmt: skip
        if slot == MODEL or not leaves or sum(last[leaf].size for leaf in leaves) < FEWEST:
            continue
        made = _joined([held[1], last], leaves)
        found = fitted([_joined(held, leaves), _joined(squares, leaves)], made, FIT)
        if found is not None and found[1] > 0.0:
            return SecondMoment(found[0], found[1], slot)
    return None


def _gradient(lane: Lane, at: int) -> LeafArrays:
    return lane.trainer.probe.loss(lane.moments[at].slots[MODEL], lane.trainer.batch(at)).gradients


def _joined(parts: list[LeafArrays] | list[dict[str, NDArray[np.float64]]], leaves: list[str]) -> NDArray[np.float64]:
    return np.concatenate([part[leaf].ravel() for part in parts for leaf in leaves])


def divisor_cause(walk: TwoWalks) -> str:
    """Return what two optimizers divide the gradient by that differs, though their second moments are equal.

    Of one that takes the gradient itself, and no mean of it, the gradient over the move is a line of the root of the
    second moment, or its square one of the second moment where epsilon is under the root.
    """
    lines: list[tuple[bool, float, float]] = []
    for lane in walk.lanes[:2]:
        second = _second(lane)
        if second is None:
            return ""
        start, moment = lane.moments[0].slots[MODEL], lane.moments[1].slots
        gradient = _gradient(lane, 0)
        leaves = [leaf for leaf in gradient if leaf in moment[second.slot]]
        g, v = (_joined([one], leaves) for one in (gradient, moment[second.slot]))
        u = _joined([moment[MODEL]], leaves) - _joined([start], leaves)
        good = (u != 0.0) & (np.abs(u) > 1e-3 * np.abs(u).max(initial=0.0)) & (v > 0.0)
        if int(good.sum()) < 2 * FEWEST:
            return ""
        g, v, u = g[good], v[good], u[good]
        found = next((fit for fit in (_line(np.sqrt(v), g / u, False), _line(v, (g / u) ** 2, True)) if fit), None)
        if found is None:
            return ""
        lines.append(found)
    (under, slope, cut), (other_under, other_slope, other_cut) = lines
    if under != other_under:
        words = ("under the root", "beside it") if under else ("beside the root", "under it")
        return f"epsilon of the optimizer: {words[0]} of the second moment here, {words[1]} there"
    ratio = (other_slope / slope) ** (0.5 if under else 1.0) if slope and other_slope / slope > 0 else 1.0
    if abs(ratio - 1.0) <= 1e-5:
        sizes = [cut / slope, other_cut / other_slope]
        if abs(sizes[0] - sizes[1]) > 1e-3 * max(map(abs, sizes)):
            return f"epsilon of the optimizer: {abs(sizes[0]):.4g} here, {abs(sizes[1]):.4g} there"
        return ""
    return ""  # a rate, which the moves themselves tell


def _line(x: NDArray[np.float64], y: NDArray[np.float64], under: bool) -> tuple[bool, float, float] | None:
    found = fitted([x, np.ones_like(x)], y, 1e-9)
    if found is None or abs(found[0]) * float(x.max()) <= 1e-6 * float(np.abs(y).max()):
        return None  # it follows no root: it is divided by none
    return under, found[0], found[1]


def ahead_cause(walk: TwoWalks) -> str:
    """Return that two divide another mix of moment and gradient by their second moments, as an NAdam does.

    Told by the second update: in the first one the moment is a multiple of the gradient.
    """
    shares = []
    for lane in walk.lanes[:2]:
        second = _second(lane)
        if second is None or len(lane.moments) < 3:
            return ""
        before, now, gradient = lane.moments[1].slots, lane.moments[2].slots, _gradient(lane, 1)
        leaves = [leaf for leaf in gradient if leaf in now[second.slot]]
        v, g = (_joined([one], leaves) for one in (now[second.slot], gradient))
        w = (_joined([now[MODEL]], leaves) - _joined([before[MODEL]], leaves)) * np.sqrt(v)
        share = None
        for slot, held in now.items():
            if slot in (MODEL, second.slot) or any(leaf not in held for leaf in leaves):
                continue
            found = fitted([_joined([held], leaves), g], w, 1e-4)
            if found is not None and found[0]:
                share = found[1] / found[0]
                break
        if share is None:
            return ""
        shares.append(share)
    if abs(shares[0] - shares[1]) <= 1e-3 * max(1e-3, *map(abs, shares)):
        return ""
    return (
        f"Nesterov: at update 2 the moment has {shares[0]:.4g} times as much of the gradient added here, "
        f"{shares[1]:.4g} times there, before they are divided (momentum schedule or bias correction of NAdam)"
    )


def another_gradient_cause(walk: TwoWalks, at: int) -> str:
    """Return how the gradient that one optimizer was given differs from that of its loss, as far as it shows.

    Args:
        walk: Two trainers after some updates.
        at: Which of them keeps no part of the gradient of its loss.
    """
    who, other = ("the trainer", "the port") if at == 0 else ("the port", "the trainer")
    slots = walk.lanes[at].moments[1].slots
    for slot in slots:
        if slot != MODEL and is_clipped_by_value(walk.lanes[at], slot):
            return f"clipping: {who} clips every element of the gradient by itself (by value), {other} does not"
    for first, held in slots.items():
        for second, squares in slots.items():
            leaves = [leaf for leaf in held if leaf in squares and np.any(held[leaf])]
            if first == second or MODEL in (first, second) or not leaves:
                continue
            m, v = (np.concatenate([one[leaf].ravel() for leaf in leaves]) for one in (held, squares))
            part = float((m * m) @ v) / float((m * m) @ (m * m))
            if m.size >= FEWEST and float(np.abs(v - part * m * m).max()) <= 1e-9 * float(np.abs(v).max()):
                return (
                    f"gradient: the moments of {who} are of another gradient than that of its loss on the batch: "
                    "accumulated over other parts of it, clipped element by element, perturbed, or of another loss"
                )
    return ""


def rate_inside_cause(walk: TwoWalks) -> str:
    """Return that the momentum of one is that of the other times a number: the rate is taken into it."""
    if walk.what != MODEL or walk.done < 2 or len(walk.suspects) != 1:
        return ""  # where a second moment parts too, the gradient is another
    for slot, (since, gap) in walk.suspects.items():
        factor = scaled_at(walk, slot, since) if gap.other else None
        if factor is not None and 0.0 < abs(factor) < 1e6 and abs(abs(factor) - 1.0) > 1e-6:
            inside = "into it there, after it here" if abs(factor) < 1 else "after it there, into it here"
            return (
                f"momentum: {gap.other} of the port is {factor:.6g} times {slot} after update {since}: the rate is "
                f"taken {inside}"
            )
    return ""


def scaled_at(walk: TwoWalks, slot: str, done: int) -> float | None:
    """Return what `scaled` returns, of the state after an earlier update.

    Args:
        walk: Two trainers after some updates.
        slot: Of the first.
        done: The update.
    """
    held, walk.done = walk.done, done
    try:
        return scaled(walk, slot) if walk.lanes[0].moments[done].slots else None
    finally:
        walk.done = held
