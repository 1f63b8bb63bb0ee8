"""Epsilons of updates that are divided by one root and multiplied by another, as Adadelta makes them.

Its updates u are of the root of (d + epsilon) over that of (v + epsilon), where v is a mean of squared gradients and
d one of squared updates. After the first update 1/d is 1/epsilon + 1/v at every element, whatever the gradient, the
rate and what both means keep are: two slots alone tell epsilon. Beside the roots, it is so of the roots themselves.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from parity.checks.proving.effective import FEWEST, fitted
from parity.checks.proving.lockstep import MODEL
from parity.checks.proving.walk import TwoWalks

__all__ = ["delta_forms_cause"]

FIT = 1e-7
"""How far an element may be from what its form gives, relative to it."""

TOLD = 1e-4
"""Least share that epsilon must have of what makes an element somewhere: below, rounding alone would tell it."""

SAME = 1e-5
"""Relative distance of two epsilons that are one."""


@dataclass(frozen=True)
class _DeltaForm:
    place: str
    """Of epsilon: `under` the roots or `beside` them."""
    slope: float
    """How much of the squared update is taken, over how much of the squared gradient."""
    epsilon: float


def delta_forms_cause(walk: TwoWalks) -> str:
    """Return what two roots of an Adadelta differ in; empty where one of the runs has no such form.

    Args:
        walk: Two trainers after their first update.
    """
    one, two = (_form_of(walk, at) for at in (0, 1))
    if one is None or two is None:
        return ""
    if one.place != two.place:
        words = ("under both roots", "beside them") if one.place == "under" else ("beside both roots", "under them")
        return f"epsilon of the optimizer: {words[0]} here, {words[1]} there (Adadelta)"
    if abs(one.slope - two.slope) > SAME * one.slope:
        return (
            f"second moment: the mean of squared updates takes {two.slope / one.slope:.6g} times as much of them "
            "there as here, beside what that of squared gradients takes"
        )
    if abs(one.epsilon - two.epsilon) > SAME * max(one.epsilon, two.epsilon):
        return (
            f"epsilon of the optimizer: {one.epsilon:.4g} here, {two.epsilon:.4g} there, {one.place} the roots of "
            "squared gradients and of squared updates (Adadelta)"
        )
    return ""


def _form_of(walk: TwoWalks, at: int) -> _DeltaForm | None:
    """Return the form of two slots after the first update; None where no two have it, or several have other ones."""
    lane = walk.lanes[at]
    start, slots = lane.moments[0].slots, lane.moments[1].slots
    born = [slot for slot in slots if slot != MODEL and not any(map(np.any, start.get(slot, {}).values()))]
    found = []
    for updates in born:
        for squares in (one for one in born if one != updates):
            leaves = [leaf for leaf in slots[updates] if leaf in slots[squares]]
            if not leaves:
                continue
            d, v = (np.concatenate([slots[slot][leaf].ravel() for leaf in leaves]) for slot in (updates, squares))
            if (d < 0.0).any() or (v < 0.0).any():
                continue
            good = v > 1e-9 * float(v.max(initial=0.0))  # where no gradient arrives, nothing is told
            if int(good.sum()) < 4 * FEWEST or not (d[good] > 0.0).all():
                continue
            # two slots of one value have a slope and no epsilon: they are no such pair
            for place, a, b in (("under", d[good], v[good]), ("beside", d[good] ** 0.5, v[good] ** 0.5)):
                parts = fitted([a / b, a], np.ones_like(a), FIT)
                if parts is not None and parts[0] > 0.0 and parts[1] > 0.0 and _is_told(parts, a, b):
                    found.append(_DeltaForm(place, parts[0], parts[0] / parts[1]))
    return found[0] if len(found) == 1 else None


def _is_told(parts: tuple[float, ...], a: np.ndarray, b: np.ndarray) -> bool:
    """Return whether both terms are seen: each is a share of the whole at some element, and they vary."""
    shares = [parts[0] * a / b, parts[1] * a]
    return all(float(one.max()) > TOLD and float(np.ptp(one)) > TOLD for one in shares)
