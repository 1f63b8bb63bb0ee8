"""Why an update parts: what both optimizers took of the gradient is compared first, then what they made of it.

The order is that of an update: gradient, clipping, moments, average; then rate, decay and epsilon. What comes first
explains what follows. Every cause is read off the values of both states; none is a guess from a name.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from parity.checks.proving.added_decay import added_decay_cause
from parity.checks.proving.average_causes import average_cause
from parity.checks.proving.averages import average_of, averages_in
from parity.checks.proving.clip_causes import (
    CLIPS_BY_VALUE,
    clip_cause,
    clip_values_cause,
    clipped_groups,
    cut_values_cause,
    is_clipped_by_value,
    whole_times,
)
from parity.checks.proving.clipped_moves import clipped_moves_cause, clipped_norm_cause
from parity.checks.proving.delta_forms import delta_forms_cause
from parity.checks.proving.effective import FEWEST, SAME, TakenParts, fitted, one_value, taken_of
from parity.checks.proving.gradient_forms import gradient_forms_cause
from parity.checks.proving.groups import of_group, parted_group
from parity.checks.proving.inner_averages import inner_average_cause
from parity.checks.proving.lion_forms import sign_cause
from parity.checks.proving.lockstep import MODEL
from parity.checks.proving.lookaheads import lookahead_cause
from parity.checks.proving.loss_causes import ways_of_loss
from parity.checks.proving.momentum_causes import momentum_cause, scaled_gradients, second_update_cause
from parity.checks.proving.move_form_causes import kept_ascent_cause, move_forms_cause
from parity.checks.proving.moves import move_cause
from parity.checks.proving.other_gradients import parted_loss
from parity.checks.proving.peeled import peeled_cause
from parity.checks.proving.projections import projection_cause
from parity.checks.proving.rate_series import parted_rates_cause
from parity.checks.proving.rebased import rebased_walk
from parity.checks.proving.rectified import rectified_cause
from parity.checks.proving.recurrences import (
    ahead_cause,
    another_gradient_cause,
    divisor_cause,
    rate_inside_cause,
    second_moment_cause,
)
from parity.checks.proving.schedule_forms import moving_momentum
from parity.checks.proving.second_moment_forms import second_moment_forms_cause
from parity.checks.proving.seen_through import through_ascent, through_parts
from parity.checks.proving.slot_causes import begin_cause, frozen_cause, largest_cause
from parity.checks.proving.slots import LeafArrays, names_of
from parity.checks.proving.walk import TwoWalks

__all__ = ["update_cause"]

EPSILON = 1e-6
"""What `torch.nn.utils.clip_grad_norm_` adds to the norm."""

OF_GRADIENTS = ("accumulation", "clip epsilon", "clipping", "decay", "gradient")
"""What causes begin with that are of the gradient itself, and not of what moments make of it."""


def update_cause(walk: TwoWalks) -> str:
    """Return why a walk parts; empty where nothing that is known makes both.

    Args:
        walk: Two trainers up to the update after which something parts.
    """
    if cause := inner_average_cause(walk):
        return cause
    if walk.what not in (MODEL, "loss", "") and (cause := average_cause(walk)):
        return cause
    first = min((since for since, _ in walk.suspects.values()), default=walk.done)
    if walk.what == "loss" and first >= walk.done and (cause := _loss_cause(walk)):
        return cause  # slots that part at this update follow a loss that had parted before them
    if (parted := through_parts(walk)) is not None:
        return _of_gradients(parted, first)
    above = through_ascent(walk)
    return _of_gradients(walk, first) if above is None else kept_ascent_cause(walk) or _of_gradients(above, first)


def _of_gradients(walk: TwoWalks, first: int) -> str:
    """Return why a walk parts whose gradients are those of its losses.

    Args:
        walk: Two trainers up to the update after which something parts.
        first: The update after which a slot parts.
    """
    if cause := projection_cause(walk) or lookahead_cause(walk):
        return cause
    if first == 1 and (
        cause := frozen_cause(walk)
        or begin_cause(walk)
        or delta_forms_cause(walk)
        or second_moment_forms_cause(walk)
        or second_moment_cause(walk)
        or clip_values_cause(walk)
        or gradient_forms_cause(walk)
        or _group_gradients_cause(walk)
        or cut_values_cause(walk)
        or _taken_cause(walk)
    ):
        return cause
    if walk.what == MODEL and (cause := sign_cause(walk)):
        return cause
    if (
        walk.done == 1
        and walk.what == MODEL
        and (
            cause := clipped_norm_cause(walk)
            or move_forms_cause(walk)
            or clipped_moves_cause(walk)
            or ahead_cause(walk)
            or divisor_cause(walk)
        )
    ):
        return cause
    if cause := second_update_cause(walk):
        return _of_a_schedule(walk) or cause
    if first > 1 and (later := rebased_walk(walk, first)) is not None and (cause := _later_gradient_cause(later)):
        return f"{cause} (from update {first} on, the first at which it shows)"
    if (
        walk.done > 1
        and walk.what == MODEL
        and (cause := largest_cause(walk) or clipped_norm_cause(walk) or move_forms_cause(walk))
    ):
        return cause
    return (
        rate_inside_cause(walk) or rectified_cause(walk) or move_cause(walk) or average_cause(walk)
        or largest_cause(walk) or parted_rates_cause(walk)
    )  # fmt: skip


def _group_gradients_cause(walk: TwoWalks) -> str:
    """Return how the gradients of those leaves differ that part: the others may be given theirs in another way."""
    group = parted_group(walk)
    cause = "" if group is None else gradient_forms_cause(group)
    told = f"{cause}{of_group(walk)}" if cause.startswith("clipping") else ""
    return peeled_cause(walk) or told


def _later_gradient_cause(walk: TwoWalks) -> str:
    """Return how gradients differ that are given from a later update on; of what is told by values alone."""
    if cause := clip_values_cause(walk) or gradient_forms_cause(walk):
        return cause
    cause = _taken_cause(walk) if walk.suspects else ""
    return cause if cause.partition(":")[0] in OF_GRADIENTS else ""


def _of_a_schedule(walk: TwoWalks) -> str:
    """Return that momenta which part at the second update move by schedules."""
    pairs = [(slot, gap.other) for slot, (since, gap) in walk.suspects.items() if since == 2 and gap.other]
    return next((cause for pair in pairs if (cause := moving_momentum(walk, *pair))), "")


def _loss_cause(walk: TwoWalks) -> str:
    """Return which of two steps returned another loss than its own loss function gives before the update."""
    values = dict(walk.lanes[0].moments[walk.done - 1].slots[MODEL])
    sides = values, walk.pairing.over(values)
    own = []
    for lane, held in zip(walk.lanes, sides, strict=False):
        own.append(lane.trainer.probe.loss(held, lane.trainer.batch(walk.done - 1)).loss)
    off = [bool(abs(a - b) > 1e-9 * abs(b)) for a, b in zip(walk.losses, own, strict=True)]
    if off[0] == off[1]:
        return ""
    name = "the port's" if off[1] else "the trainer's"
    if of_parts := parted_loss(walk.lanes[off[1]], sides[off[1]], walk.done - 1, walk.losses[off[1]]):
        return (
            f"accumulation: {name} step takes {of_parts}, {walk.losses[off[1]]!r}; the loss of the whole batch is "
            f"{own[off[1]]!r}"
        )
    return (
        f"{name} step trains on another loss than its own loss function: {walk.losses[off[1]]!r}, not {own[off[1]]!r}"
        f"{_ways_apart(walk, off.index(True), sides, own)}"
    )


def _ways_apart(walk: TwoWalks, at: int, values: Sequence[LeafArrays], own: Sequence[float]) -> str:
    """Return what a step and the loss function of its own run take of the outputs; empty where no way makes both."""
    step = walk.done - 1
    made = [
        lane.trainer.probe.loss(held, lane.trainer.batch(step))
        for lane, held in zip(walk.lanes, values, strict=False)
    ]
    seen = made[at].outputs or made[1 - at].outputs
    batch = walk.lanes[at].trainer.batch(step)
    ways = [ways_of_loss(loss, seen, batch) for loss in (walk.losses[at], own[at])]
    if not all(ways) or set(ways[0]) & set(ways[1]):
        return ""
    return f" (the step takes the {ways[0][0]}, the loss function the {ways[1][0]})"


def _gradient(walk: TwoWalks) -> tuple[LeafArrays, LeafArrays]:
    """Return the gradient before the first update, of the first model's leaves and as the second has them."""
    start = dict(walk.lanes[0].moments[0].slots[MODEL])
    trainer = walk.lanes[0].trainer
    grads = trainer.probe.loss(start, trainer.batch(0)).gradients
    return start, grads


