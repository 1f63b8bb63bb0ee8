"""Pieces that do exactly the same, as experts of one layer: tried with values of their own, one pair at a time."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from parity.checks.models.likeness import SAME, Alike, gap, left_over
from parity.checks.models.pieces import LeafPart, PartArrays, turns
from parity.checks.models.subjects import Subjects, own_values, values_of

__all__ = ["break_ties"]

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


def _fits(subjects: Subjects, firsts: Sequence[LeafPart], seconds: Sequence[LeafPart], told: Sequence[Alike]) -> bool:
    """Return whether both models compute the same with these pairs moved."""
    own_a, own_b = own_values(told, 101)
    a = values_of(subjects.first, firsts, own_a, 101)
    b = values_of(subjects.second, seconds, own_b, 101)
    one, two = subjects.evaluate(a, b, grads=False)
    return all(gap(x, y) <= 1e-9 for x, y in zip(one.outputs, two.outputs, strict=True))
