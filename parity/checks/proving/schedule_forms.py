"""The rates of a trainer and its port at further updates, which tell one schedule that is late from another one.

One update at which rates part fits many schedules. Both runs go on by themselves for some updates: the rate of each
is read off its own moves, in the units in which the trainer's optimizer says its own.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from parity.checks.proving.bias_forms import betas_of, power_of
from parity.checks.proving.effective import one_value
from parity.checks.proving.lockstep import Lane
from parity.checks.proving.momentum_causes import shares_of
from parity.checks.proving.move_forms import MoveForm, move_form
from parity.checks.proving.walk import FURTHER, TwoWalks, go_on

__all__ = ["is_shifted", "later_rates", "moving_momentum", "rates_of"]

SAME = 1e-6
"""Relative distance within which two rates are one."""


def rates_of(walk: TwoWalks) -> dict[int, float]:
    """Return update, counted from 0, to the rate that it uses, as far as an optimizer of the first state says it.

    What a state says is the rate of the next update; of a trainer that sets its rate as its step begins it is that of
    the update that was made. The moves tell which: their rates are one multiple of the one or of the other.
    """
    found: dict[int, float] = {}
    for at, moment in enumerate(walk.lanes[0].moments):
        rates = [float(v) for place, v in moment.view.arrays.items() if ".lr." in f".{place}" and np.ndim(v) == 0]
        if rates:
            found[at] = rates[0]
    if len({*found.values()}) < 2:
        return found
    form = move_form(walk, 0)
    own = _own_rates(walk.lanes[0], form) if form is not None else {}
    shared = []
    for late in (0, 1):
        ratios = {str(at): rate / found[at - 1 + late] for at, rate in own.items() if found.get(at - 1 + late)}
        shared.append(one_value(ratios, SAME) if len(ratios) > 1 else None)
    # of an exponential schedule both are one number, and the right one is 1
    fits = [share is not None and abs(share - 1.0) <= SAME for share in shared]
    if shared == [None, None]:
        return {}  # of which update the rates are is not told: none is said then
    late = int(fits[1] if any(fits) else shared[0] is None)
    return {at - late: rate for at, rate in found.items() if at >= late}


def _own_rates(lane: Lane, form: MoveForm) -> dict[int, float]:
    """Return update, counted from 1, to the rate of one leaf, without bias corrections; but for a factor."""
    updates = sorted(form.moves)
    first, second = betas_of(lane, form, updates) if form.under else (None, None)
    found = {}
    for at in updates:
        rate = (
            next(iter(form.moves[at].values())).rate
            if form.moves[at].keys() == form.moves[updates[0]].keys()
            else 0.0
        )
        if rate:
            corrections = (1 - power_of(first, at) if first else 1.0, 1 - power_of(second, at) if second else 1.0)
            found[at] = rate * corrections[0] / corrections[1] ** 0.5
    return found


def is_shifted(walk: TwoWalks, by: int) -> bool:
    """Return whether the port uses the rate of another update at all updates that are seen, at least two of them.

    Args:
        walk: Two trainers that part by a rate.
        by: -1 for the update before, 1 for the one after.
    """
    rates = [_rates(walk, whole=whole) for whole in (True, False)]  # both go on first, and tell more of theirs
    return any(_fits(rates_of(walk), one, by) for one in rates)


def _fits(said: Mapping[int, float], rates: Mapping[int, float], by: int) -> bool:
    pairs = 0
    for at, rate in rates.items():
        other = said.get(at - 1 + by)
        if other is None:
            continue
        if abs(rate - other) > SAME * abs(other):
            return False
        pairs += other != said[at - 1]
    # a rate that stays, or one step of a schedule of steps, is as much a schedule of another length
    return pairs >= 2 and len({f"{rate:.6g}" for rate in rates.values()}) >= 2


def later_rates(walk: TwoWalks) -> str:
    """Return the rates of both at the updates after the one at which they part, as the end of a sentence."""
    rates, said = _rates(walk), rates_of(walk)
    later = [at for at in sorted(rates) if at > walk.done and at - 1 in said][:FURTHER]
    if walk.done < 2 or not later:
        return ""
    shown = [", ".join(f"{one:.6g}" for one in each) for each in ([rates[at] for at in later],
             [said[at - 1] for at in later])]  # fmt: skip
    return f"; then {shown[0]} there, {shown[1]} here"


def moving_momentum(walk: TwoWalks, first: str, second: str) -> str:
    """Return that two momenta of which one moves with a schedule are a step apart, or on other schedules.

    Args:
        walk: Two trainers whose momenta keep other shares of themselves.
        first: The slot of the trainer's momentum.
        second: The port's.
    """
    go_on(walk)
    kept = []
    for lane, slot in zip(walk.lanes, (first, second), strict=False):
        shares = {at: shares_of(lane, slot, at) for at in range(2, len(lane.moments)) if lane.moments[at - 1].slots}
        kept.append({at: one.kept for at, one in shares.items() if one is not None})
    here, there = kept
    moves = [len(one) > 1 and max(one.values()) - min(one.values()) > SAME for one in kept]
    if not any(moves):
        return ""
    for by, words in ((1, "after"), (-1, "before")):
        pairs = [(there[at], here[at + by]) for at in there if at + by in here]
        if all(moves) and len(pairs) > 1 and all(abs(one - two) <= SAME for one, two in pairs):
            at = min(there)
            return (
                f"schedule: off by one step: update {at} of the port uses the momentum of the update {words} "
                f"({there[at]:.6g}, not {here.get(at, 0.0):.6g})"
            )
    shown = [", ".join(f"{one[at]:.6g}" for at in sorted(one)[:3]) for one in kept]
    rates, said = _rates(walk), rates_of(walk)
    parted = [
        at for at in sorted(rates) if at - 1 in said and abs(rates[at] - said[at - 1]) > SAME * abs(said[at - 1])
    ]
    if all(moves) and parted:
        at = parted[0]
        return (
            f"schedule: the rates part at update {at}: {rates[at]:.6g} there, {said[at - 1]:.6g} here, and momentum "
            f"with them: it keeps {shown[0]} of itself from update {min(here)} on here, {shown[1]} there"
        )
    return f"momentum: it moves by a schedule: it keeps {shown[0]} of itself here, {shown[1]} there"


def _rates(walk: TwoWalks, *, whole: bool = True) -> dict[int, float]:
    """Return update, counted from 1, to the port's rate; empty where it cannot be read off the moves.

    Args:
        walk: Two trainers that part by a rate.
        whole: Whether rates are compared as they are; otherwise without bias corrections, as where betas move too.
    """
    go_on(walk)
    one, two = move_form(walk, 0), move_form(walk, 1)
    if one is None or two is None or (one.mixed, bool(one.under)) != (two.mixed, bool(two.under)):
        return {}
    said, found = rates_of(walk), {}
    updates = sorted(one.moves.keys() & two.moves.keys())
    betas = [betas_of(lane, form, updates) for lane, form in zip(walk.lanes, (one, two), strict=False)]
    for at in updates:
        sides = [one_value({leaf: each.rate for leaf, each in form.moves[at].items()}, SAME) for form in (one, two)]
        if not sides[0] or sides[1] is None or at - 1 not in said:
            continue
        corrections = [
            (1 - power_of(first, at) if first else 1.0) / (1 - power_of(second, at) if second else 1.0) ** 0.5
            for first, second in betas
        ]
        found[at] = said[at - 1] * sides[1] / sides[0] * (1.0 if whole else corrections[1] / corrections[0])
    return found
