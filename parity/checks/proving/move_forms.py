"""Of which form the moves of one run are: what is divided by what, which epsilon, which decay, and at which rates.

Every form is fitted to all updates of a run that are kept, leaf by leaf, from its own values, gradients and slots.
The plainest that makes all of them is the form of the run; its rates and decays by leaf are what is left to
compare.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np

from parity.checks.proving.move_fits import LeafMove, MoveWay, fitted_move, norms_of, share_of_epsilon
from parity.checks.proving.projected import projected_leaves
from parity.checks.proving.seen import SeenUpdate, seen_updates, without
from parity.checks.proving.walk import TwoWalks

__all__ = ["LeafMove", "MoveForm", "entering_form", "fitted_form", "move_form", "used_updates"]

MIXES = ("gradient", "before")
"""What may be added to a momentum: where the gradient was clipped or has decay in it, the one before tells it."""


@dataclass(frozen=True)
class MoveForm:
    """How a run moves its parameters."""

    top: str
    """What is moved by: a slot, or empty for the gradient itself."""
    mixed: str
    """What is added to it: the `gradient`, or the same slot `before` the update; empty where nothing is."""
    signed: bool
    under: str
    """The slot by whose root it is divided; empty where by none."""
    mean: str
    """The slot whose square is taken from that one; empty where none is."""
    place: str
    """Of epsilon: `beside` the root, or `under` it; `whole` where it is divided by the slot itself."""
    epsilons: Mapping[int, float] = field(default_factory=dict)
    """Of each update."""
    moves: Mapping[int, Mapping[str, LeafMove]] = field(default_factory=dict)
    seen: Mapping[int, float] = field(default_factory=dict)
    """How much epsilon is of what it is added to, at most, at each update."""
    gradients: Mapping[int, float] = field(default_factory=dict)
    """Norm of the gradient of all leaves at each update."""
    wholes: Mapping[int, tuple[float, float]] = field(default_factory=dict)
    """Norms of the direction and of the parameters, over all leaves, those too that are too small to be fitted."""
    bares: Mapping[int, float] = field(default_factory=dict)
    """Norms of the direction without decay, over all leaves."""


def move_form(walk: TwoWalks, at: int) -> MoveForm | None:
    """Return the form of the moves of a run; None where none that is known makes them all.

    Args:
        walk: Two trainers after some updates.
        at: 0 for the trainer, 1 for its port.
    """
    updates, born = used_updates(walk, at)
    return fitted_form(updates, born)


def entering_form(walk: TwoWalks, at: int, slot: str) -> MoveForm | None:
    """Return the form of what enters a momentum at each update, beside what it keeps of itself: its `decay`.

    Args:
        walk: Two trainers after some updates.
        at: 0 for the trainer, 1 for its port.
        slot: The momentum, by which alone the run moves.
    """
    updates, born = used_updates(walk, at)
    if any(slot not in one.kept for one in updates):
        return None
    inner = [
        SeenUpdate(one.at, one.held[slot], one.gradient,
                   {leaf: held - one.kept[slot][leaf] for leaf, held in one.held[slot].items()}, one.held, one.kept)
        for one in updates
    ]  # fmt: skip
    return fitted_form(inner, born - {slot})


def used_updates(walk: TwoWalks, at: int) -> tuple[list[SeenUpdate], set[str]]:
    """Return the updates that are fitted, and the slots that begin at zero: a copy of the parameters is no moment."""
    found = seen_updates(walk, at)
    # what is set from an average is no move of the optimizer's, and at a rate of 0 nothing moves
    rest = [one for one in found if not walk.lanes[at].set_from(one.at) and any(map(np.any, one.move.values()))]
    found = rest if len(rest) > 1 else found
    found = found[-4:] if len(walk.lanes[at].moments) > 5 else found
    held = projected_leaves(walk, at)
    found = [without(one, held) for one in found] if held else found
    start = walk.lanes[at].moments[0].slots
    slots = found[-1].kept if found else {}
    return found, {slot for slot in slots if not any(np.any(one) for one in start.get(slot, {}).values())}


def fitted_form(updates: list[SeenUpdate], born: set[str]) -> MoveForm | None:
    """Return the plainest form that makes all updates; None where none does.

    Args:
        updates: Of one run.
        born: Slots that begin at zero.
    """
    if len(updates) < 2:
        return None
    for way in _ways(updates[-1], born):
        # the last update first: at the first one a moment is a multiple of the gradient, and most ways fit it
        found: dict[int, tuple[float, dict[str, LeafMove]]] = {}
        for update in reversed(updates):
            made = fitted_move(way, update)
            if made is None:
                break
            found[update.at] = made
        else:
            moves = {step: one[1] for step, one in sorted(found.items())}
            epsilons = {step: one[0] for step, one in sorted(found.items())}
            norms = {one.at: norms_of(way, one, epsilons[one.at], moves[one.at]) for one in updates}
            wholes = {at: each[:2] for at, each in norms.items()}
            seen = {one.at: share_of_epsilon(way, one, epsilons[one.at]) for one in updates}
            return MoveForm(
                way.top, way.mixed, way.sign, way.under, way.mean, way.place, epsilons, moves, seen,
                {one.at: sum(float((g * g).sum()) for g in one.gradient.values()) ** 0.5 for one in updates}, wholes,
                {at: each[2] for at, each in norms.items()},
            )  # fmt: skip
    return None


def _ways(update: SeenUpdate, born: set[str]) -> Iterator[MoveWay]:
    """Give the forms that are tried, the plainest first.

    Args:
        update: Whose slots they are made of.
        born: Those of them that begin at zero.
    """
    values = {slot: np.concatenate([one.ravel() for one in held.values()]) for slot, held in update.kept.items()}
    signed = [slot for slot, one in values.items() if slot in born and (one < 0.0).any()]
    squares = [slot for slot, one in values.items() if not (one < 0.0).any() and np.any(one)]
    for top in (*signed, ""):
        yield MoveWay(top)
    for mixed in MIXES:
        for top in signed:
            yield MoveWay(top, mixed)
    for top in (*signed, ""):
        yield MoveWay(top, sign=True)
    tops = [*((one, "") for one in (*signed, "")), *((one, mixed) for mixed in MIXES for one in signed)]
    for top, mixed in tops:
        for under in squares:
            for place in ("beside", "under"):
                yield MoveWay(top, mixed, under, place=place)
    for top in signed:
        for under in squares:
            yield MoveWay(top, under=under, place="whole")
    for under in squares:
        for mean in signed:
            for top in (*(one for one in signed if one != mean), ""):
                for place in ("beside", "under"):
                    yield MoveWay(top, under=under, mean=mean, place=place)
