"""The rates of a trainer and its port at further updates, which tell one schedule that is late from another one.

One update at which rates part fits many schedules. Both runs go on by themselves for some updates: the rate of each
is read off its own moves, in the units in which the trainer's optimizer says its own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from parity.checks.proving.effective import one_value
from parity.checks.proving.move_forms import move_form
from parity.checks.proving.walk import TwoWalks
from parity.errors import ParityError

__all__ = ["is_shifted", "later_rates"]

FURTHER = 3
"""Updates that both make beyond the one after which they part: `lockstep.AHEAD` + 3 of them are kept."""

SAME = 1e-6
"""Relative distance within which two rates are one."""

Told = Callable[[TwoWalks], Mapping[int, float]]
"""Update, counted from 0, to the rate that the trainer's optimizer says."""


def is_shifted(walk: TwoWalks, told: Told, by: int) -> bool:
    """Return whether the port uses the rate of another update at all updates that are seen, at least two of them.

    Args:
        walk: Two trainers that part by a rate.
        told: The rates of the first.
        by: -1 for the update before, 1 for the one after.
    """
    rates, pairs = _rates(walk, told), 0
    said = told(walk)
    for at, rate in rates.items():
        other = said.get(at - 1 + by)
        if other is None:
            continue
        if abs(rate - other) > SAME * abs(other):
            return False
        pairs += other != said[at - 1]
    # a rate that stays, or one step of a schedule of steps, is as much a schedule of another length
    return pairs >= 2 and len({f"{rate:.6g}" for rate in rates.values()}) >= 2


def later_rates(walk: TwoWalks, told: Told) -> str:
    """Return the rates of both at the updates after the one at which they part, as the end of a sentence."""
    rates, said = _rates(walk, told), told(walk)
    later = [at for at in sorted(rates) if at > walk.done and at - 1 in said][:FURTHER]
    if walk.done < 2 or not later:
        return ""
    shown = [", ".join(f"{one:.6g}" for one in each) for each in ([rates[at] for at in later],
             [said[at - 1] for at in later])]  # fmt: skip
    return f"; then {shown[0]} there, {shown[1]} here"


def _rates(walk: TwoWalks, told: Told) -> dict[int, float]:
    """Return update, counted from 1, to the port's rate; empty where it cannot be read off the moves."""
    _go_on(walk)
    one, two = move_form(walk, 0), move_form(walk, 1)
    if one is None or two is None or (one.mixed, bool(one.under)) != (two.mixed, bool(two.under)):
        return {}
    said, found = told(walk), {}
    for at in sorted(one.moves.keys() & two.moves.keys()):
        sides = [one_value({leaf: each.rate for leaf, each in form.moves[at].items()}, SAME) for form in (one, two)]
        if sides[0] and sides[1] is not None and at - 1 in said:
            found[at] = said[at - 1] * sides[1] / sides[0]
    return found


def _go_on(walk: TwoWalks) -> None:
    """Have both runs make some further updates, each from where it is, as far as updates were asked for."""
    for lane in walk.lanes[:2]:
        while len(lane.moments) <= min(walk.done + FURTHER, walk.steps):
            try:
                lane.advance(len(lane.moments) - 1)
            except ParityError:
                return
