"""Moves by the sign of a mix of a moment and the gradient, as Lion makes them: which mixes give all signs.

Signs tell no number, but bounds of one: a share of the moment before the update at which an element would turn. Two
runs whose bounds do not meet take other mixes.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from parity.checks.proving.effective import FEWEST, fitted
from parity.checks.proving.move_forms import move_form
from parity.checks.proving.seen import SeenUpdate, seen_updates
from parity.checks.proving.walk import TwoWalks

__all__ = ["sign_cause", "sign_rate"]

FIT = 1e-9
"""How far a move may be from a sign times a rate, and a share of the parameters, relative to its largest element."""

SHARES = (0.9, 0.95, 0.8, 0.99, 0.5, 0.98, 0.0)
"""From which the signs of a move are read where it decays too: each is tried, and counts where it gives the move."""


def sign_cause(walk: TwoWalks) -> str:
    """Return that two take the sign of other mixes of moment and gradient, or one of them no sign."""
    one, two = (_bounds(walk, at) for at in (0, 1))
    if one is None and two is None:
        return ""
    if one is None or two is None:
        who, other, at = ("the trainer", "the port", 1) if two is None else ("the port", "the trainer", 0)
        form = move_form(walk, at)
        if form is None or form.signed:
            return ""
        return f"sign: {who} moves every element by the same number (the sign of a moment, as Lion), {other} does not"
    (low, high), (below, above) = one, two
    # one element that turns is the end of both: from one state it lies on either side
    if low >= above * (1 - FIT) or below >= high * (1 - FIT):
        return (
            "sign: of the moment before the update and the gradient, the sign is taken of a mix with a share of "
            f"{low:.4g} to {high:.4g} of the moment here, {below:.4g} to {above:.4g} there (beta1, or a moment that "
            "is updated first)"
        )
    return ""


def sign_rate(update: SeenUpdate, leaf: str) -> float | None:
    """Return the rate of a leaf that moves by signs; None where it does not.

    Args:
        update: One update of a run.
        leaf: One with several elements.
    """
    u, p = update.move[leaf].ravel(), update.before[leaf].ravel()
    if u.size < 2 * FEWEST:
        return None
    # what a decay takes of an element is less than its rate: the move has the sign, whatever the mix was
    for columns in ([-np.sign(u)], [-np.sign(u), p]):
        parts = fitted(columns, u, FIT)
        if parts is not None:
            return abs(parts[0])
    return None


def _bounds(walk: TwoWalks, at: int) -> tuple[float, float] | None:
    """Return between which shares of the moment the signs of all moves lie; None where they are no such signs."""
    updates = seen_updates(walk, at)
    for slot in updates[-1].kept if updates else ():
        low, high = 0.0, 1.0
        for update in updates:
            found = _ends(update, slot)
            if found is None:
                break
            low, high = max(low, found[0]), min(high, found[1])
        else:
            if low < high:
                return low, high
    return None


def _ends(update: SeenUpdate, slot: str) -> tuple[float, float] | None:
    """Return the bounds of one update; None where the moves of a leaf are no signs times one rate of the leaf."""
    low, high = 0.0, 1.0
    for leaf, move in update.move.items():
        u, p, g, m = (
            one.ravel() for one in (move, update.before[leaf], update.gradient[leaf], update.held[slot][leaf])
        )
        signs = _signs(u, p, g, m)
        if signs is None:
            return None
        # share * m + (1 - share) * g has the sign of the move: where both agree in sign any share has it
        a, b = signs * m, signs * g
        if ((a < 0.0) & (b < 0.0)).any():
            return None
        turns = (a < 0.0) | (b < 0.0)
        ends = b[turns] / (b[turns] - a[turns])
        falls = a[turns] < 0.0  # the moment is against the sign: its share is below
        low, high = max([low, *ends[~falls]]), min([high, *ends[falls]])
    return low, high


def _signs(
    u: NDArray[np.float64], p: NDArray[np.float64], g: NDArray[np.float64], m: NDArray[np.float64]
) -> NDArray[np.float64] | None:
    """Return the signs that a move has the other way round; None where it is no sign times a rate."""
    size = float(np.abs(u).max(initial=0.0))
    if not size:
        return None
    if u.size > 1 and float(np.abs(np.abs(u) - size).max()) <= FIT * size:
        return -np.sign(u)
    if u.size < FEWEST:
        return np.zeros_like(u)  # a single element shows no sign beside a decay: it bounds nothing
    for share in SHARES:
        made = np.sign(share * m + (1 - share) * g)
        parts = fitted([made, p], u, FIT)
        if parts is not None and parts[0] < 0.0:
            return made
    return None
