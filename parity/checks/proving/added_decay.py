"""Decay that is added to the gradient (L2): how much, on which leaves, before clipping or after, beside the step."""

from __future__ import annotations

import numpy as np

from parity.checks.proving.effective import FEWEST, TakenParts, fitted, one_value
from parity.checks.proving.lockstep import MODEL
from parity.checks.proving.move_forms import move_form
from parity.checks.proving.seen import gradient_at
from parity.checks.proving.slots import LeafArrays, names_of
from parity.checks.proving.walk import TwoWalks

__all__ = ["added_decay_cause", "beside_words"]

SAME = 1e-6
"""Relative distance of two shares that are one."""

FIT = 1e-7
"""How far a moment may be from what its shares give, relative to its largest element."""


def added_decay_cause(walk: TwoWalks, here: TakenParts, there: TakenParts, gradient: LeafArrays) -> str:
    """Return what two gradients differ in by a multiple of the parameters; empty where nothing shows that.

    Args:
        walk: Two trainers after their first updates.
        here: What the trainer's first moment holds after the first update.
        there: The port's.
        gradient: Before it, by leaf.
    """
    sets = [{leaf for leaf, part in one.params.items() if part} for one in (here, there)]
    if sets[0] != sets[1]:
        return _in_one(walk, here, there, sets)
    if not sets[0]:
        return ""
    if cause := _clipped_cause(walk, here, there, gradient):
        return cause
    shares = [one_value({leaf: one.params[leaf] / one.gradient[leaf] for leaf in sets[0] if one.gradient[leaf]}, SAME)
              for one in (here, there)]  # fmt: skip
    if None in shares or abs(shares[0] - shares[1]) <= SAME * abs(shares[0]):  # type: ignore[operator,arg-type]
        return ""
    scales = [one_value({leaf: part for leaf, part in one.gradient.items() if gradient[leaf].size >= FEWEST}, SAME)
              for one in (here, there)]  # fmt: skip
    if None in scales or abs(scales[0] - scales[1]) > SAME * abs(scales[0]):  # type: ignore[operator,arg-type]
        return ""  # a gradient that is scaled beside its decay is another thing
    return f"decay: {shares[0]:.6g} of the parameters is added to the gradient (L2) here, {shares[1]:.6g} there"


def _in_one(walk: TwoWalks, here: TakenParts, there: TakenParts, sets: list[set[str]]) -> str:
    """Return a decay that is added to the gradient in one alone, or in other leaves."""
    at = 1 if sets[1] - sets[0] else 0
    who, other = (("the trainer", "the port"), ("the port", "the trainer"))[at]
    taken = (here, there)[at]
    only = sorted(sets[at] - sets[1 - at])
    if sets[1 - at]:
        return (
            f"decay: {who} adds a multiple of the parameters to the gradient (L2) of {len(only)} more leaves, such "
            f"as {only[0]}"
        )
    share = one_value(
        {leaf: taken.params[leaf] / taken.gradient[leaf] for leaf in only if taken.gradient[leaf]}, SAME
    )
    after = _after_scaling(walk, at, taken, only)
    share = after if after is not None else share
    shown = f"{share:.6g} of the parameters" if share is not None else "a multiple of the parameters"
    clipped = ", which was scaled before (clipped by its norm)" if after is not None else ""
    said = f"decay: {who} adds {shown} to the gradient (L2){clipped}"
    return f"{said}, {other} {beside_words(walk, 1 - at)}"


def _after_scaling(walk: TwoWalks, at: int, taken: TakenParts, leaves: list[str]) -> float | None:
    """Return the share of the parameters that is added to a gradient which is scaled before; None where it is not so.

    Beside a second moment the first is a mean, of which decay is one less what is kept at every update. What it is
    relative to a gradient that is clipped changes from update to update.

    Args:
        walk: Two trainers after their first updates.
        at: 0 for the trainer, 1 for its port.
        taken: What its first moment holds after the first one.
        leaves: Those to whose gradients decay is added.
    """
    lane = walk.lanes[at]
    shares = [(taken.gradient[leaf], taken.params[leaf]) for leaf in leaves]
    held = [moment.slots for moment in lane.moments[1:3]]
    if len(held) < 2 or any(taken.slot not in slots for slots in held):
        return None
    gradient = dict(gradient_at(lane, 1))
    old, new, before = held[0][taken.slot], held[1][taken.slot], held[0][MODEL]
    if at == 0:
        old, new, before = (walk.pairing.over(one) for one in (old, new, before))
        gradient = walk.pairing.over(gradient, grads=True)
    several = [leaf for leaf in leaves if leaf in gradient and leaf in new and gradient[leaf].size > FEWEST]
    if not several:
        return None
    columns = [np.concatenate([np.asarray(one[leaf]).ravel() for leaf in several]) for one in (old, gradient, before)]
    parts = fitted(columns, np.concatenate([np.asarray(new[leaf]).ravel() for leaf in several]), FIT)
    if parts is None or not 0.0 <= parts[0] < 1.0:
        return None
    kept, scale, second = parts
    whole = 1.0 - kept if taken.square else 1.0
    first = one_value({leaf: taken.params[leaf] for leaf in several}, SAME)
    if first is None or abs(first - second) > SAME * abs(first):
        return None
    steady = all(abs(part - scale) <= SAME * abs(scale) for part, _ in shares)
    return None if steady else first / whole


def beside_words(walk: TwoWalks, at: int) -> str:
    """Return what one that adds no decay to its gradient takes off beside its step, as the end of a sentence.

    Args:
        walk: Two trainers after their first updates.
        at: 0 for the trainer, 1 for its port.
    """
    form = move_form(walk, at)
    if form is None:
        return "adds none"
    first = {leaf: one.decay for leaf, one in form.moves[min(form.moves)].items() if one.decay}
    if not first:
        return "adds none, and takes none off beside its step"
    value = one_value(first, 1e-5)
    taken_off = f"{value:.6g} of them" if value is not None else f"a part of {names_of(sorted(first))}"
    return f"takes {taken_off} off beside its step (decoupled, at update {min(form.moves)})"


def _clipped_cause(walk: TwoWalks, here: TakenParts, there: TakenParts, gradient: LeafArrays) -> str:
    """Return that one clips the gradient with its decay, the other before decay is added: both to one norm."""
    leaves = [leaf for leaf, part in here.gradient.items()
              if part and there.gradient.get(leaf) and gradient[leaf].size >= FEWEST]  # fmt: skip
    scales = [one_value({leaf: one.gradient[leaf] for leaf in leaves}, SAME) for one in (here, there)]
    if None in scales or abs(scales[0] - scales[1]) <= SAME * abs(scales[0]):  # type: ignore[operator,arg-type]
        return ""
    norms = []
    for lane, one, scale in zip(walk.lanes, (here, there), scales, strict=False):
        alone = np.sqrt(sum(float((g**2).sum()) for g in gradient.values())) * scale
        held = lane.moments[1].slots[one.slot]
        norms.append((alone, np.sqrt(sum(float((array**2).sum()) for array in held.values()))))
    for at, name, other in ((0, "the trainer", "the port"), (1, "the port", "the trainer")):
        if abs(norms[at][0] - norms[1 - at][1]) <= 1e-5 * norms[at][0]:
            # a first moment beside a second one is a mean, which holds a part of what was clipped
            to = f": both to the norm {norms[at][0]:.6g}" if not (here.square or there.square) else ", to one norm"
            return f"decay: {other} clips the gradient with its decay (L2), {name} before decay is added{to}"
    return ""