def _taken_cause(walk: TwoWalks) -> str:
    """Return what the optimizers took of the gradient that differs after the first update."""
    start, grads = _gradient(walk)
    over = walk.pairing.over
    # an average of plain steps holds a part of the gradient too, which no optimizer took
    averages = [averages_in(lane) for lane in walk.lanes[:2]]
    held = [{slot: one for slot, one in lane.moments[1].slots.items() if slot not in averages[at]}
            for at, lane in enumerate(walk.lanes[:2])]  # fmt: skip
    here = taken_of(_over(walk, held[0]), MODEL, over(grads, grads=True), over(start))
    there = taken_of(held[1], MODEL, over(grads, grads=True), over(start))
    if here is None or there is None:
        which = "the trainer" if here is None else "the port"
        lane = walk.lanes[0 if here is None else 1]
        # of a gradient that is cut in every leaf no slot holds a part
        cut = any(is_clipped_by_value(lane, slot) for slot in held[0 if here is None else 1] if slot != MODEL)
        if cut and (here or there):
            return CLIPS_BY_VALUE.format(who=which)
        more = [place for place, array in lane.moments[1].view.arrays.items() if np.size(array) >= FEWEST]
        known = sum(len(held) for held in lane.moments[1].slots.values())
        if not (here or there) or len(more) > known:
            return ""  # arrays that belong to no leaf that is known may be its moments
        if cause := another_gradient_cause(walk, 0 if here is None else 1):
            return cause
        kept = [slot for slot, held in lane.moments[1].slots.items() if any(map(np.any, held.values()))]
        if any(slot != MODEL and average_of(lane, slot, len(lane.moments) - 1) is None for slot in kept):
            return ""  # a slot that holds a part of another gradient than that of the loss is one all the same
        return f"state: no slot of {which} holds a part of the gradient, as {(there or here).slot} of the other does"  # type: ignore[union-attr]
    gradient = over(grads, grads=True)
    return (
        _rate_in_momentum(here, there, walk)
        or added_decay_cause(walk, here, there, gradient)
        or _clip_value_cause(here, there, walk)
        or momentum_cause(walk, here, there)
        or _scale_cause(here, there, gradient, walk)
    )


