"""Updates that are clipped after the optimizer made them: every element by itself, or all by their norm.

What lies below a limit of elements follows the form of the moves; what lies at it is the same number everywhere.
Where all are clipped by their norm, each update is the other run's times the limit over that norm: no rate does that.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from parity.checks.proving.bias_forms import betas_of, power_of
from parity.checks.proving.effective import one_value
from parity.checks.proving.lockstep import Lane
from parity.checks.proving.move_forms import MoveForm, fitted_form, move_form, used_updates
from parity.checks.proving.move_ratios import SAME, ratios_of
from parity.checks.proving.seen import SeenUpdate, joined
from parity.checks.proving.slots import LeafArrays
from parity.checks.proving.walk import TwoWalks

__all__ = ["ClippedNorm", "clipped_moves_cause", "clipped_norm", "clipped_norm_cause"]

CLIPPED = 1e-5
"""Relative distance of two limits that are one: what is added to a norm, up to 1e-6, shows in them."""

FLUSH = 1e-9
"""Relative distance from the largest move within which one is at the limit."""


def clipped_moves_cause(walk: TwoWalks) -> str:
    """Return that one clips every element of its updates and the other does not; empty where that is not seen.

    Args:
        walk: Two trainers after some updates.
    """
    limits = [0.0 if move_form(walk, at) is not None else _limit(walk, at) for at in (0, 1)]
    if bool(limits[0]) == bool(limits[1]) or None in limits:
        return ""
    who, other, limit = (
        ("the port", "the trainer", limits[1]) if limits[1] else ("the trainer", "the port", limits[0])
    )
    return (
        f"clipping: {who} clips every element of its update by itself, after it was scaled ({limit:.6g} at the "
        f"first), {other} does not"
    )


@dataclass(frozen=True)
class ClippedNorm:
    """A largest norm of whole updates."""

    at: int
    """Run that clips: 0 the trainer, 1 its port."""
    words: str
    """The norm, of what it is, and how large that was at the first update that was clipped."""


def clipped_norm_cause(walk: TwoWalks) -> str:
    """Return that one scales its updates to a largest norm; empty where a rate, or nothing of the kind, is seen.

    Args:
        walk: Two trainers after some updates.
    """
    found = clipped_norm(walk)
    if found is None:
        return ""
    who, other = ("the port", "the trainer") if found.at else ("the trainer", "the port")
    return (
        f"clipping: {who} clips the norm of its whole update, after the optimizer made it, to {found.words}, {other} "
        "does not"
    )


def clipped_norm(walk: TwoWalks) -> ClippedNorm | None:
    """Return the largest norm to which one run scales its updates; None where that is not seen.

    Told by several updates whose norms differ: each run's form gives its own, and the rates of the one are those of
    the other times the limit over the norm, or as they are below it.

    Args:
        walk: Two trainers after some updates.
    """
    one, two = move_form(walk, 0), move_form(walk, 1)
    if one is None or two is None or _way(one) != _way(two):
        return None
    shared = {at: one_value(each, SAME) for at, each in ratios_of(walk, one, two).items() if each}
    if len(shared) < 2 or None in shared.values():
        return None
    for form, plain, power, side in ((two, one, 1, 1), (one, two, -1, 0)):
        ratios = {at: value**power for at, value in shared.items() if value}
        rates = {at: _rate(plain, at) for at in ratios}
        own = [_rate(plain, at) * plain.wholes[at][0] for at in ratios]
        # both were at one point before they parted, and from then on norms of clipped gradients differ by that alone
        if ratios.get(walk.done, 1.0) >= 1.0 - SAME or max(own) - min(own) <= CLIPPED * max(own):
            continue
        for words, sizes in _sizes(walk.lanes[side], form, rates):
            limit = _largest_norm(ratios, sizes)
            if limit:
                at = min(at for at, ratio in ratios.items() if ratio < 1.0 - SAME)
                return ClippedNorm(side, f"{limit:.6g} ({words}; {sizes[at]:.6g} at update {at})")
    return None


def _way(form: MoveForm) -> tuple[bool, str, bool]:
    """Return what two forms share that move in one way, whatever their slots are called."""
    return form.signed, form.mixed, bool(form.under)


def _sizes(lane: Lane, form: MoveForm, rates: dict[int, float]) -> Iterator[tuple[str, dict[int, float]]]:
    """Yield norms of the updates of a form, each with what it is of.

    The limit is in what the rate is taken of, with the corrections of the moments or without, or in the updates
    themselves; with decay beside it, or before that is added.

    Args:
        lane: The run.
        form: Of its moves.
        rates: Of the other run, at the updates that are asked for: they have its corrections in them.
    """
    wholes = {at: form.wholes[at][0] for at in rates}
    bare = {at: form.bares[at] for at in rates}
    decays = any(abs(bare[at] - size) > SAME * size for at, size in wholes.items())
    first, second = betas_of(lane, form, sorted(rates))
    for norms, beside in ((wholes, ""), (bare, ", decay beside it")) if decays else ((wholes, ""),):
        yield f"before its rate{beside}", norms
        if first and second:
            yield (
                f"before its rate{beside}",
                {
                    at: norm * (1.0 - power_of(second, at)) ** 0.5 / (1.0 - power_of(first, at))
                    for at, norm in norms.items()
                },
            )
        yield f"its rate included{beside}", {at: rates[at] * norm for at, norm in norms.items()}


def _rate(form: MoveForm, at: int) -> float:
    return one_value({leaf: one.rate for leaf, one in form.moves[at].items()}, SAME) or 0.0


def _largest_norm(ratios: dict[int, float], sizes: dict[int, float]) -> float:
    """Return the limit to which norms are scaled by ratios; 0 where they are not, or where one ratio is all there is.

    Args:
        ratios: Of each update, by which it is scaled.
        sizes: Its norm before.
    """
    clipped = [at for at, ratio in ratios.items() if 0.0 < ratio < 1.0 - SAME]
    limits = [ratios[at] * sizes[at] for at in clipped]
    if len(clipped) < 2 or not min(limits) > 0.0 or max(limits) - min(limits) > CLIPPED * max(limits):
        return 0.0
    # updates of one norm are clipped by one factor, as a rate has it; below the limit nothing is
    norms = [sizes[at] for at in clipped]
    below = [at for at in ratios if at not in clipped]
    held = all(abs(ratios[at] - 1.0) <= SAME and sizes[at] <= max(limits) * (1 + SAME) for at in below)
    return limits[0] if held and max(norms) - min(norms) > 1e-3 * max(norms) else 0.0


def _limit(walk: TwoWalks, at: int) -> float | None:
    """Return the largest element of the first update, where the others follow a form; None where they do not."""
    updates, born = used_updates(walk, at)
    inner, limits = [], []
    for update in updates:
        move = update.move
        sizes = np.abs(joined(move, list(move)))
        top = float(sizes.max(initial=0.0))
        flush = int((sizes >= top * (1 - FLUSH)).sum())
        if not top or flush > sizes.size - 8:
            return None
        inner.append(_below(update, top) if flush > 1 else update)
        limits.append(top if flush > 1 else 0.0)
    if len(limits) < 2 or not all(limits[:2]):
        return None
    return limits[0] if fitted_form(inner, born) is not None else None


def _below(update: SeenUpdate, top: float) -> SeenUpdate:
    """Return an update without the elements at a limit, its leaves flat."""
    below = {leaf: np.abs(one) < top * (1 - FLUSH) for leaf, one in update.move.items()}

    def cut(held: LeafArrays) -> LeafArrays:
        return {leaf: np.asarray(one)[below[leaf]] for leaf, one in held.items() if below[leaf].any()}

    slots = [{slot: cut(held) for slot, held in each.items()} for each in (update.held, update.kept)]
    return SeenUpdate(update.at, cut(update.before), cut(update.gradient), cut(update.after), slots[0], slots[1])
