"""What a second moment is made of besides the squared gradient: of a deviation (AdaBelief), the largest one (Adamax).

Each form is fitted to the updates of one run by itself, with a number that is added at each of them (an epsilon
inside the moment); where both runs have one and these differ, that is said.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from parity.checks.proving.effective import FEWEST, fitted
from parity.checks.proving.seen import SeenUpdate, joined, seen_updates
from parity.checks.proving.walk import TwoWalks

__all__ = ["second_moment_forms_cause"]

FIT = 1e-8
"""How far a moment may be from what its shares give, relative to its largest element."""

SAME = 1e-6
"""Relative distance within which two shares are one."""


@dataclass(frozen=True)
class _SecondForm:
    words: str
    kept: float
    added: float
    """Number that every update adds."""


def second_moment_forms_cause(walk: TwoWalks) -> str:
    """Return what two second moments are made of that differs; empty where one is not known."""
    one, two = (_form_of(walk, at) for at in (0, 1))
    if one is None or two is None:
        return ""
    if one.words != two.words:
        return f"second moment: of {one.words} here, of {two.words} there"
    if abs(one.added - two.added) > SAME * max(one.added, two.added) and max(one.added, two.added) > 0.0:
        return (
            f"epsilon of the optimizer: {one.added:.4g} is added to the second moment itself at each update here, "
            f"{two.added:.4g} there"
        )
    return ""


def _form_of(walk: TwoWalks, at: int) -> _SecondForm | None:
    """Return what a slot is made of at the first updates; None where no slot is a second moment."""
    updates = seen_updates(walk, at)[:3]
    if len(updates) < 2 or updates[0].at != 1:
        return None
    for slot in updates[0].kept:
        leaves = list(updates[0].gradient)
        held = joined(updates[0].held[slot], leaves)
        kept = [joined(update.kept[slot], leaves) for update in updates]
        if held.size < 2 * FEWEST or np.any(held) or any((one < 0.0).any() for one in kept) or not np.any(kept[0]):
            continue
        for words, made in _sources(updates, slot):
            form = _fitted(words, updates, slot, made)
            if form is not None:
                return form
        if (form := _largest(updates, slot)) is not None:
            return form
    return None


def _sources(updates: list[SeenUpdate], slot: str) -> Iterator[tuple[str, list[NDArray[np.float64]]]]:
    """Give words and what is squared at each update."""
    leaves = list(updates[0].gradient)
    grads = [joined(update.gradient, leaves) for update in updates]
    yield "the squared gradient", [g**2 for g in grads]
    for other in (one for one in updates[0].kept if one != slot):
        moments = [joined(update.kept[other], leaves) for update in updates]
        if any((one < 0.0).any() for one in moments):
            yield (
                "the square of the gradient less its mean (AdaBelief)",
                [(g - m) ** 2 for g, m in zip(grads, moments, strict=True)],
            )


def _fitted(words: str, updates: list[SeenUpdate], slot: str, made: list[NDArray[np.float64]]) -> _SecondForm | None:
    leaves = list(updates[0].gradient)
    old = np.concatenate([joined(update.held[slot], leaves) for update in updates])
    new = np.concatenate([joined(update.kept[slot], leaves) for update in updates])
    columns = [old, np.concatenate(made)]
    for more in ([], [np.ones_like(old)]):
        parts = fitted([*columns, *more], new, FIT)
        if parts is not None and parts[1] > 0.0 and (not more or parts[2] > 0.0):
            return _SecondForm(words, parts[0], parts[2] if more else 0.0)
    return None


def _largest(updates: list[SeenUpdate], slot: str) -> _SecondForm | None:
    """Return a moment that is the largest of its own decayed value and the gradient, as of an Adamax."""
    leaves = list(updates[0].gradient)
    first, grad = joined(updates[0].kept[slot], leaves), np.abs(joined(updates[0].gradient, leaves))
    added = float(np.median(first - grad))
    top = float(first.max())
    if added < -1e-12 * top or float(np.abs(first - grad - added).max()) > 1e-12 * top:
        return None
    for update in updates[1:]:
        old, new, g = (joined(one, leaves) for one in (update.held[slot], update.kept[slot], update.gradient))
        made = np.abs(g) + added
        rest = np.abs(new - made) > 1e-12 * top
        kept = float(np.median(new[rest] / old[rest])) if rest.any() else 0.0
        if not 0.0 < kept <= 1.0 or float(np.abs(new - np.maximum(kept * old, made)).max()) > 1e-12 * top:
            return None
    return _SecondForm("the largest gradient so far (Adamax)", 0.0, max(added, 0.0) if added > 1e-15 * top else 0.0)
