"""How much of the gradient each optimizer takes, in absolute terms: what is clipped is told from what is scaled.

The first moment of one update holds a part of the gradient, and which part of it is the weight of the moment shows in
the second update: what the moment keeps of itself is one less that weight.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from parity.checks.proving.clipped_moves import clipped_norm
from parity.checks.proving.clipped_parts import counted_leaves
from parity.checks.proving.effective import FEWEST, TakenParts, one_value
from parity.checks.proving.lockstep import MODEL, Lane
from parity.checks.proving.momentum_causes import shares_of
from parity.checks.proving.move_forms import move_form
from parity.checks.proving.seen import gradient_at
from parity.checks.proving.slots import LeafArrays
from parity.checks.proving.walk import TwoWalks

__all__ = [
    "CLIPS_BY_VALUE",
    "clip_cause",
    "clip_values_cause",
    "clipped_groups",
    "clips_update",
    "cut_values_cause",
    "is_clipped_by_value",
    "is_cut",
    "whole_times",
]

CLIPS_BY_VALUE = "clipping: {who} clips every element of the gradient by itself (by value), the other does not"

ONE = 1e-6
"""How far a part of the gradient may be from all of it."""


def clip_cause(walk: TwoWalks, here: TakenParts, there: TakenParts, norm: float) -> str:
    """Return which of two optimizers clips or scales the gradient, where the weights of both moments show.

    Args:
        walk: Two trainers after some updates.
        here: What the trainer's first moment holds after the first update.
        there: The port's.
        norm: Of all gradients before it.
    """
    scales, means, kept = [], [], []
    for at, taken in ((0, here), (1, there)):
        held = walk.lanes[at].moments[1].slots[taken.slot]
        several = {leaf: one for leaf, one in taken.gradient.items() if leaf not in held or held[leaf].size >= FEWEST}
        part, shares = one_value(several or taken.gradient, ONE), shares_of(walk.lanes[at], taken.slot, 2)
        share = shares.kept if shares else walk.lanes[at].kept.get(taken.slot) if taken.square else None
        if part is None or share is None or not 0.0 <= share < 1.0:
            return ""
        # beside a second moment the first is a mean, of which the gradient is one less what is kept
        mean = taken.square or (shares and abs(shares.taken - (1.0 - share)) <= ONE * abs(shares.taken))
        means.append(part / (1.0 - share))
        scales.append(means[-1] if mean else part)
        kept.append(share)
    whole = [abs(scale - 1.0) <= ONE for scale in scales]
    names = ("the trainer", "the port")
    for at, other in ((0, 1), (1, 0)):
        if whole[other] and 0.0 < scales[at] < 1.0 and not whole_times(scales[at], ONE):
            return (
                f"clipping: {names[at]} clips the norm of the gradients ({norm:.6g}) to {scales[at] * norm:.6g}, "
                f"{names[other]} {clips_update(walk, other)}"
            )
        times = whole_times(scales[other], ONE)
        if times and 0.0 < scales[at] < 1.0 and not whole_times(scales[at], ONE):
            return (
                f"accumulation: {names[other]} takes {times} times the gradient of its loss and does not clip it, "
                f"{names[at]} clips its norm ({norm:.6g}) to {scales[at] * norm:.6g}"
            )
    if all(0.0 < scale < 1.0 and not whole_times(scale, ONE) for scale in scales):
        sizes = [scale * norm for scale in scales]
        # where later gradients are clipped too, what a moment takes of them does not tell a mean from a sum: two
        # means of one clipped gradient do
        if abs(kept[0] - kept[1]) > ONE and abs(means[0] - means[1]) <= 1e-5 * means[0]:
            return (
                f"momentum: it keeps {kept[0]:.6g} of itself here, {kept[1]:.6g} there, and takes the rest of the "
                f"gradient, whose norm both clip to {means[0] * norm:.6g}"
            )
        if abs(sizes[0] - sizes[1]) <= 1e-5 * sizes[0]:
            return (
                f"clipping: both clip the norm of the gradients to {sizes[0]:.6g}, and differ by what is beside it: "
                "their gradients are scaled otherwise before that, or another epsilon is added to the norm"
            )
        return _parts_cause(walk, (here, there), scales, norm) or (
            f"clipping: largest norm of the gradients {sizes[0]:.6g} here, {sizes[1]:.6g} there"
        )
    return ""


def _parts_cause(walk: TwoWalks, taken: Sequence[TakenParts], scales: Sequence[float], norm: float) -> str:
    """Return that one clips by the norm of some of the leaves to what the other clips the norm of all.

    Args:
        walk: Two trainers after some updates.
        taken: What the first moments hold after the first one.
        scales: Of all gradients in it, both smaller than one.
        norm: Of all gradients before it.
    """
    for at, names in ((1, ("the port", "the trainer")), (0, ("the trainer", "the port"))):
        lane, slot = walk.lanes[at], taken[at].slot
        shares = shares_of(lane, slot, 2)
        if shares is None or shares.kept >= 1.0:
            continue
        # of a mean what is taken is the scale times one less what is kept; a sum takes the scale itself
        second = shares.taken / (1.0 - shares.kept) if taken[at].square else shares.taken
        statistics, limit = lane.trainer.model.statistics, scales[1 - at] * norm
        updates = [
            ({leaf: g for leaf, g in gradient_at(lane, step).items() if leaf not in statistics}, scale)
            for step, scale in ((0, scales[at]), (1, second))
        ]
        # a norm of fewer leaves is smaller, and scales less
        if scales[at] > scales[1 - at] and 0.0 < second < 1.0 - ONE and (which := counted_leaves(updates, limit)):
            return (
                f"clipping: {names[0]} clips all gradients by the norm of {which}, {names[1]} by the norm of all; "
                f"both to {limit:.6g}"
            )
    return ""


def clips_update(walk: TwoWalks, at: int) -> str:
    """Return what one that does not clip its gradients does: its updates may all have one norm instead.

    Args:
        walk: Two trainers after some updates.
        at: 0 for the trainer, 1 for its port.
    """
    if (clipped := clipped_norm(walk)) is not None and clipped.at == at:
        return f"the norm of its whole update, after the optimizer made it, to {clipped.words}"
    form = move_form(walk, at)
    sizes = {}
    for step, (size, _) in (form.wholes if form is not None else {}).items():
        rate = one_value({leaf: one.rate for leaf, one in form.moves[step].items()}, ONE)  # type: ignore[union-attr]
        decays = any(one.decay for one in form.moves[step].values())  # type: ignore[union-attr]
        sizes[str(step)] = 0.0 if rate is None or decays else rate * size
    norm = one_value(sizes, ONE) if len(sizes) > 2 else None
    if norm:
        return f"the norm of its update, which is {norm:.6g} at each of the first {len(sizes)}"
    return "does not clip it"


def clip_values_cause(walk: TwoWalks) -> str:
    """Return that one clips every element of the gradient at both ends, and the other at one end alone.

    Told by a moment of the first update: what the one holds is what the other holds, clipped.
    """
    for held in _moments_of_both(walk):
        for both, single, words in ((held[0], held[1], ("the trainer", "the port")),
                                    (held[1], held[0], ("the port", "the trainer"))):  # fmt: skip
            low, top = float(both.min()), float(both.max())
            flush = [int((abs(both - end) <= ONE * top).sum()) for end in (low, top)]
            if not low < 0.0 < top or abs(low + top) > ONE * top or min(flush) < 2 or sum(flush) > both.size - 2:
                continue
            if float(abs(np.clip(single, low, top) - both).max()) > ONE * top:
                continue
            for end, word in (("above", single.max() - top), ("below", low - single.min())):
                if abs(word) <= ONE * top:  # it ends where the other does on this side, and not on the other
                    ends = f"at both ends, {words[1]} {end} alone"
                    return f"clipping: {words[0]} clips every element of the gradient {ends}"
    return ""


def cut_values_cause(walk: TwoWalks) -> str:
    """Return that a moment of the first update is a share of the other's, with its elements cut at one limit.

    So it is told where neither is a share of the gradient of the loss, as where parts of a batch count otherwise.
    """
    for held in _moments_of_both(walk):
        for at, who in ((0, "the trainer"), (1, "the port")):
            if is_cut(held[at], [held[1 - at]]):
                return CLIPS_BY_VALUE.format(who=who)
    return ""


def _moments_of_both(walk: TwoWalks) -> Iterator[list[NDArray[np.float64]]]:
    """Yield what both hold after the first update in moments that part, all leaves as one."""
    for slot, (since, gap) in walk.suspects.items():
        if since != 1 or not gap.other or gap.other == MODEL:
            continue
        one = walk.pairing.over(walk.lanes[0].moments[1].slots[slot])
        two = walk.lanes[1].moments[1].slots.get(gap.other, {})
        leaves = [leaf for leaf in one if leaf in two]
        if leaves:
            yield [np.concatenate([side[leaf].ravel() for leaf in leaves]) for side in (one, two)]


def is_clipped_by_value(lane: Lane, slot: str) -> bool:
    """Return whether a moment of the first update holds the gradient of the loss, its elements cut at one limit.

    Below the limit each is one share of its element of the gradient, or of its square; at it those stand of which the
    share would be more. That two are equal is not enough: by symmetry those of a layer that begins at zero may be.

    Args:
        lane: A trainer after its first update.
        slot: The moment.
    """
    held, gradient = lane.moments[1].slots[slot], gradient_at(lane, 0)
    leaves = [leaf for leaf in held if leaf in gradient]
    if not leaves:
        return False
    made, plain = (np.concatenate([one[leaf].ravel() for leaf in leaves]) for one in (held, gradient))
    return is_cut(made, (plain, plain**2))


def is_cut(made: NDArray[np.float64], givens: Sequence[NDArray[np.float64]]) -> bool:
    """Return whether numbers are a share of others, cut at one limit.

    Args:
        made: Of shape [n].
        givens: The others, each of which may be the one: of shape [n].
    """
    top = float(np.abs(made).max(initial=0.0))
    cut = np.abs(made) >= top * (1 - 1e-12)
    if not top or cut.sum() < 2:
        return False
    for given in givens:
        below = ~cut & (given != 0.0)
        if not below.any():  # a limit below all of them leaves their signs
            if cut.sum() >= FEWEST and np.array_equal(np.sign(made), np.sign(given)):
                return True
            continue
        share = float(np.median(made[below] / given[below]))
        alike = np.abs(made - share * given)[~cut].max() <= 1e-9 * top
        whole = np.abs(share * given[cut])
        # where none would be more, nothing is cut: the largest are equal
        if share and alike and np.all(whole >= top * (1 - 1e-9)) and whole.max() > top * (1 + ONE):
            return True
    return False


def clipped_groups(taken: TakenParts, gradient: LeafArrays) -> list[list[str]]:
    """Return groups of leaves that are clipped each by its own norm; none where the scales show no such groups.

    Leaves of one group have one scale. Of groups that are clipped, two at least, the norms are one number afterwards;
    those that are not clipped have the largest scale, and a smaller norm.

    Args:
        taken: What the first moment of an optimizer holds of each gradient.
        gradient: Of the loss.
    """
    scales = {leaf: scale for leaf, scale in taken.gradient.items() if scale and leaf in gradient}
    groups: list[list[str]] = []
    for leaf in sorted(scales, key=lambda one: scales[one]):
        if groups and abs(scales[leaf] - scales[groups[-1][0]]) <= ONE * abs(scales[leaf]):
            groups[-1].append(leaf)
        else:
            groups.append([leaf])
    if not 2 <= len(groups) < len(scales):
        return []
    sizes = [
        abs(scales[group[0]]) * float(np.sqrt(sum(float((gradient[leaf] ** 2).sum()) for leaf in group)))
        for group in groups
    ]
    clipped = [abs(size - max(sizes)) <= 1e-4 * max(sizes) for size in sizes]  # 1e-6 may be added to each norm
    loose = [at for at, one in enumerate(clipped) if not one]
    several = any(one and len(group) > 1 for one, group in zip(clipped, groups, strict=True))  # else leaf by leaf
    return groups if several and sum(clipped) >= 2 and loose in ([], [len(groups) - 1]) else []


def whole_times(ratio: float, close: float) -> str:
    """Return a ratio that is a whole number of at least 2, or one by such a number; empty where it is neither.

    Args:
        ratio: Of two gradients.
        close: Relative distance from the whole number.
    """
    for value, words in ((ratio, ""), (1 / ratio if ratio else 0.0, "1/")):
        if round(value) >= 2 and abs(value - round(value)) <= close * value and value < 1e4:
            return f"{words}{round(value)}"
    return ""
