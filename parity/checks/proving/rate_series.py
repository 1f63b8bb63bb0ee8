"""The rates of all updates of a trainer and its port, from the first one on: both are run once more for that.

A walk keeps few states, from which a schedule is not told. Each rate is read off the moves of its own run, by their
form; what is set from an average at an update, as by a lookahead, is followed on its way to the parameters.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import cast

import numpy as np

from parity.checks.proving.bias_forms import betas_of, power_of
from parity.checks.proving.effective import fitted, one_value
from parity.checks.proving.lion_forms import sign_rate
from parity.checks.proving.lockstep import MODEL, Lane
from parity.checks.proving.move_fits import MoveWay, columns_of, divisor_of, fitted_move
from parity.checks.proving.move_forms import MoveForm, move_form
from parity.checks.proving.nadam_forms import nadam_kind, nadam_parts
from parity.checks.proving.schedule_fits import unlike_schedules
from parity.checks.proving.seen import SeenUpdate, seen_updates
from parity.checks.proving.walk import TwoWalks
from parity.errors import ParityError

__all__ = ["parted_rates_cause", "schedules_of"]

SAME = 1e-6
"""Relative distance of two rates that are one."""

EXACT = 1e-10
"""The same where the schedules of both are known, and known to be others."""

MOST_NUMBERS = 20_000_000
"""Numbers of all states beyond which nothing is run once more."""

AGAIN = -1
"""Where a walk keeps the runs that were made once more."""

LONGEST = 20.0
"""Seconds of all updates beyond which the same holds."""


def schedules_of(walk: TwoWalks) -> str:
    """Return in what the schedules of two runs differ, as a phrase; empty where that is not told.

    Args:
        walk: Two trainers that part by a rate.
    """
    # where an optimizer corrects no moment, that is in no rate of it
    found = (_series(walk, corrected=corrected) for corrected in (True, False))
    return next((said for one in found if one is not None and (said := unlike_schedules(*one))), "")


def parted_rates_cause(walk: TwoWalks) -> str:
    """Return that two part by their rates alone, where their moves at that update do not show it by themselves.

    Args:
        walk: Two trainers whose models part after an update, such as one at which both are set from an average.
    """
    if walk.what != MODEL or walk.done < 2:
        return ""
    series = _series(walk)
    if series is None:
        return ""
    said = unlike_schedules(*series)
    # long schedules part by less than rates of moves that are one, and show by all rates that they are others
    apart = [abs(one - two) / max(abs(one), np.finfo(np.float64).tiny) for one, two in zip(*series, strict=True)]
    limits = (SAME, EXACT) if said else (SAME,)
    parted = [next((at for at, one in enumerate(apart, 1) if one > limit), 0) for limit in limits]
    if walk.done not in parted:
        return ""
    here, there = (one[walk.done - 1] for one in series)
    digits = 6 if parted[0] == walk.done else 12
    rates = f"{there:.{digits}g} there, {here:.{digits}g} here"
    return f"schedule: the rates part at update {walk.done}: {rates}{said and f': {said}'}"


def _series(walk: TwoWalks, *, corrected: bool = True) -> tuple[list[float], list[float]] | None:
    """Return the rates of both, of the first updates on, as many as follow one another without a gap."""
    lanes = walk.lanes[:2]
    size = sum(np.size(one) for lane in lanes for one in lane.moments[0].view.arrays.values())
    if size * walk.steps > MOST_NUMBERS or sum(lane.seconds for lane in lanes) * walk.steps > LONGEST:
        return None
    try:
        if AGAIN not in walk.given:
            kept = [_again(lane, walk.steps) for lane in lanes]
            walk.given[AGAIN] = replace(walk, lanes=kept, given={}, done=walk.steps)
        again = cast(TwoWalks, walk.given[AGAIN])
        sides = [_rates(again, at, corrected) for at in (0, 1)]
    except ParityError:
        return None
    told = _told(again.lanes[0])
    if None in sides:
        return None
    here, there = (one for one in sides if one is not None)
    updates = sorted(here.keys() & there.keys())
    if not updates or updates[0] != 1:
        return None
    # what the trainer's optimizer says of itself has no rounding of a fit, and no factor of a form in it
    late = next((n for n in (0, 1) if all(abs(told.get(at - 1 + n, 0.0) - here[at]) <= SAME * abs(here[at])
                                          for at in updates)), None)  # fmt: skip
    base = {at: told[at - 1 + late] if late is not None else here[at] for at in updates}
    both = {at: (base[at], base[at] * there[at] / here[at] if here[at] else there[at]) for at in updates}
    whole = next((n for n in range(1, len(both) + 2) if n not in both), 1)
    return [both[n][0] for n in range(1, whole)], [both[n][1] for n in range(1, whole)]


def _again(lane: Lane, steps: int) -> Lane:
    """Return a run from the same start, of which every state is kept."""
    kept = _KeptLane(lane.trainer, lane.second, False, homes=lane.homes, lift=lane.lift)
    kept.run = lane.trainer.probe.begin(dict(lane.moments[0].slots[MODEL]), lift=lane.lift)
    kept.keep(float("nan"))
    for step in range(steps):
        kept.advance(step)
    return kept


class _KeptLane(Lane):
    """A run of which no state is dropped."""

    def drop(self) -> None:
        """Keep all."""


def _rates(walk: TwoWalks, at: int, corrected: bool) -> dict[int, float] | None:
    """Return update to the rate of the largest leaf, without bias corrections; None where no form makes the moves."""
    form, lane = move_form(walk, at), walk.lanes[at]
    seen = seen_updates(walk, at)
    updates = [one for one in seen if not lane.set_from(one.at)]
    if not updates:
        return None
    if form is None:
        return _by_signs(updates)
    way = MoveWay(form.top, form.mixed, form.under, form.mean, form.place, form.signed)
    moves = {one.at: made[1] for one in updates if (made := fitted_move(way, one)) is not None}
    leaves = [leaf for leaf in updates[0].before if all(leaf in each for each in moves.values())]
    if not leaves:
        return None
    leaf = max(leaves, key=lambda one: updates[0].before[one].size)
    aheads = {n: each[leaf].ahead for n, each in moves.items()}
    rates = {n: each[leaf].rate for n, each in moves.items()}
    rates |= {one.at: rate for one in seen if (rate := _set_rate(lane, form, way, one, leaf)) is not None}
    scales, first = _scales(lane, form, sorted(rates), aheads)
    rates = {n: rate / scales.get(n, 1.0) if corrected else rate for n, rate in rates.items()}
    rates |= {one.at: 0.0 for one in updates if not any(map(np.any, one.move.values()))}
    if form.mixed == "gradient" and 1 in moves and updates[0].at == 1:
        # the first moment is a share of the first gradient: how much of either is in the move is not told there
        part = fitted([updates[0].gradient[leaf].ravel()], updates[0].kept[form.top][leaf].ravel(), 1e-7)
        if part is None or first is None or not part[0]:
            return None
        rates[1] *= (1 + aheads[1] / part[0]) / (1 + first / part[0])
    return rates


def _set_rate(lane: Lane, form: MoveForm, way: MoveWay, update: SeenUpdate, leaf: str) -> float | None:
    """Return the rate of an update at which the parameters are set from a slot that goes part of the way to them."""
    slot = lane.set_from(update.at)
    if not slot or form.mixed:
        return None
    before, after = (lane.moments[n].slots[slot][leaf].ravel() for n in (update.at - 1, update.at))
    tops, under = columns_of(way, update, leaf)
    p = update.before[leaf].ravel()
    epsilon = form.epsilons[max(form.epsilons)]
    columns = [p - before, tops[0] / divisor_of(way, under, epsilon), p]
    large = under >= np.median(under)  # an epsilon, which moves with bias corrections, hardly shows there
    for used in (columns[:2], columns):
        if int(large.sum()) <= len(used):
            continue
        parts = fitted([one[large] for one in used], (after - before)[large], SAME)
        if parts is not None and parts[0]:
            return -parts[1] / parts[0]
    return None


def _by_signs(updates: Sequence[SeenUpdate]) -> dict[int, float] | None:
    """Return the rates of a run that moves by signs, as Lion does; None where it does not."""
    leaf = max(updates[0].before, key=lambda one: updates[0].before[one].size)
    rates = {one.at: sign_rate(one, leaf) for one in updates}
    return None if None in rates.values() else {at: rate for at, rate in rates.items() if rate is not None}


def _scales(
    lane: Lane, form: MoveForm, updates: list[int], aheads: dict[int, float]
) -> tuple[dict[int, float], float | None]:
    """Return what is in the rate of each update beside it: bias corrections, and NAdam's weights.

    Returns:
        Update to that factor, and how much of the gradient beside the moment the first update has to have.
    """
    first, second = betas_of(lane, form, updates) if form.under else (None, None)
    one, two = ({at: 1 - power_of(each, at) if each else 1.0 for at in updates} for each in (first, second))
    steady = one_value({str(at): ahead for at, ahead in aheads.items() if at > 1}, SAME)
    if form.mixed == "gradient" and form.under and first:
        beta = one_value({str(at): value for at, value in first.items()}, SAME)
        kind = nadam_kind(beta, aheads) if beta is not None else ""
        if kind and beta is not None:
            weights = {at: nadam_parts(kind, beta, at) for at in updates}
            scales = {at: each[0] * two[at] ** 0.5 for at, each in weights.items()}
            return scales, weights[1][1] / weights[1][0] if 1 in weights else None
    return {at: two[at] ** 0.5 / one[at] for at in updates}, steady


def _told(lane: Lane) -> dict[int, float]:
    """Return the completed updates to the rate that an optimizer in the state says then."""
    found = {}
    for at, moment in enumerate(lane.moments):
        rates = [float(v) for place, v in moment.view.arrays.items() if ".lr." in f".{place}" and np.ndim(v) == 0]
        if rates:
            found[at] = rates[0]
    return found
