"""The rates of all updates of a trainer and its port, from the first one on: both are run once more for that.

A walk keeps few states, from which a schedule is not told. Each rate is read off the moves of its own run, by the form
that its moves have; what is set from an average at an update, as by a lookahead, has no rate there.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from parity.checks.proving.bias_forms import betas_of, power_of
from parity.checks.proving.effective import one_value
from parity.checks.proving.lockstep import MODEL, Lane
from parity.checks.proving.move_fits import MoveWay, fitted_move
from parity.checks.proving.move_forms import MoveForm, move_form
from parity.checks.proving.nadam_forms import nadam_kind, nadam_parts
from parity.checks.proving.schedule_fits import unlike_schedules
from parity.checks.proving.seen import seen_updates
from parity.checks.proving.walk import TwoWalks
from parity.errors import ParityError

__all__ = ["schedules_of"]

SAME = 1e-6
"""Relative distance of two rates that are one."""

MOST_NUMBERS = 20_000_000
"""Numbers of all states beyond which nothing is run once more."""

LONGEST = 20.0
"""Seconds of all updates beyond which the same holds."""


def schedules_of(walk: TwoWalks) -> str:
    """Return in what the schedules of two runs differ, as a phrase; empty where that is not told.

    Args:
        walk: Two trainers that part by a rate.
    """
    series = _series(walk)
    return "" if series is None else unlike_schedules(*series)


def _series(walk: TwoWalks) -> tuple[list[float], list[float]] | None:
    """Return the rates of both, of the first updates on, as many as follow one another without a gap."""
    lanes = walk.lanes[:2]
    size = sum(np.size(one) for lane in lanes for one in lane.moments[0].view.arrays.values())
    if size * walk.steps > MOST_NUMBERS or sum(lane.seconds for lane in lanes) * walk.steps > LONGEST:
        return None
    try:
        again = replace(walk, lanes=[_again(lane, walk.steps) for lane in lanes], given={}, done=walk.steps)
        sides = [_rates(again, at) for at in (0, 1)]
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


def _rates(walk: TwoWalks, at: int) -> dict[int, float] | None:
    """Return update to the rate of the largest leaf, without bias corrections; None where no form makes the moves."""
    form, lane = move_form(walk, at), walk.lanes[at]
    if form is None:
        return None
    way = MoveWay(form.top, form.mixed, form.under, form.mean, form.place, form.signed)
    updates = [one for one in seen_updates(walk, at) if not lane.is_set(one.at)]
    moves = {one.at: made[1] for one in updates if (made := fitted_move(way, one)) is not None}
    leaves = [leaf for leaf in updates[0].before if all(leaf in each for each in moves.values())] if updates else []
    if not leaves:
        return None
    leaf = max(leaves, key=lambda one: updates[0].before[one].size)
    scales = _scales(lane, form, sorted(moves), {n: each[leaf].ahead for n, each in moves.items()})
    return {n: each[leaf].rate / scales.get(n, 1.0) for n, each in moves.items()}


def _scales(lane: Lane, form: MoveForm, updates: list[int], aheads: dict[int, float]) -> dict[int, float]:
    """Return what is in the rate of each update beside it: bias corrections, and NAdam's weights."""
    first, second = betas_of(lane, form, updates) if form.under else (None, None)
    one, two = ({at: 1 - power_of(each, at) if each else 1.0 for at in updates} for each in (first, second))
    if form.mixed == "gradient" and form.under and first:
        beta = one_value({str(at): value for at, value in first.items()}, SAME)
        kind = nadam_kind(beta, aheads) if beta is not None else ""
        if kind and beta is not None:
            return {at: nadam_parts(kind, beta, at)[0] * two[at] ** 0.5 for at in updates}
    return {at: two[at] ** 0.5 / one[at] for at in updates}


def _told(lane: Lane) -> dict[int, float]:
    """Return the completed updates to the rate that an optimizer in the state says then."""
    found = {}
    for at, moment in enumerate(lane.moments):
        rates = [float(v) for place, v in moment.view.arrays.items() if ".lr." in f".{place}" and np.ndim(v) == 0]
        if rates:
            found[at] = rates[0]
    return found