def _over(walk: TwoWalks, slots: Mapping[str, LeafArrays]) -> dict[str, LeafArrays]:
    """Return slots of the first state as the second has them."""
    return {slot: walk.pairing.over(held) for slot, held in slots.items()}


def _rate_in_momentum(here: TakenParts, there: TakenParts, walk: TwoWalks) -> str:
    """Return that the momentum of one holds the rate: the first updates agree, and the momenta are multiples."""
    ratio = one_value({leaf: there.gradient[leaf] / part for leaf, part in here.gradient.items() if part and leaf in
                       there.gradient})  # fmt: skip
    if here.square or there.square or ratio is None or abs(ratio - 1.0) <= 1e-9:
        return ""
    before = walk.pairing.over(walk.lanes[0].moments[0].slots[MODEL])
    here_now, there_now = (
        walk.pairing.over(walk.lanes[0].moments[1].slots[MODEL]),
        walk.lanes[1].moments[1].slots[MODEL],
    )
    moves = [np.concatenate([(one[leaf] - before[leaf]).ravel() for leaf in before]) for one in (here_now, there_now)]
    if float(np.abs(moves[0] - moves[1]).max(initial=0.0)) > 1e-9 * float(np.abs(moves[0]).max(initial=0.0)):
        return ""
    held = _over(walk, walk.lanes[0].moments[1].slots)[here.slot]
    leaves = [leaf for leaf in before if leaf in held]
    made = np.concatenate([held[leaf].ravel() for leaf in leaves])
    moved = np.concatenate([(here_now[leaf] - before[leaf]).ravel() for leaf in leaves])
    if fitted([made], moved, 1e-7) is None:
        return ""  # what moves by the signs of its momentum alone shows no rate in it
    return (
        f"momentum: the port's is {ratio:.6g} times the trainer's, the first update the same: the rate is taken "
        f"{'into the momentum there, after it here' if abs(ratio) < 1 else 'after the momentum there, into it here'}"
    )


