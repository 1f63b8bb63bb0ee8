"""Gradients of those leaves alone that part, as each optimizer was given them: peeled out of its own slots or moves.

The leaves that agree tell what a slot takes of itself, of the gradient and of the parameters. With these numbers the
gradient that the other leaves were given is read off the same slot, in its own units, and compared with that of the
loss: clipped by the norm of rows or of the whole leaf, element by element, or scaled.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from parity.checks.proving.effective import FEWEST, fitted
from parity.checks.proving.groups import parted_group, parted_leaves
from parity.checks.proving.seen import SeenUpdate, decays_of, joined, seen_updates
from parity.checks.proving.slots import names_of
from parity.checks.proving.walk import TwoWalks

__all__ = ["peeled_cause"]

FIT = 1e-7
"""How far what makes the leaves that agree may be from them, relative to the largest element."""

SAME = 1e-6
"""The same of a gradient and its form; squares and their roots have fewer digits."""

EPSILONS = (0.0, 1e-6)
"""What is added to a norm before something is divided by it."""

PeeledArray = NDArray[np.float64]


@dataclass(frozen=True)
class _PeeledGradient:
    """A gradient of the loss and what an optimizer was given in its place, at one update."""

    own: PeeledArray
    given: PeeledArray


def peeled_cause(walk: TwoWalks) -> str:
    """Return how gradients of the leaves that part differ, told by the numbers of those that agree; else empty.

    Args:
        walk: Two trainers that part after their first update in some leaves of the model.
    """
    if parted_group(walk) is None:
        return ""
    leaves = parted_leaves(walk)
    found = [_given_of(seen_updates(walk, at, own=False)[:3], leaves) for at in (0, 1)]
    sides = [one for one in found if one is not None]
    if len(sides) < 2:
        return ""
    said: dict[str, tuple[str, str]] = {}
    for leaf in leaves:
        words = [_form(side[leaf], slot) for slot, side in sides]
        if not all(words):
            return ""
        said[leaf] = words[0], words[1]
    told = {words for words in said.values() if words[0] != words[1]}
    if len(told) != 1:
        return ""  # what is not one difference is no cause
    here, there = told.pop()
    moved = [leaf for leaf, words in said.items() if words[0] != words[1]]
    title = "clipping" if "clipped" in here + there else "gradient"
    return f"{title}: the gradient of {names_of(moved)} {here} here, {there} there; that of the other leaves agrees"


def _given_of(
    updates: Sequence[SeenUpdate], leaves: Sequence[str]
) -> tuple[str, dict[str, list[_PeeledGradient]]] | None:  # fmt: skip
    """Return the slot that tells what leaves were given in one run, empty for moves, and at each update; or None."""
    if len(updates) < 2 or updates[0].at != 1 or not all(leaf in updates[0].gradient for leaf in leaves):
        return None
    others = [leaf for leaf in updates[0].gradient if leaf not in leaves]
    for slot, power in _observed(updates[0], [*others, *leaves]):
        found: dict[str, list[_PeeledGradient]] = {leaf: [] for leaf in leaves}
        for update in updates:
            numbers = _numbers(update, slot, power, others)
            if numbers is None:
                break
            for leaf in leaves:
                found[leaf].append(
                    _PeeledGradient(update.gradient[leaf], _peeled(update, slot, power, leaf, numbers))
                )
        else:
            return slot, found
    return None


def _observed(update: SeenUpdate, leaves: Sequence[str]) -> Iterator[tuple[str, int]]:
    """Yield slots that hold a share of the gradient, of its square, and the moves themselves."""
    signed: list[tuple[str, int]] = []
    squares: list[tuple[str, int]] = []
    for slot, kept in update.kept.items():
        values = joined(kept, leaves)
        if np.any(values) and not np.any(joined(update.held[slot], leaves)):
            (signed if (values < 0.0).any() else squares).append((slot, 1 if (values < 0.0).any() else 2))
    yield from signed
    yield from squares
    yield "", 1


def _numbers(update: SeenUpdate, slot: str, power: int, leaves: Sequence[str]
             ) -> tuple[float, float, float, bool] | None:  # fmt: skip
    """Return what a slot takes of itself and of the gradient, the share of the parameters, and whether of all leaves.

    Leaves are those that agree; None where these numbers do not make the slot of all of them.
    """
    if sum(update.gradient[leaf].size for leaf in leaves) < 2 * FEWEST:
        return None
    made = joined(update.kept[slot] if slot else update.move, leaves)
    held = joined(update.held[slot], leaves) if slot else np.zeros_like(made)
    before = [held] if np.any(held) else []
    g = joined(update.gradient, leaves)
    for number, more in enumerate(decays_of(update, leaves)):
        columns = [*before, *_columns(g, more, power)]
        parts = fitted(columns, made, FIT)
        if parts is None:
            continue
        keep, (weight, *share) = (parts[0] if before else 0.0), parts[len(before) :]
        if not weight or (power == 2 and weight < 0.0):
            continue
        shared = share[0] / weight / power if share else 0.0
        if power == 2 and share and abs(share[1] / weight - shared**2) > 1e-4 * shared**2:
            continue
        return keep, weight, shared, number < 2
    return None


def _columns(g: PeeledArray, more: Sequence[PeeledArray], power: int) -> list[PeeledArray]:
    if power == 1 or not more:
        return [g**power, *more]
    return [g * g, g * more[0], more[0] ** 2]


def _peeled(
    update: SeenUpdate, slot: str, power: int, leaf: str, numbers: tuple[float, float, float, bool]
) -> PeeledArray:
    keep, weight, share, whole = numbers
    made = update.kept[slot][leaf] - keep * update.held[slot][leaf] if slot else update.move[leaf]
    given = np.asarray(made, np.float64) / weight
    if power == 2:
        given = -np.sign(update.move[leaf]) * np.sqrt(np.maximum(given, 0.0))
    return given - (share * update.before[leaf] if whole or update.before[leaf].ndim > 1 else 0.0)


def _form(updates: Sequence[_PeeledGradient], slot: str) -> str:
    """Return what was done to a gradient, the same at all updates; empty where no form makes it.

    In moves a multiple of the gradient is one of the rate as well, which is told elsewhere.
    """
    if all(_near(one.given, one.own) for one in updates):
        return "is that of the loss"
    tops = [float(np.abs(one.given).max()) for one in updates]
    top = max(tops)
    flush = sum(int((np.abs(one.given) >= top * (1 - SAME)).sum()) for one in updates)
    if flush >= 2 and all(_near(one.given, np.clip(one.own, -top, top)) for one in updates):
        return f"is clipped element by element to {top:.6g}"
    ranks = updates[0].own.ndim
    for axes, words in _units(ranks):
        if said := _clipped(updates, axes, words):
            return said
    shares = [float((one.given * one.own).sum() / (one.own**2).sum()) for one in updates if np.any(one.own)]
    if (
        slot
        and shares
        and np.ptp(shares) <= SAME * abs(shares[0])
        and all(_near(o.given, shares[0] * o.own) for o in updates)
    ):
        return f"is {shares[0]:.6g} times that of the loss"
    return ""


def _units(ranks: int) -> Iterator[tuple[tuple[int, ...], str]]:
    """Yield axes over which norms may be taken, with the words for the parts."""
    yield tuple(range(ranks)), "as a whole"
    for axis in range(ranks) if ranks > 1 else ():
        yield tuple(n for n in range(ranks) if n != axis), f"for each place along axis {axis} (of the port's layout)"


def _clipped(updates: Sequence[_PeeledGradient], axes: tuple[int, ...], words: str) -> str:
    """Return the words of a clipping by norms of parts; empty where parts have no one scale each, or no one limit."""
    scales: list[PeeledArray] = []
    norms: list[PeeledArray] = []
    for one in updates:
        square = (one.own**2).sum(axes, keepdims=True)
        scale = (one.own * one.given).sum(axes, keepdims=True) / np.where(square > 0.0, square, 1.0)
        if not _near(one.given, scale * one.own):
            return ""
        scales.append(scale[square > 0.0])
        norms.append(np.sqrt(square[square > 0.0]))
    s, n = np.concatenate(scales), np.concatenate(norms)
    less = s < 1 - SAME
    if int(less.sum()) < 2 or (s > 1 + SAME).any():
        return ""
    for epsilon in EPSILONS:
        limits = s[less] * (n[less] + epsilon)
        limit = float(np.median(limits))
        if np.ptp(limits) <= SAME * limit and (n[~less] <= limit * (1 + SAME)).all():
            return f"is clipped by its norm {words} to {limit:.6g}"
    return ""


def _near(a: PeeledArray, b: PeeledArray) -> bool:
    return float(np.abs(a - b).max(initial=0.0)) <= SAME * float(np.abs(b).max(initial=0.0))
