"""Decay that is added to the gradient (L2) before it is clipped, or after that: by what clipping holds to one norm.

Clipped before, the norm of each part of the gradient is the limit, and decay comes on top of it; clipped after, the
norm of gradient and decay together is. Where all are scaled by one number, the shares of several updates tell it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from parity.checks.proving.effective import FEWEST, fitted, one_value
from parity.checks.proving.seen import SeenUpdate
from parity.checks.proving.slots import LeafArrays
from parity.checks.proving.unit_forms import GradientForm, unit_forms, value_forms

__all__ = ["BEFORE", "before_clip_forms", "order_cause", "scaled_order"]

FIT = 1e-7
"""How far an element may be from what a share gives, relative to the largest one."""

SAME = 1e-5
"""Relative distance of two shares that are one."""

BEFORE = " decayed"
"""What the kind of a form ends with that clips gradient and decay together."""


def before_clip_forms(update: SeenUpdate, seen: LeafArrays) -> list[GradientForm]:
    """Return clippings by parts or by value of the gradient with a share of the parameters in it.

    Args:
        update: The first one.
        seen: The gradient that the optimizer was given, but for its scale.
    """
    found: list[GradientForm] = []
    for only_matrices in (False, True):
        leaves = frozenset(leaf for leaf in update.gradient if not only_matrices or update.before[leaf].ndim > 1)
        share = _share(update, seen, leaves)
        if share is None or (only_matrices and len(leaves) == len(update.gradient)):
            continue
        inner = _with_decay(update, share, leaves)
        found += [_decayed(form, share, leaves)
                  for form in (*unit_forms(inner, seen), *value_forms(inner, seen))]  # fmt: skip
    return found


def _share(update: SeenUpdate, seen: LeafArrays, leaves: frozenset[str]) -> float | None:
    """Return how much of the parameters is beside the gradient, one share in all leaves that show it."""
    top = max(float(np.abs(np.asarray(seen[leaf])).max(initial=0.0)) for leaf in update.gradient)
    shares: dict[str, float] = {}
    for leaf in leaves:
        g, p, o = (np.asarray(one[leaf]).ravel() for one in (update.gradient, update.before, seen))
        below = np.abs(o) < top * (1 - FIT)  # where elements are clipped one by one, those at the limit show nothing
        if int(below.sum()) <= FEWEST or not np.any(p[below]) or not np.any(o[below]):
            continue
        parts = fitted([g[below], p[below]], o[below], FIT)
        if parts is None or not parts[0]:
            return None
        shares[leaf] = parts[1] / parts[0]
    return one_value(shares, SAME) or None


def _with_decay(update: SeenUpdate, share: float, leaves: frozenset[str]) -> SeenUpdate:
    gradient = {leaf: g + share * update.before[leaf] if leaf in leaves else g
                for leaf, g in update.gradient.items()}  # fmt: skip
    return replace(update, gradient=gradient)


def _decayed(form: GradientForm, share: float, leaves: frozenset[str]) -> GradientForm:
    """Return a form of the gradient with decay in it, as one of the gradient and the parameters."""
    inner, free = form.make, form.freed
    return replace(
        form, kind=form.kind + BEFORE, make=lambda one: inner(_with_decay(one, share, leaves)), decay=share,
        decayed=leaves, words=f"{form.words}, of the gradient with {share:.6g} of the parameters added (L2)",
        freed=None if free is None else lambda scale: _decayed(free(scale), share, leaves),
    )  # fmt: skip


def order_cause(one: GradientForm, two: GradientForm) -> str:
    """Return that one clips the gradient with its decay and the other before that; empty where both do alike.

    Args:
        one: The form of the trainer's gradients.
        two: Of the port's.
    """
    for first, second, words in ((one, two, ("here", "there")), (two, one, ("there", "here"))):
        if first.kind == second.kind + BEFORE:
            added = "decay is added after that" if second.added or second.decay else "no decay is added"
            return (
                f"decay: {first.decay:.6g} of the parameters is added to the gradient (L2) before it is clipped "
                f"{words[0]} ({first.words.partition(', of the gradient')[0]}); {words[1]} the gradient is clipped "
                f"alone, {added}"
            )
    return ""


def scaled_order(shares: Sequence[tuple[float, float] | None]) -> str:
    """Return whether decay is added `before` all is scaled by one number or `after` it; empty where that is not told.

    Args:
        shares: Of gradient and parameters in each update; None where they do not make one.
    """
    known = np.array([one for one in shares if one is not None and one[0]])
    if len(known) < len(shares) or len(known) < 3 or np.ptp(known[:, 0]) <= 1e-3 * np.abs(known[:, 0]).max():
        return ""
    for values, word in ((known[:, 1], "after"), (known[:, 1] / known[:, 0], "before")):
        if np.any(values) and np.ptp(values) <= SAME * np.abs(values).max():
            return word
    return ""