def _clip_value_cause(here: TakenParts, there: TakenParts, walk: TwoWalks) -> str:
    for who, one, other, lane in (("the port", there, here, 1), ("the trainer", here, there, 0)):
        if one.loose and not other.loose:
            if is_clipped_by_value(walk.lanes[lane], one.slot):
                return CLIPS_BY_VALUE.format(who=who)
            return f"gradient: what {who} keeps in {one.slot} is no multiple of the gradient of its loss"
    return ""


def _scale_cause(here: TakenParts, there: TakenParts, gradient: LeafArrays, walk: TwoWalks) -> str:
    """Return why one took another multiple of the gradient than the other."""
    if here.loose or there.loose:
        return ""  # what is no multiple of the gradient has no scale
    leaves = [leaf for leaf in here.gradient if leaf in there.gradient]
    frozen = [[leaf for leaf in leaves if not one.gradient[leaf]] for one in (here, there)]
    if frozen[0] != frozen[1]:
        only = sorted(set(frozen[0]) ^ set(frozen[1]))
        who = "the port" if only[0] in frozen[1] else "the trainer"
        return (
            f"frozen: no gradient reaches {only[0]} and {len(only) - 1} more in the optimizer of "
            f"{who}, it does in the other"
        )
    moving = [leaf for leaf in leaves if here.gradient[leaf]]
    # any number is a multiple of one: leaves of few elements count where there are no others
    moving = [leaf for leaf in moving if gradient[leaf].size >= FEWEST] or moving
    ratios = {leaf: there.gradient[leaf] / here.gradient[leaf] for leaf in moving}
    ratio = one_value(ratios)
    if ratio is None:
        norms = {leaf: float(np.linalg.norm(gradient[leaf])) for leaf in moving}
        for who, one, other in (("the port", there, here), ("the trainer", here, there)):
            if one_value({leaf: other.gradient[leaf] for leaf in moving}) is None:
                continue  # where both scale leaves otherwise, that one does is no difference
            sizes = np.array([one.gradient[leaf] * norms[leaf] for leaf in moving])
            if groups := clipped_groups(one, {leaf: gradient[leaf] for leaf in leaves}):
                sides = ("there", "here") if who == "the port" else ("here", "there")
                return (
                    f"clipping: by the norms of {len(groups)} groups of leaves, such as {names_of(groups[0])} "
                    f"{sides[0]}; all of them scaled by one number {sides[1]}"
                )
            if len(sizes) > 1 and int((np.abs(sizes - sizes.max()) <= 1e-4 * sizes.max()).sum()) > 1:
                return f"clipping: {who} clips leaf by leaf, not by the norm of all gradients"
        common = float(np.median(list(ratios.values())))
        off = [leaf for leaf, ratio in ratios.items() if abs(ratio - common) > SAME * abs(common)]
        if len(off) == 1 and len(moving) > 3:
            leaf = off[0]
            who, one = ("the port", there) if abs(ratios[leaf]) < abs(common) else ("the trainer", here)
            if one.gradient[leaf] * norms[leaf] >= max(one.gradient[other] * norms[other] for other in moving):
                return (
                    f"clipping: {who} clips leaf by leaf, or scales {leaf}, whose gradient is the largest, by itself"
                )
        return (
            f"gradient: leaves are scaled differently, from {min(ratios.values()):.6g} to "
            f"{max(ratios.values()):.6g} times"
        )
    squares = {
        leaf: there.square[leaf] / here.square[leaf]
        for leaf in moving
        if here.square.get(leaf) and leaf in there.square
    }
    second = one_value(squares)
    # parts of the square are of the first moment's: equal betas leave them as they are but for the scale
    if abs(ratio - 1.0) <= 1e-12:
        if second is not None and abs(second - 1.0) > SAME:
            return f"beta2: the second moment takes {second:.6g} times as much of the squared gradient there as here"
        return ""
    if second is not None and abs(second * ratio**2 - 1.0) <= 1e-3 and abs(ratio - 1.0) > 1e-3:
        return f"beta1: the first moment takes {ratio:.6g} times as much of the gradient there as here"
    norm = float(np.sqrt(sum(float((g * g).sum()) for g in gradient.values())))
    return _clip_cause(ratio, norm, here, there, gradient, walk)


