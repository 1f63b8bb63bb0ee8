"""MomentBetas of moments, read off the moments themselves, and the factors that errors of bias correction give.

What a second moment takes is the square of what the first one takes, whatever was done to the gradient: both moments
and those before them tell both betas, under clipping and decay too.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from parity.checks.proving.effective import fitted, one_value
from parity.checks.proving.lockstep import MODEL, Lane
from parity.checks.proving.momentum_causes import shares_of
from parity.checks.proving.move_forms import MoveForm

__all__ = ["betas_of", "both_at", "corrections", "power_of"]

SAME = 1e-6
"""Relative distance of two betas that are one."""

FIT = 1e-9
"""How far a second moment may be from what both betas give, relative to its largest element."""

MomentBetas = dict[int, float]
"""Update to what a moment keeps of itself there; at the first one as far as it shows."""


def corrections(lane: Lane, form: MoveForm, updates: list[int]) -> dict[str, dict[int, float]]:
    """Return words of an error of bias correction to the factor of each update."""
    # a sum keeps the whole of itself, 1 but for its rounding, and has no correction
    firsts, seconds = (each if each and max(each.values()) < 1.0 else None for each in betas_of(lane, form, updates))
    made: dict[str, dict[int, float]] = {}
    one, two = ({at: 1.0 - power_of(each, at) for at in (*updates, updates[-1] + 1)} if each else None
                for each in (firsts, seconds))  # fmt: skip
    shown = [f"beta {each[max(each)]:.6g}" if each else "" for each in (firsts, seconds)]
    if one:
        made[f"{{who}} does not correct its first moment ({{times:.6g}} times, {shown[0]})"] = one
    if two:
        made["{other} divides the second moment by one less its decay, the other does not"] = {
            at: value**-0.5 for at, value in two.items()
        }
    if one and two:
        made[f"{{who}} does not correct its moments ({{times:.6g}} times, {' and '.join(shown)})"] = {
            at: one[at] / two[at] ** 0.5 for at in one
        }
    steady = [each is None or one_value({str(at): beta for at, beta in each.items()}, SAME) is not None
              for each in (firsts, seconds)]  # fmt: skip
    if all(steady) and one and two:
        made["{who} counts one update more than {other} in it"] = {
            at: (two[at + 1] / two[at]) ** 0.5 * one[at] / one[at + 1] for at in updates if at + 1 in one
        }
    elif all(steady) and one:
        made["{who} counts one update more than {other} in it"] = {
            at: one[at] / one[at + 1] for at in updates if at + 1 in one
        }
    if firsts and not steady[0] and min(updates) == 1:
        made["{who} divides by one less the product of the betas of all updates, {other} by one less the power of "
             "the last (a beta that moves, as under OneCycle)"] = {
            at: (1.0 - firsts[at] ** at) / (1.0 - float(np.prod([firsts[n] for n in range(1, at + 1)])))
            for at in updates
        }  # fmt: skip
    return {words: each for words, each in made.items() if set(updates) <= each.keys() or set(updates) == {*each}}


def power_of(betas: Mapping[int, float], at: int) -> float:
    """Return a beta to the power of the update."""
    return betas.get(at, betas[max(betas)]) ** at


def betas_of(lane: Lane, form: MoveForm, updates: list[int]) -> tuple[MomentBetas | None, MomentBetas | None]:
    """Return what both moments of a form keep of themselves at each update; None for one that is no such mean.

    Args:
        lane: The run.
        form: Of its moves.
        updates: That are asked for; the state before each is kept.
    """
    later = [at for at in updates if at > 1]
    if form.top and form.under and updates:
        seconds = [slot for slot in lane.moments[updates[-1]].slots if slot not in (MODEL, form.top)]
        for second in sorted(seconds, key=lambda slot: slot != form.under):
            pairs = {at: both_at(lane, form.top, second, at) for at in later}
            if pairs and None not in pairs.values():
                found = [{at: pair[n] for at, pair in pairs.items() if pair} for n in (0, 1)]
                return _with_first(lane, (form.top, second), found, updates)
    ends = []
    for slot, power in ((form.top, 1), (form.under, 2)):
        shares = {at: shares_of(lane, slot, at, power=power) for at in later} if slot else {}
        rounded = {at: float(f"{one.kept:.9g}") for at, one in shares.items() if one is not None}
        kept = {at: value for at, value in rounded.items() if 0.0 < value < 1.0}
        ends.append(kept if kept and len(kept) == len(later) else None)
    for each in ends:
        if each and 1 in updates:
            each[1] = each[min(each)]
    return ends[0], ends[1]


def both_at(lane: Lane, first: str, second: str, at: int) -> tuple[float, float] | None:
    """Return both betas at an update; None where the second moment takes no square of what the first takes.

    Args:
        lane: A run.
        first: Its first moment.
        second: Its second moment.
        at: The update, at least 2.
    """
    m, v = _arrays(lane, first, at), _arrays(lane, second, at)
    old, before = _arrays(lane, first, at - 1), _arrays(lane, second, at - 1)
    if m.size < 8 or not m.size == v.size == old.size == before.size or not np.any(old) or (v < 0.0).any():
        return None
    shares = shares_of(lane, first, at)
    if shares is not None and 0.0 < shares.kept < 1.0:
        entered = fitted([before, (m - shares.kept * old) ** 2], v, FIT)
        if entered is not None and entered[1] > 0.0 and 0.0 < entered[0] < 1.0:
            return float(f"{shares.kept:.8g}"), float(f"{entered[0]:.8g}")
    parts = fitted([before, m * m, m * old, old * old], v, FIT)
    if parts is None or parts[1] <= 0.0 or not 0.0 < parts[0] < 1.0:
        return None
    kept = -parts[2] / (2.0 * parts[1])
    if not 0.0 < kept < 1.0 or abs(parts[3] - parts[1] * kept * kept) > 1e-6 * parts[1]:
        return None
    return float(f"{kept:.8g}"), float(f"{parts[0]:.8g}")


def _arrays(lane: Lane, slot: str, at: int) -> NDArray[np.float64]:
    held = lane.moments[at].slots.get(slot, {})
    return np.concatenate([held[leaf].ravel() for leaf in sorted(held)]) if held else np.zeros(0)


def _with_first(
    lane: Lane, slots: tuple[str, str], found: list[MomentBetas], updates: list[int]
) -> tuple[MomentBetas | None, MomentBetas | None]:
    """Return betas with those of the first update, where both moments and the gradient tell them."""
    if 1 not in updates:
        return found[0], found[1]
    later = [each[min(each)] for each in found]
    found[0][1], found[1][1] = later
    gradient = lane.gradients.get(0, {})
    leaves = [leaf for leaf in lane.moments[1].slots.get(slots[0], {}) if leaf in gradient]
    if not leaves:
        return found[0], found[1]
    m, v, g = (np.concatenate([one[leaf].ravel() for leaf in leaves])
               for one in (lane.moments[1].slots[slots[0]], lane.moments[1].slots[slots[1]], gradient))  # fmt: skip
    part = float(v @ (m * m)) / max(float((m * m) @ (m * m)), 1e-300)  # (1 - beta2) / (1 - beta1)^2
    first = 1.0 - ((1.0 - later[1]) / part) ** 0.5 if part > 0.0 else later[0]
    share = fitted([g], m, 1e-7)
    # where beta2 stays, the moments tell beta1 of the first update; a gradient that is taken whole has to agree
    if share is not None and 0.0 < first < 1.0 and abs(share[0] - (1.0 - first)) <= 1e-4 * abs(share[0]):
        found[0][1] = float(f"{1.0 - share[0]:.8g}")
    return found[0], found[1]
