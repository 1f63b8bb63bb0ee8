"""Pieces that do exactly the same: experts of one layer, which values of their own tell, and biases of one sum."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from parity.checks.models.likeness import SAME, Alike, gap, left_over
from parity.checks.models.pieces import LeafPart, PartArrays, turns
from parity.checks.models.quiet import likely_pairs
from parity.checks.models.subjects import Subjects, own_values, values_of

__all__ = ["break_ties", "of_one_sum"]

MOST_TRIES = 64
"""Pairs that are tried for one piece."""


def break_ties(
    subjects: Subjects, firsts: Sequence[LeafPart], seconds: Sequence[LeafPart], told: Sequence[Alike],
    quiet: tuple[Sequence[LeafPart], Sequence[LeafPart]], left: PartArrays, right: PartArrays,
) -> Alike | None:  # fmt: skip
    """Return a pair that is told when it alone gets values of its own; None where every try, or none, fits.

    Two models that compute the same do so with one pair moved only where it is one: but for pieces that may change
    places, where several fit and nothing is told.
    """
    for here, there in left_over(firsts, seconds, told, quiet, left, right):
        for piece in here:
            tries = [
                (other, axes)
                for other in there
                for axes in turns(piece.index.shape, other.index.shape)
                if gap(left[piece].transpose(axes), right[other]) <= SAME
            ]
            fits = [
                (other, axes)
                for other, axes in tries[:MOST_TRIES]
                if _fits(subjects, firsts, seconds, [*told, Alike(piece, other, axes, 0.0, np.inf)])
            ]
            if len(tries) > 1 and len(fits) == 1:
                [(other, axes)] = fits
                return Alike(piece, other, axes, 0.0, 1.0)
    return None


def of_one_sum(
    subjects: Subjects, firsts: Sequence[LeafPart], seconds: Sequence[LeafPart], told: Sequence[Alike],
    quiet: tuple[Sequence[LeafPart], Sequence[LeafPart]], left: PartArrays, right: PartArrays,
) -> list[Alike]:  # fmt: skip
    """Return pairs of which any other pairing computes the same, in both models, whatever the values.

    The two biases of a recurrent layer, and the biases of skips that are summed, have one gradient. Pairs are taken
    beside what was told, else by names: nothing tells which is which, and nothing computed depends on it.
    """
    found: list[Alike] = []
    for here, there in left_over(firsts, seconds, told, quiet, left, right):
        for piece in here:
            turned = turns(piece.index.shape, piece.index.shape)
            if len([axes for axes in turned if _same(left, piece, left, piece, axes)]) > 1:
                continue
            taken = {one for match in found for one in (match.first, match.second)}
            mine = [one for one in here if one.index.shape == piece.index.shape and _same(left, piece, left, one)]
            theirs = [
                (other, axes)
                for other in there
                for axes in turns(piece.index.shape, other.index.shape)
                if _same(left, piece, right, other, axes)
            ]
            orders = dict(theirs)
            if piece in taken or not 1 < len(mine) == len(theirs) == len(orders):
                continue
            pairs = likely_pairs(mine, list(orders), told)
            there_of = [b for _, b in pairs]
            # what neither a change of two nor a turn of all changes, no order does: these two make all others
            ways = (there_of, [*there_of[1::-1], *there_of[2:]], [*there_of[1:], there_of[0]])
            tries = [
                [Alike(a, b, orders[b], 0.0, np.inf, "sum") for (a, _), b in zip(pairs, way, strict=True)]
                for way in ways
            ]
            if all(_fits(subjects, firsts, seconds, [*told, *found, *made]) for made in tries):
                found += tries[0]
    return found


def _same(one: PartArrays, a: LeafPart, two: PartArrays, b: LeafPart, order: tuple[int, ...] | None = None) -> bool:
    """Return whether the gradients of two pieces are one, in an order of axes."""
    mine = one[a] if order is None else one[a].transpose(order)
    return gap(mine, two[b]) <= SAME


def _fits(subjects: Subjects, firsts: Sequence[LeafPart], seconds: Sequence[LeafPart], told: Sequence[Alike]) -> bool:
    """Return whether both models compute the same with these pairs moved."""
    own_a, own_b = own_values(told, 101)
    a = values_of(subjects.first, firsts, own_a, 101)
    b = values_of(subjects.second, seconds, own_b, 101)
    one, two = subjects.evaluate(a, b, grads=False)
    return all(gap(x, y) <= 1e-9 for x, y in zip(one.outputs, two.outputs, strict=True))