def _clip_cause(
    ratio: float, norm: float, here: TakenParts, there: TakenParts, gradient: LeafArrays, walk: TwoWalks
) -> str:
    """Return why all gradients are scaled alike: by clipping, or before it.

    Where both clip, c / (norm + epsilon) takes any scale back but for the epsilon: what is left tells the scale.
    """
    for words, share in (("here, not there", ((norm + EPSILON) / ratio - norm) / EPSILON),
                         ("there, not here", ((norm + EPSILON) * ratio - norm) / EPSILON)):  # fmt: skip
        if abs(share) <= 1e-3:
            return f"clip epsilon: 1e-6 is added to the norm of the gradients {words}"
        scale = share if words.startswith("there") else 1 / share
        if whole := whole_times(scale, 1e-3):
            return f"accumulation: before both clip, the gradients of the port are {whole} times the trainer's"
    kept = [leaf for leaf in here.gradient if here.gradient[leaf]]
    part = float(np.sqrt(sum(float((gradient[leaf] ** 2).sum()) for leaf in kept)))
    for epsilon in (1e-6, 0.0):
        made = (part + epsilon) / (norm + epsilon)
        if abs(part - norm) > 1e-9 * norm and min(abs(ratio - made), abs(ratio - 1 / made)) <= 1e-6:
            who = "the port" if ratio < 1 else "the trainer"
            return (
                f"clipping: {who} counts leaves for the norm that its optimizer does not move "
                f"(frozen), the other does not"
            )
    if cause := clip_cause(walk, here, there, norm):
        return cause
    if not scaled_gradients(walk, here, there, ratio):
        return (
            f"momentum: after the first update the port's {there.slot} is {ratio:.6g} times the trainer's {here.slot}"
        )
    if whole := whole_times(ratio, 1e-9):
        return (
            f"accumulation: the gradients of the port are {whole} times the trainer's (the mean over micro-batches, "
            "taken twice or not at all)"
        )
    return (
        f"clipping: the gradient that reaches the port's optimizer is {ratio:.6g} times the trainer's, whose norm is "
        f"{norm:.6g}: another largest norm, or clipped in one of the two alone, or scaled where the other clips"
    )
