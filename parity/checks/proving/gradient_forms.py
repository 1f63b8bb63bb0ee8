"""What gradient each optimizer was given, told of each run by itself: of which form all of its updates are made.

A form makes a gradient of the measured one and of the parameters: clipped in parts, by units of rows or columns,
made of parts of the batch, taken at another point. Its numbers are read off the first update; it counts where it
makes the later ones with the same numbers. A cause is said where both runs have one form each, and these differ.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import cast

import numpy as np
from numpy.typing import NDArray

from parity.checks.proving.added_decay import beside_words
from parity.checks.proving.clip_causes import clips_update
from parity.checks.proving.decay_orders import before_clip_forms, order_cause, scaled_order
from parity.checks.proving.decayed_forms import clipped_decayed_forms, decayed_forms
from parity.checks.proving.effective import FEWEST, fitted, fitted_any
from parity.checks.proving.lockstep import Lane
from parity.checks.proving.other_gradients import ascended_forms, parted_forms
from parity.checks.proving.seen import SeenUpdate, decays_of, joined, seen_updates
from parity.checks.proving.slots import LeafArrays, names_of
from parity.checks.proving.unit_forms import GradientForm, centred_forms, plain_forms, unit_forms, value_forms
from parity.checks.proving.walk import TwoWalks

__all__ = ["gradient_form", "gradient_forms_cause"]

FIT = 1e-7
"""How far a later update may be from what a form makes of it, relative to its largest element."""

WEIGHTS = (0.1, 0.05, 0.01, 0.02, 0.2, 0.5, 0.001)
"""Weights of a new gradient in a moment that are tried beside all of it, where every part is clipped at first."""


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
        # a sum of squares may begin at a number: what came to it is the square
        added = {leaf: np.abs(one - update.held[self.slot][leaf]) for leaf, one in kept.items()}
        return {leaf: -np.sign(update.move[leaf]) * np.sqrt(one) for leaf, one in added.items()}

    def scale(self, update: SeenUpdate) -> float:
        """Return how much of the gradient itself an update took; 0 where it is made of something else too."""
        leaves = list(update.gradient)
        decays = decays_of(update, leaves)
        if not self.slot:
            parts = fitted_any([joined(update.gradient, leaves)], decays, joined(self.first(update), leaves), FIT)
            return parts[-1] if parts is not None else 0.0
        columns = [joined(update.held[self.slot], leaves), joined(update.gradient, leaves) ** self.power]
        columns = columns if np.any(columns[0]) else columns[1:]
        more = decays if self.power == 1 else [[]]
        parts = fitted_any(columns, more, joined(update.kept[self.slot], leaves), FIT)
        return max(parts[-1], 0.0) ** (1 / self.power) if parts is not None else 0.0

    def shares(self, update: SeenUpdate) -> tuple[float, float] | None:
        """Return how much of the gradient and of the parameters an update took; None where these do not make it."""
        leaves = list(update.gradient)
        held = [joined(update.held[self.slot], leaves)] if self.slot else []
        made = joined(update.kept[self.slot] if self.slot else self.first(update), leaves)
        columns = [joined(update.gradient, leaves), *(one for one in held if np.any(one))]
        for more in decays_of(update, leaves)[1:] if self.power == 1 else []:
            if (parts := fitted([columns[0], *more, *columns[1:]], made, FIT)) is not None:
                return parts[0], parts[1]
        return None

    def makes(self, update: SeenUpdate, made: LeafArrays) -> bool:
        """Return whether a later update holds a share of itself before and one of a gradient."""
        leaves = list(made)
        column = joined(made, leaves) ** self.power
        decays = decays_of(update, leaves) if self.power == 1 else [[]]
        if not self.slot:
            return fitted_any([column], decays, joined(update.move, leaves), FIT) is not None
        held, kept = (joined(one[self.slot], leaves) for one in (update.held, update.kept))
        return fitted_any([held, column], decays, kept, FIT) is not None


def gradient_forms_cause(walk: TwoWalks) -> str:
    """Return how the gradients differ that two optimizers were given; empty where one form of each is not known.

    Args:
        walk: Two trainers that part after their first update.
    """
    first, second = (_form_of(walk, at) for at in (0, 1))
    if first is None or second is None:
        return ""
    (one, seen), (two, other) = first, second
    if cause := _decay_cause(walk, one, two) or order_cause(one, two):
        return cause
    if one.kind == two.kind == "plain":
        return _order_cause(walk, seen, other) or _scale_cause(walk, seen, other)
    if one.same(two):
        return _limit_cause(one, two, seen, other)
    # what changes the gradient is looked for by its title: the gradient as it is has none
    title = next((form.title for form in (one, two) if form.kind != "plain"), one.title or two.title)
    said = [_words(walk, at, form, place) for at, (form, place) in enumerate((first, second))]
    if one.kind == two.kind:
        return f"{title}: {said[0]} here, {said[1]} there"
    return f"{title}: {said[0]} here; there {said[1]}"


def _words(walk: TwoWalks, at: int, form: GradientForm, seen: Observed) -> str:
    """Return what a form is called: one with a scale for all is the gradient as it is where that scale stays."""
    if form.kind != "plain" or form.decay:
        return form.words
    updates = seen_updates(walk, at)[:3]
    scales = np.array([seen.scale(update) for update in updates])
    norms = np.array([np.linalg.norm(joined(update.gradient, list(update.gradient))) for update in updates])
    sizes = scales * norms
    if np.ptp(scales) <= 1e-6 * np.abs(scales).max() != 0.0:
        return form.words
    if len(updates) > 2 and np.ptp(sizes) <= 1e-5 * np.abs(sizes).max() and np.ptp(norms) > 1e-3 * norms.max():
        return "the gradient of the loss, all of it scaled to one norm at each update (clipped by the norm of all)"
    return "the gradient of the loss with one scale for all leaves, which is not the same at each update"


def _decay_cause(walk: TwoWalks, one: GradientForm, two: GradientForm) -> str:
    """Return that two gradients of one form have other shares of the parameters added to them (L2)."""
    if one.kind != two.kind or (one.kind != "plain" and not one.same(two)) or not (one.decay or two.decay):
        return ""
    if not (one.decay and two.decay):
        at = 0 if one.decay else 1
        names = ("the trainer", "the port")
        return (
            f"decay: {names[at]} adds {(one, two)[at].decay:.6g} of the parameters to the gradient (L2), "
            f"{names[1 - at]} {beside_words(walk, 1 - at)}"
        )
    if abs(one.decay - two.decay) > 1e-5 * abs(one.decay):
        return f"decay: {one.decay:.6g} of the parameters is added to the gradient (L2) here, {two.decay:.6g} there"
    names_here = walk.pairing.names()
    here = {leaf for leaf, names in names_here.items() if set(names.split(" + ")) <= one.decayed}
    for who, more in (("the port", two.decayed - here), ("the trainer", here - two.decayed)):
        if more:
            return (
                f"decay: {who} adds a multiple of the parameters to the gradient (L2) of {names_of(sorted(more))} too"
            )
    return ""


def _order_cause(walk: TwoWalks, seen: Observed, other: Observed) -> str:
    """Return that one scales the gradient together with its decay, the other before decay is added to it.

    Where a slot holds the gradient, it tells the norm too, and more is said of it elsewhere.
    """
    if seen.slot or other.slot:
        return ""
    kinds = [
        scaled_order([one.shares(update) for update in seen_updates(walk, at)[:3]])
        for at, one in ((0, seen), (1, other))
    ]
    if {*kinds} != {"before", "after"}:
        return ""
    here, there = ("here", "there") if kinds[0] == "before" else ("there", "here")
    return (
        f"decay: it is added to the gradients (L2) before all are scaled (clipped by the norm of all) {here}, after "
        f"that {there}"
    )


def _limit_cause(one: GradientForm, two: GradientForm, seen: Observed, other: Observed) -> str:
    """Return that two clip in one way to other limits, where what is not clipped shows in neither."""
    if not one.limit or one.size or abs(one.limit - two.limit) <= 1e-5 * one.limit:
        return ""
    # in a slot the limit shows beside the weight of a new gradient, in the moves beside the rate
    besides = " (or its rate is: the moves alone show it)" if not (seen.slot and other.slot) else ""
    return f"{one.title}: the limit of the port is {two.limit / one.limit:.6g} times the trainer's{besides}"


def _scale_cause(walk: TwoWalks, seen: Observed, other: Observed) -> str:
    """Return that one scales gradients to one norm and the other not, told by the scales of several updates."""
    scales: list[NDArray[np.float64]] = []
    norms: list[NDArray[np.float64]] = []
    for at, one in ((0, seen), (1, other)):
        updates = seen_updates(walk, at)[:3]
        known = [one.scale(update) for update in updates]
        if len(updates) < 3 or any(not scale for scale in known) or one.power != seen.power:
            return ""
        scales.append(np.array(known))
        norms.append(np.array([np.linalg.norm(joined(update.gradient, list(update.gradient))) for update in updates]))
    # a rate that moves is in both: what is left of one beside the other is what the gradients were scaled by
    moves = not (seen.slot or other.slot)
    for at, who, name in ((1, "the port", "the trainer"), (0, "the trainer", "the port")):
        base = scales[1 - at] if moves else np.ones(3)
        ratios, sizes = scales[at] / base, scales[at] * norms[at] / base
        if not (np.ptp(sizes) <= 1e-5 * sizes.max() and np.ptp(ratios) > 1e-3 * ratios.max()):
            continue
        if not moves and np.ptp(scales[1 - at]) > 1e-6 * scales[1 - at].max():
            continue
        if ratios[0] > (1 + 1e-6) * (1.0 if moves else scales[1 - at][0]):
            return (
                f"clipping: {who} scales the gradients to one norm at every update, also where theirs is below it "
                f"({norms[at][0]:.6g} at the first), {name} does not"
            )
        if moves or seen.power == 2:  # of a first moment the weight of the gradient is told elsewhere
            size = sizes[0] if moves else sizes[0] / scales[1 - at][0]
            return (
                f"clipping: {who} clips the norm of the gradients ({norms[at][0]:.6g}) to {size:.6g}, {name} "
                f"{clips_update(walk, 1 - at)}"
            )
    if moves and all(np.ptp(s * n) <= 1e-5 * (s * n).max() and np.ptp(n) > 1e-3 * n.max()
                     for s, n in zip(scales, norms, strict=True)):  # fmt: skip
        ratio = float(scales[1][0] * norms[1][0] / (scales[0][0] * norms[0][0]))
        if abs(ratio - 1.0) > 1e-6:
            return (
                f"clipping: both move by one norm at every update, the port by {ratio:.6g} times as much: another "
                "largest norm of the gradients, or another rate"
            )
    return ""


def gradient_form(walk: TwoWalks, at: int) -> GradientForm | None:
    """Return the form of the gradients that a run was given; None where it is not known.

    Args:
        walk: Two trainers after some updates.
        at: 0 for the trainer, 1 for its port.
    """
    found = _form_of(walk, at)
    return None if found is None else found[0]


def _form_of(walk: TwoWalks, at: int) -> tuple[GradientForm, Observed] | None:
    if at not in walk.given:  # a form at another point takes many gradients to find
        walk.given[at] = _found_form(walk, at)
    return cast("tuple[GradientForm, Observed] | None", walk.given[at])


def _found_form(walk: TwoWalks, at: int) -> tuple[GradientForm, Observed] | None:
    """Return the form of which all updates of a run are made; None where none is, or two that differ."""
    ways = [seen_updates(walk, at, own=own)[:3] for own in (True, False)]
    if len(ways[0]) < 2 or ways[0][0].at != 1 or not all(updates and updates[0].gradient for updates in ways):
        return None  # a layer that begins at zero keeps the gradient from all others, and a decay moves those
    for seen in _observed(ways[0][0]):
        for makers in _makers(walk.lanes[at], seen):
            found = [held for own, updates in zip((True, False), ways, strict=True) if at == 0 or not own
                     for form in makers(updates[0], seen.first(updates[0])) if not (own and form.turned)
                     and (held := _held(form, seen, updates)) is not None]  # fmt: skip
            if found:
                same = all(form.same(found[0]) for form in found)
                return (found[0], seen) if same else None
    return None


def _makers(lane: Lane, seen: Observed) -> Iterator[Callable[[SeenUpdate, LeafArrays], list[GradientForm]]]:
    """Give what makes forms, the plainest first: a later one is tried where no earlier one holds."""
    yield plain_forms
    yield unit_forms
    yield value_forms
    if seen.power == 2:
        yield decayed_forms
    yield clipped_decayed_forms
    yield before_clip_forms
    yield centred_forms
    yield lambda update, seen: ascended_forms(lane, update, seen)
    yield lambda update, seen: parted_forms(lane, update, seen)


def _observed(update: SeenUpdate) -> list[Observed]:
    """Return where the gradient of the first update may show."""
    signed: list[Observed] = []
    squares: list[Observed] = []
    for slot, kept in update.kept.items():
        values = joined(kept, list(kept))
        began = joined(update.held[slot], list(kept))
        grows = bool(began.size and began[0] > 0.0 and not np.ptp(began) and (values >= began).all())
        if values.size < 2 * FEWEST or (np.any(began) and not grows) or not np.any(values):
            continue
        (signed if (values < 0.0).any() else squares).append(Observed(slot, 1 if (values < 0.0).any() else 2))
    return (signed + squares) or [Observed("", 1)]


def _held(form: GradientForm, seen: Observed, updates: list[SeenUpdate]) -> GradientForm | None:
    """Return a form that makes all updates: as it is, or with a scale of what is not clipped at a later one."""
    first = form.make(updates[0])
    leaves = list(first)
    decays = decays_of(updates[0], leaves)
    if fitted_any([joined(first, leaves)], decays, joined(seen.first(updates[0]), leaves), FIT) is None:
        return None
    tried = [form]
    if form.freed is not None and not seen.slot:
        each = [_scale_of(update, seen, leaf) for update in updates[1:] for leaf in leaves]
        # under a rate that moves what is not clipped is known beside what is: the largest of one update
        for update in updates[1:]:
            own = {leaf: _scale_of(update, seen, leaf) for leaf in leaves}
            most = max(scale * float(np.linalg.norm(update.gradient[leaf])) for leaf, scale in own.items())
            each += [form.limit / most * scale for scale in own.values()] if most > 0.0 else []
        scales = {float(f"{scale:.6g}"): scale for scale in each}
        tried += [form.freed(scale) for scale in scales.values() if scale > 0.0]
    elif form.freed is not None:
        tried += [form.freed(weight ** (1 / seen.power)) for weight in (1.0, *WEIGHTS)]
    for one in tried:
        if all(seen.makes(update, one.make(update)) for update in updates[1:]):
            return one
    return None


def _scale_of(update: SeenUpdate, seen: Observed, leaf: str) -> float:
    g, o = update.gradient[leaf].ravel(), np.asarray(seen.first(update)[leaf]).ravel()
    return float((o[np.abs(g) > 0.0] / g[np.abs(g) > 0.0]).max(initial=0.0))
