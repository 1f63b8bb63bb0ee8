"""Forms of a gradient to which a share of the parameters is added (L2), where no first moment shows that by itself.

A sum of squares, as of RMSprop and Adagrad, holds the square of both together; and where every element of the
gradient is clipped before, what is at the limit is no multiple of the gradient.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from parity.checks.proving.effective import FEWEST, one_value
from parity.checks.proving.seen import SeenUpdate, decays_of, joined
from parity.checks.proving.slots import LeafArrays
from parity.checks.proving.unit_forms import GradientForm

__all__ = ["clipped_decayed_forms", "decayed_forms"]

FIT = 1e-7
"""How far an element may be from what a form gives, relative to the largest one."""

SHARES = (0.5, 0.25, 0.1)
"""Shares of all elements, those of the smallest gradients, of which none may be clipped: tried in turn."""


def decayed_forms(update: SeenUpdate, seen: LeafArrays) -> list[GradientForm]:
    """Return the gradients with one share of the parameters in some leaves of which the first update is made.

    Args:
        update: The first one.
        seen: The gradient that the optimizer was given, but for its scale.
    """
    scales: dict[str, float] = {}
    shares: dict[str, float] = {}
    small = [leaf for leaf, g in update.gradient.items() if g.size <= FEWEST or not np.any(update.before[leaf])]
    for leaf in (one for one in update.gradient if one not in small):
        found = _parts(update, seen, leaf)
        if found is None:
            return []
        scales[leaf], shares[leaf] = found
    scale = one_value(scales)
    share = one_value({leaf: one for leaf, one in shares.items() if one})
    if scale is None or share is None:
        return []
    decayed = {leaf for leaf, one in shares.items() if one}
    for leaf in small:  # any number is a multiple of one: what all others have is tried
        g, p, o = (np.asarray(one[leaf]) for one in (update.gradient, update.before, seen))
        limit = FIT * float(np.abs(o).max(initial=0.0))
        fits = [float(np.abs(o - scale * g - one * p).max(initial=0.0)) <= limit for one in (0.0, share)]
        if not any(fits):
            return []
        decayed |= {leaf} if fits[1] and not fits[0] else set()
    # leaves of zeros, as biases are at first, show at later updates only whether they decay
    zeros = {leaf for leaf in small if not np.any(update.before[leaf])}
    sets = [frozenset(decayed), frozenset(decayed | zeros)] if zeros else [frozenset(decayed)]
    return [_decayed(share / scale, leaves) for leaves in sets]


def _parts(update: SeenUpdate, seen: LeafArrays, leaf: str) -> tuple[float, float] | None:
    """Return how much of gradient and parameters a leaf is made of; None where they do not make it."""
    g, p, o = (np.asarray(one[leaf]).ravel() for one in (update.gradient, update.before, seen))
    for columns in ([g], [g, p]):
        table = np.stack(columns, 1)
        parts, *_ = np.linalg.lstsq(table, o, rcond=None)
        if float(np.abs(o - table @ parts).max()) <= FIT * float(np.abs(o).max(initial=0.0)):
            return float(parts[0]), float(parts[1]) if len(parts) > 1 else 0.0
    return None


def _decayed(share: float, leaves: frozenset[str]) -> GradientForm:
    def make(one: SeenUpdate) -> LeafArrays:
        return {leaf: g + share * one.before[leaf] if leaf in leaves else g for leaf, g in one.gradient.items()}

    words = f"the gradient of the loss with {share:.6g} of the parameters added (L2)"
    return GradientForm("plain", "decay", words, make, decay=share, decayed=leaves)


def clipped_decayed_forms(update: SeenUpdate, seen: LeafArrays) -> list[GradientForm]:
    """Return a clipping of every element by itself, to which a share of the parameters is added then.

    Args:
        update: The first one.
        seen: The gradient that the optimizer was given, but for its scale.
    """
    leaves = list(update.gradient)
    g, o = joined(update.gradient, leaves), joined(seen, leaves)
    order = np.argsort(np.abs(g))
    found = []
    for only_matrices, column in enumerate(columns[0] for columns in decays_of(update, leaves) if columns):
        for part in SHARES:
            few = order[: max(2 * FEWEST, int(part * g.size))]
            parts = _clipped_parts(g, column, o, few)
            if parts is not None:
                decayed = frozenset(leaf for leaf in leaves if not only_matrices or update.before[leaf].ndim > 1)
                found.append(_clipped_decayed(*parts, decayed))
                break
    return found


def _clipped_parts(g: NDArray[np.float64], p: NDArray[np.float64], o: NDArray[np.float64], few: NDArray[np.int64]
                   ) -> tuple[float, float] | None:  # fmt: skip
    """Return the limit and the share of the parameters, in units of the gradient; None where these do not make it."""
    table = np.stack([g[few], p[few]], 1)
    (scale, share), *_ = np.linalg.lstsq(table, o[few], rcond=None)
    limit = FIT * float(np.abs(o).max(initial=0.0))
    if not scale > 0.0 or not share or float(np.abs(o[few] - table @ (scale, share)).max()) > limit:
        return None
    left = o - share * p
    off = np.abs(left - scale * g) > limit
    top = float(np.median(np.abs(left[off]))) if off.any() else 0.0
    if int(off.sum()) < 2 or float(np.abs(left - np.clip(scale * g, -top, top)).max()) > limit:
        return None
    return top / float(scale), float(share / scale)


def _clipped_decayed(top: float, share: float, leaves: frozenset[str]) -> GradientForm:
    def make(one: SeenUpdate) -> LeafArrays:
        return {leaf: np.clip(g, -top, top) + (share * one.before[leaf] if leaf in leaves else 0.0)
                for leaf, g in one.gradient.items()}  # fmt: skip

    words = f"every element is clipped by itself (by value) to {top:.6g}, decay is added after that"
    return GradientForm("value", "clipping", words, make, top, top, decay=share, decayed=leaves)
