"""Updates at which one run divides by the root of its second moment and the other does not yet, as under RAdam.

Each run's own move at that update is fitted with and without the root, decay beside it: of two that are equal before,
one that moves by its first moment alone and one that does not have another threshold. Where both divide, the factor
between them may be RAdam's own, at that update and at those after it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from parity.checks.proving.bias_forms import both_at
from parity.checks.proving.effective import one_value
from parity.checks.proving.lockstep import MODEL
from parity.checks.proving.move_fits import MoveWay, fitted_move
from parity.checks.proving.seen import SeenUpdate, joined, seen_updates
from parity.checks.proving.walk import TwoWalks, go_on

__all__ = ["rectified_cause"]

SAME = 1e-6
"""Relative distance of two factors that are one."""


def rectified_cause(walk: TwoWalks) -> str:
    """Return that one divides by the root of the second moment from another update on, or by another factor then.

    Args:
        walk: Two trainers whose models part after an update, their moments equal.
    """
    if walk.what != MODEL:
        return ""
    runs = [{one.at: found for one in seen_updates(walk, at) if (found := _divides(one))} for at in (0, 1)]
    one, two = (run.get(walk.done) for run in runs)
    if one is None or two is None or not (one[1] or two[1]):
        return ""
    if one[1] and two[1]:
        return _factor_cause(walk, runs)
    at = 0 if one[1] else 1
    who, other = (("the trainer", "the port"), ("the port", "the trainer"))[at]
    return (
        f"second moment: at update {walk.done} {who} divides by its root, {other} moves by the first moment alone "
        f"(a threshold, as of RAdam, or a warm-up){_length(walk, at, runs[at][walk.done])}"
    )


def _factor_cause(walk: TwoWalks, runs: Sequence[Mapping[int, tuple[str, str]]]) -> str:
    """Return that one has not the factor of RAdam that grows with the length of the average of squares.

    Asked at the first update at which that average is long enough: at those before both move alike.

    Source: Liu et al., On the Variance of the Adaptive Learning Rate and Beyond, 2020, equation (5).
    """
    done = walk.done
    betas = both_at(walk.lanes[0], *runs[0][done], done) if done > 1 else None
    if betas is None or _length_of(betas[1], done) <= 4.0 or _length_of(betas[1], done - 1) > 5.0:
        return ""
    go_on(walk)
    here, there = ({one.at: rate for one in seen_updates(walk, at) if one.at >= done
                    and (rate := _rate(one, runs[at][done]))} for at in (0, 1))  # fmt: skip
    if done not in here or done not in there:
        return ""
    factors = {at: there[at] / here[at] for at in here.keys() & there.keys()}
    shares = {at: _share_of(betas[1], at) for at in factors}
    for who, power in (("the port", -1), ("the trainer", 1)):
        if all(abs(factor - shares[at] ** power) <= SAME * factor for at, factor in factors.items()):
            return (
                f"rectification: {who} does not scale its step by the factor of RAdam ({shares[done]:.6g} at update "
                f"{done}, by beta {betas[1]:.6g}; the port's step is {factors[done]:.6g} times the trainer's)"
            )
    return ""


def _rate(update: SeenUpdate, slots: tuple[str, str]) -> float | None:
    """Return by how much of the first moment over the root of the second one an update moves."""
    fit = fitted_move(MoveWay(slots[0], under=slots[1], place="beside"), update)
    return None if fit is None else one_value({leaf: one.rate for leaf, one in fit[1].items()}, SAME)


def _share_of(kept: float, at: int) -> float:
    """Return RAdam's factor at an update."""
    most, length = 2 / (1 - kept) - 1, _length_of(kept, at)
    return float(((length - 4) * (length - 2) * most / ((most - 4) * (most - 2) * length)) ** 0.5)


def _length_of(kept: float, at: int) -> float:
    """Return how many squares an average is long after an update."""
    return 2 / (1 - kept) - 1 - 2 * at * kept**at / (1 - kept**at)


def _divides(update: SeenUpdate) -> tuple[str, str] | None:
    """Return the first moment of a move and the second one, empty where it moves by the first alone; None unknown."""
    values = {slot: joined(held, list(held)) for slot, held in update.kept.items()}
    signed = [slot for slot, one in values.items() if (one < 0.0).any()]
    squares = [slot for slot, one in values.items() if not (one < 0.0).any() and np.any(one)]
    for top in signed:
        for under in ("", *squares):
            if fitted_move(MoveWay(top, under=under, place="beside" if under else ""), update) is not None:
                return top, under
    return None


def _other_length(walk: TwoWalks, at: int, slots: tuple[str, str], betas: tuple[float, float]) -> str:
    """Return how long the average is by the step itself, and by which other formula, as the end of words.

    The first update, by the first moment alone, tells the rate; that of RAdam's factor is solved for the length.
    """
    updates = {one.at: one for one in seen_updates(walk, at)}
    n, (first, second) = walk.done, betas
    alone = fitted_move(MoveWay(slots[0]), updates[1]) if 1 in updates and n > 1 else None
    rate = _rate(updates[n], slots)
    if alone is None or rate is None or (base := one_value({k: v.rate for k, v in alone[1].items()}, SAME)) is None:
        return ""
    share = rate * (1 - first**n) / (1 - second**n) ** 0.5 / (base * (1 - first))
    most = 2 / (1 - second) - 1
    middle = 6 + share**2 * (most - 4) * (most - 2) / most
    length = (middle + (middle**2 - 32) ** 0.5) / 2
    if abs(length - _length_of(second, n)) <= SAME * length:
        return ""
    ways = {
        "without the number of the update in its term": most - 2 * second**n / (1 - second**n),
        "with the number of the update after it": _length_of(second, n + 1),
        "with the number of the update before it": _length_of(second, n - 1) if n > 1 else 0.0,
    }
    said = next((f", {words}" for words, one in ways.items() if abs(one - length) <= 1e-5 * length), "")
    return (
        f": by its step its average is {length:.6g} long at this update{said}; by the formula of RAdam "
        f"{_length_of(second, n):.6g}"
    )


def _length(walk: TwoWalks, at: int, slots: tuple[str, str]) -> str:
    """Return how long RAdam's average is at the update, which is compared with a threshold, as the end of words."""
    go_on(walk)
    lane = walk.lanes[at]
    pairs = (both_at(lane, *slots, n) for n in range(len(lane.moments) - 1, 2, -1)
             if lane.moments[n].slots and lane.moments[n - 1].slots)  # fmt: skip
    pair = next((one for one in pairs if one), None)
    if pair is None:
        return ""
    length = _length_of(pair[1], walk.done)
    if not 4.0 < length <= 5.0:  # no threshold that is known lies beside it
        return _other_length(walk, at, slots, pair)
    return f": its average is {length:.4g} long at this update, PyTorch asks more than 5, the paper than 4"
