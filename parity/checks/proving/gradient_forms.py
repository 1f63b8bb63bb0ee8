"""What gradient each optimizer was given, told of each run by itself: of which form all of its updates are made.

A form makes a gradient of the measured one and of the parameters: clipped in parts, by units of rows or columns,
made of parts of the batch, taken at another point. Its numbers are read off the first update; it counts where it makes
the later ones with the same numbers. A cause is said where both runs have one form each, and these differ.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from parity.checks.proving.effective import FEWEST, fitted
from parity.checks.proving.lockstep import Lane
from parity.checks.proving.other_gradients import ascended_forms, parted_forms
from parity.checks.proving.seen import SeenUpdate, joined, seen_updates
from parity.checks.proving.slots import LeafArrays
from parity.checks.proving.unit_forms import GradientForm, centred_forms, plain_forms, unit_forms
from parity.checks.proving.walk import TwoWalks

__all__ = ["gradient_forms_cause"]

FIT = 1e-7
"""How far a later update may be from what a form makes of it, relative to its largest element."""


@dataclass(frozen=True)
class Observed:
    """Where the gradient that an optimizer was given shows: in a slot, in the root of one, or in the moves."""

    slot: str
    power: int
    """Of the gradient in it; the sign is that of the moves where it is 2. Moves themselves: slot empty."""

    def first(self, update: SeenUpdate) -> LeafArrays:
        """Return the gradient of the first update, but for its scale."""
        if not self.slot:
            return {leaf: -one for leaf, one in update.move.items()}
        kept = update.kept[self.slot]
        if self.power == 1:
            return kept
        return {leaf: -np.sign(update.move[leaf]) * np.sqrt(np.abs(one)) for leaf, one in kept.items()}

    def makes(self, update: SeenUpdate, made: LeafArrays) -> bool:
        """Return whether a later update holds a share of itself before and one of a gradient."""
        leaves = list(made)
        column = joined(made, leaves) ** self.power
        if not self.slot:
            return fitted([column], joined(update.move, leaves), FIT) is not None
        held, kept = (joined(one[self.slot], leaves) for one in (update.held, update.kept))
        return fitted([held, column], kept, FIT) is not None


def gradient_forms_cause(walk: TwoWalks) -> str:
    """Return how the gradients differ that two optimizers were given; empty where one form of each is not known.

    Args:
        walk: Two trainers that part after their first update.
    """
    forms = [_form_of(walk, at) for at in (0, 1)]
    one, two = forms
    if one is None or two is None or one.same(two):
        return ""
    known = {form.title: form for form in (one, two) if form.title}
    if not known:
        return ""
    # what changes the gradient least is said of the other: by its title the reader looks for it
    title = next(iter(known))
    if one.kind == two.kind:
        return f"{title}: {one.words} here, {two.words} there"
    return f"{title}: {one.words} here; there {two.words}"


def _form_of(walk: TwoWalks, at: int) -> GradientForm | None:
    """Return the form of which all updates of a run are made; None where none is, or two that differ."""
    ways = [seen_updates(walk, at, own=own)[:3] for own in (True, False)]
    if len(ways[0]) < 2 or ways[0][0].at != 1:
        return None
    for seen in _observed(ways[0][0]):
        for makers in _makers(walk.lanes[at]):
            found = [form for updates in (ways if at == 0 else ways[1:])
                     for form in makers(updates[0], seen.first(updates[0])) if _holds(form, seen, updates)]  # fmt: skip
            if found:
                return found[0] if all(form.same(found[0]) for form in found) else None
    return None


def _makers(lane: Lane) -> Iterator[Callable[[SeenUpdate, LeafArrays], list[GradientForm]]]:
    """Give what makes forms, the plainest first: a later one is tried where no earlier one holds."""
    yield plain_forms
    yield unit_forms
    yield centred_forms
    yield lambda update, seen: ascended_forms(lane, update, seen)
    yield lambda update, seen: parted_forms(lane, update, seen)


def _observed(update: SeenUpdate) -> list[Observed]:
    """Return where the gradient of the first update may show."""
    signed: list[Observed] = []
    squares: list[Observed] = []
    for slot, kept in update.kept.items():
        values = joined(kept, list(kept))
        if values.size < 2 * FEWEST or np.any(joined(update.held[slot], list(kept))) or not np.any(values):
            continue
        (signed if (values < 0.0).any() else squares).append(Observed(slot, 1 if (values < 0.0).any() else 2))
    return (signed + squares) or [Observed("", 1)]


def _holds(form: GradientForm, seen: Observed, updates: list[SeenUpdate]) -> bool:
    """Return whether a form makes the first update and the later ones."""
    first = form.make(updates[0])
    leaves = list(first)
    observed = seen.first(updates[0])
    if fitted([joined(first, leaves)], joined(observed, leaves), FIT) is None:
        return False
    return all(seen.makes(update, form.make(update)) for update in updates[1:])


