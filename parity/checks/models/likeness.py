"""Likeness of pieces by what they do: gradients as arrays, compared in every order of their axes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from parity.checks.models.pieces import ExtentsKey, LeafPart, PartArrays, turns

__all__ = ["ALIKE", "CLEAR", "EQUAL", "SAME", "Alike", "gap", "left_over", "match_pieces"]

CLEAR = 0.1
"""How much nearer than any other a counterpart must be."""

SAME = 1e-8
"""Relative distance up to which what two pieces do is one thing: float64 leaves 1e-16 to 1e-10, float32 inside 1e-7.
A second counterpart that is as near shows that behaviour does not tell the two apart."""

ALIKE = 0.3
"""Largest relative distance of counterparts in ports that do not compute the same: of two unrelated arrays it is
about 1.4, of two layers of one kind 0.5 to 1.4, and a wrong form of GELU or a wrong epsilon makes 1e-6 to 0.05."""


EQUAL = 1e-6
"""Largest relative distance of counterparts where both models compute the same: then only rounding is between them,
and what is merely alike is something else, such as one of two leaves that are one parameter in the other model."""


@dataclass(frozen=True)
class Alike:
    """Two pieces that do the same."""

    first: LeafPart
    second: LeafPart
    axes: tuple[int, ...]
    """Order of axes that takes the first to the second."""
    gap: float
    """Relative distance of what they do."""
    next: float
    """That of the nearest other pair with one of them, or of another order of axes."""
    why: str = "behaviour"
    """What decided: `behaviour`, `outputs` (gradients part), `module`, `gates`, `shape`, or `sum`: any pairing of
    several computes the same."""


def gap(a: NDArray[np.float64], b: NDArray[np.float64]) -> float:
    """Return the distance of two arrays of one shape, relative to the larger; 0 for two of zeros.

    Args:
        a: One array, float64.
        b: The other, of the same shape.
    """
    scale = max(float(np.linalg.norm(a)), float(np.linalg.norm(b)))
    return float(np.linalg.norm(a - b)) / scale if scale else 0.0


def match_pieces(
    firsts: Sequence[LeafPart],
    seconds: Sequence[LeafPart],
    left: Mapping[LeafPart, NDArray[np.float64]],
    right: Mapping[LeafPart, NDArray[np.float64]],
    alike: float = ALIKE,
) -> list[Alike]:
    """Return the pairs of pieces of one key that behaviour tells from all others.

    A pair counts where each is by far the nearest of the other. Which order of axes it is counts as much: where two
    are as near, the pair is not told.

    Args:
        firsts: Of one model.
        seconds: Of the other, of the same key.
        left: What each of the first does: its gradient.
        right: The same of the others.
        alike: Largest relative distance of a pair.
    """
    table: dict[tuple[int, int], list[tuple[float, tuple[int, ...]]]] = {}
    sizes = [float(np.linalg.norm(right[one])) for one in seconds]
    for i, a in enumerate(firsts):
        size = float(np.linalg.norm(left[a]))
        for j, b in enumerate(seconds):
            if abs(size - sizes[j]) > ALIKE * max(size, sizes[j]):
                continue  # further apart than counterparts are, in any order of axes
            orders = turns(a.index.shape, b.index.shape)
            gaps = [(gap(left[a].transpose(axes), right[b]), axes) for axes in orders]
            table[i, j] = sorted(gaps)[:2]
    found = []
    for (i, j), gaps in table.items():
        nearest, axes = gaps[0]
        rivals = [g[0][0] for (k, m), g in table.items() if (k == i) != (m == j)]
        other_order = [one for one, _ in gaps[1:]]
        following = min([*rivals, *other_order, np.inf])
        if nearest <= alike and nearest <= CLEAR * following and following > SAME:
            found.append(Alike(firsts[i], seconds[j], axes, nearest, float(following)))
    return found


def left_over(
    firsts: Sequence[LeafPart],
    seconds: Sequence[LeafPart],
    told: Sequence[Alike],
    quiet: tuple[Sequence[LeafPart], Sequence[LeafPart]],
    left: PartArrays,
    right: PartArrays,
) -> list[tuple[list[LeafPart], list[LeafPart]]]:
    """Return the pieces of both models that are not told yet and that a gradient reaches, those of one key together.

    Args:
        firsts: Of one model.
        seconds: Of the other.
        told: Pairs that are known.
        quiet: Pieces of each whose gradient is rounding.
        left: Gradients of the first.
        right: Gradients of the other.
    """
    known = {one.first for one in told} | {one.second for one in told}
    classes: dict[ExtentsKey, tuple[list[LeafPart], list[LeafPart]]] = defaultdict(lambda: ([], []))
    for at, (pieces, grads) in enumerate(((firsts, left), (seconds, right))):
        for one in pieces:
            if one not in known and one in grads and one not in quiet[at]:
                classes[one.key][at].append(one)
    return list(classes.values())
