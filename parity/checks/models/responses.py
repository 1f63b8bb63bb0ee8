"""Leaves told by outputs alone: of models that compute the same and pass other gradients back.

A gradient that is stopped in one model is another gradient of every leaf before it, and no leaf behaves as its
counterpart. What they do to the outputs says which is which: each piece gets values of its own, one after the other,
and of counterparts both outputs move alike.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from parity.checks.models.draws import drawn
from parity.checks.models.likeness import CLEAR, EQUAL, SAME, Alike, gap
from parity.checks.models.pieces import ExtentsKey, LeafPart, turns
from parity.checks.models.subjects import Subjects, own_values, values_of

__all__ = ["by_responses"]

SEED = 61

MOVES = 1e-9
"""Share of the outputs' size below which a piece is said to move none of them."""

SECONDS = 15.0
"""Of the processor, after which what is left stays untold."""

Outputs = Callable[[dict[LeafPart, NDArray[np.float64]]], NDArray[np.float64]]


def by_responses(
    subjects: Subjects, firsts: Sequence[LeafPart], seconds: Sequence[LeafPart], told: Sequence[Alike]
) -> list[Alike]:
    """Return the pairs of parameters that outputs tell and gradients did not; none where together they do not hold.

    Args:
        subjects: Models whose outputs are the same where all leaves of one extent have the same values.
        firsts: Pieces of the first.
        seconds: Pieces of the second.
        told: Pairs that are known.
    """
    known = {one.first for one in told} | {one.second for one in told}
    classes: dict[ExtentsKey, tuple[list[LeafPart], list[LeafPart]]] = defaultdict(lambda: ([], []))
    for at, pieces in enumerate((firsts, seconds)):
        for one in pieces:
            if one not in known and one.kind == "parameter":
                classes[one.key][at].append(one)
    own = own_values(told, SEED)
    outputs = [_outputs(subjects, at, pieces) for at, pieces in enumerate((firsts, seconds))]
    bases = [call(values) for call, values in zip(outputs, own, strict=True)]
    if gap(*bases) > SAME:
        return []
    end = time.process_time() + SECONDS
    found: list[Alike] = []
    for key, (here, there) in classes.items():
        if time.process_time() > end:
            return []
        common = drawn(key[1], "parameter", (SEED, 1, *key[1]))  # another seed than that of what all of them get
        moves: list[list[tuple[LeafPart, tuple[int, ...], NDArray[np.float64]]]] = [[], []]
        for at, pieces in enumerate((here, there)):
            for one in pieces:
                orders = turns(key[1], one.index.shape)
                for order in orders[:1] if at == 0 else orders:
                    move = outputs[at]({**own[at], one: common.transpose(order)}) - bases[at]
                    moves[at].append((one, order, move))
        found += _told(moves[0], moves[1], MOVES * float(np.linalg.norm(bases[0])))
    after = own_values([*told, *found], SEED + 1)
    same = gap(*(call(values) for call, values in zip(outputs, after, strict=True))) <= SAME
    return found if same else []


def _outputs(subjects: Subjects, at: int, pieces: Sequence[LeafPart]) -> Outputs:
    """Return what gives all outputs of a model, of values of some pieces, in the first model's order of axes."""
    model, inputs = subjects.both[at]

    def outputs(own: dict[LeafPart, NDArray[np.float64]]) -> NDArray[np.float64]:
        made = model.evaluate(values_of(model, pieces, own, SEED), inputs).outputs
        if at == 1:
            made = tuple(
                np.transpose(one, np.argsort(order)) for one, order in zip(made, subjects.orders, strict=True)
            )
        return np.concatenate([one.reshape(-1) for one in made])

    return outputs


def _told(
    left: Sequence[tuple[LeafPart, tuple[int, ...], NDArray[np.float64]]],
    right: Sequence[tuple[LeafPart, tuple[int, ...], NDArray[np.float64]]],
    least: float,
) -> list[Alike]:
    """Return the pairs of which each moves the outputs as the other does, and nothing else does so nearly."""
    found = []
    gaps = {
        (a, b, back): gap(one, two)
        for a, _, one in left
        for b, back, two in right
        if min(np.linalg.norm(one), np.linalg.norm(two)) > least
    }
    orders = {a: order for a, order, _ in left}
    for (a, b, back), nearest in gaps.items():
        rivals = [
            other for (c, d, turn), other in gaps.items() if (c == a) + (d == b) and (c, d, turn) != (a, b, back)
        ]
        following = min(rivals, default=np.inf)
        if nearest <= EQUAL and nearest <= CLEAR * following and following > SAME:
            axes = tuple(orders[a].index(axis) for axis in back)
            found.append(Alike(a, b, axes, nearest, float(following), "outputs"))
    return found
