"""Pieces that move no output, told by rounding: by the pieces without which even their rounding does not arrive.

A key bias adds the same to all scores of a query, which a softmax takes away again, but for rounding. Where the bias
is large, that rounding is large too, and it still vanishes, to the last bit, when the projection behind this
attention is zero, and no other. Which pieces do so is the same in both models.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from parity.checks.models.likeness import Alike
from parity.checks.models.pieces import LeafPart, PartArrays, turns
from parity.checks.models.subjects import Subjects, own_values, values_of

__all__ = ["by_gates"]

LARGE = 1e7
"""What a piece is multiplied by: float64 leaves 1e-9 of its scores, where 1e-16 is the rounding of all else."""

MOST_CALLS = 2_000
"""Evaluations of one model; beyond them nothing is told."""


def by_gates(
    subjects: Subjects, firsts: Sequence[LeafPart], seconds: Sequence[LeafPart], told: Sequence[Alike],
    silent: set[LeafPart],
) -> list[Alike]:  # fmt: skip
    """Return silent pieces whose rounding vanishes without the same pieces, and no other silent piece's does.

    Args:
        subjects: The models.
        firsts: Pieces of the first.
        seconds: Pieces of the second.
        told: Pairs that are told; those with two axes and more are made zero, one after the other.
        silent: Pieces that no gradient reaches.
    """
    known = {one.first for one in told} | {one.second for one in told}
    asked = [[one for one in pieces if one in silent and one not in known] for pieces in (firsts, seconds)]
    gates = [at for at, one in enumerate(told) if one.first.index.ndim > 1]
    if not all(asked) or max(map(len, asked)) * len(gates) > MOST_CALLS:
        return []
    found: list[dict[tuple[object, frozenset[int]], list[LeafPart]]] = []
    models = zip(subjects.both, (firsts, seconds), asked, own_values(told, 51), (0, 1), strict=True)
    for (model, inputs), pieces, some, own, side in models:
        signatures: dict[LeafPart, set[int]] = {one: set() for one in some}
        for gate in gates:
            closed = told[gate].first if side == 0 else told[gate].second
            shut = {**own, closed: np.zeros(closed.index.shape)}
            base = model.evaluate(values_of(model, pieces, shut, 51), inputs).outputs
            for one in some:
                made = model.evaluate(values_of(model, pieces, _large(shut, one), 51), inputs).outputs
                if all(np.array_equal(a, b) for a, b in zip(base, made, strict=True)):
                    signatures[one].add(gate)
        groups: dict[tuple[object, frozenset[int]], list[LeafPart]] = defaultdict(list)
        for one, signature in signatures.items():
            groups[one.key, frozenset(signature)].append(one)
        found.append(groups)
    matches = []
    for key, here in found[0].items():
        there = found[1].get(key, [])
        # what vanishes behind every gate leads nowhere at all, and is told by nothing
        if 0 < len(key[1]) < len(gates) and len(here) == len(there) == 1:
            orders = turns(here[0].index.shape, there[0].index.shape)
            if len(orders) == 1:
                matches.append(Alike(here[0], there[0], orders[0], 0.0, np.inf, "gates"))
    return matches


def _large(own: PartArrays, piece: LeafPart) -> dict[LeafPart, NDArray[np.float64]]:
    rng = np.random.default_rng([61, *piece.index.shape])
    return {**own, piece: LARGE * rng.standard_normal(piece.index.shape)}
