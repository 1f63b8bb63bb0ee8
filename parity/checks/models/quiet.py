"""Pieces that no gradient reaches, and running statistics: told by outputs, by their module, or by their shape.

A key bias of attention, or the bias of a convolution before a batch norm, moves no output: nothing that a model
computes tells which is which. Its module does, where all else of the module is told.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from parity.checks.models.gates import by_gates
from parity.checks.models.likeness import Alike, match_pieces
from parity.checks.models.pieces import ExtentsKey, LeafPart, PartArrays, turns
from parity.checks.models.subjects import Subjects, own_values, values_of
from parity.checks.models.used import LeafUse

__all__ = ["by_words", "kind_of", "likely_pairs", "likely_turn", "match_quiet"]

_KINDS = {"kernel": "weight", "scale": "weight", "embedding": "weight", "g": "weight", "b": "bias"}
"""Names of leaves that are one kind."""

Rest = dict[ExtentsKey, tuple[list[LeafPart], list[LeafPart]]]


def match_quiet(
    subjects: Subjects, firsts: Sequence[LeafPart], seconds: Sequence[LeafPart], told: Sequence[Alike],
    quiet: tuple[Sequence[LeafPart], Sequence[LeafPart]], doubted: Sequence[Alike] = (),
) -> tuple[list[Alike], list[tuple[Alike, str]], list[tuple[LeafPart, str]]]:  # fmt: skip
    """Return all that is sure, what is likely, and what is without a counterpart.

    Args:
        subjects: The models.
        firsts: Pieces of the first.
        seconds: Pieces of the second.
        told: What gradients told.
        quiet: Parameters of both that no gradient reaches.
        doubted: Pairs that are likely already; their pieces get no other.
    """
    sure = list(told)
    silent = {one for pieces in quiet for one in pieces}
    moved = _moved(subjects, firsts, seconds, sure, silent)
    for here, there in _rest(firsts, seconds, [*sure, *doubted]).values():
        seen = [[p for p in pieces if p.index.ndim == 1 and np.any(moved.get(p, 0.0))] for pieces in (here, there)]
        sure += match_pieces(seen[0], seen[1], moved, moved) if all(seen) else []
    sure += _by_module(firsts, seconds, sure, silent)
    sure += by_gates(subjects, firsts, seconds, sure, silent)
    for here, there in _rest(firsts, seconds, [*sure, *doubted]).values():
        # of two that a gradient reaches behaviour has said that they are not one
        if len(here) == len(there) == 1 and here[0] in silent and there[0] in silent:
            orders = turns(here[0].index.shape, there[0].index.shape)
            if len(orders) == 1:
                sure.append(Alike(here[0], there[0], orders[0], 0.0, np.inf, "shape"))
    unsure, alone = _left_over(_rest(firsts, seconds, [*sure, *doubted]), silent, [*sure, *doubted])
    return sure, unsure, alone


def _rest(firsts: Sequence[LeafPart], seconds: Sequence[LeafPart], told: Sequence[Alike]) -> Rest:
    known = {one.first for one in told} | {one.second for one in told}
    classes: Rest = defaultdict(lambda: ([], []))
    for at, pieces in enumerate((firsts, seconds)):
        for one in pieces:
            if one not in known:
                classes[one.key][at].append(one)
    return classes


def _moved(
    subjects: Subjects,
    firsts: Sequence[LeafPart],
    seconds: Sequence[LeafPart],
    told: Sequence[Alike],
    silent: set[LeafPart],
) -> PartArrays:
    """Return how the outputs move with each piece that has no gradient, as one array; zeros where they do not."""
    known = {one.first for one in told} | {one.second for one in told}
    found: dict[LeafPart, NDArray[np.float64]] = {}
    models = zip(subjects.both, (firsts, seconds), own_values(told, 31), strict=True)
    for at, ((model, inputs), pieces, own) in enumerate(models):
        asked = [one for one in pieces if one not in known and (one in silent or one.kind == "statistic")]
        if not asked:
            continue

        def outputs(own: PartArrays, model=model, inputs=inputs, pieces=pieces, at=at) -> NDArray[np.float64]:  # type: ignore[no-untyped-def]
            made = model.evaluate(values_of(model, pieces, own, 31), inputs).outputs
            back = (
                made
                if at == 0
                else [np.transpose(o, np.argsort(x)) for o, x in zip(made, subjects.orders, strict=True)]
            )
            return np.concatenate([one.reshape(-1) for one in back])

        base = outputs(own)
        scale = float(np.abs(base).max(initial=0.0))
        for one in asked:
            other = values_of(model, [one], {}, 32)[one.leaf].reshape(-1)[one.index]
            move = outputs({**own, one: other}) - base
            found[one] = move if np.abs(move).max(initial=0.0) > 1e-11 * scale else np.zeros(0)
    return found


def _home(leaf: str) -> str:
    return leaf.rpartition(".")[0]


def _by_module(
    firsts: Sequence[LeafPart], seconds: Sequence[LeafPart], told: Sequence[Alike], silent: set[LeafPart]
) -> list[Alike]:
    """Return silent pieces that are the only ones of their extents beside pieces that were told.

    The module of a part of a fused leaf is that of the same part of the leaves beside it.
    """
    beside: dict[tuple[str, int, int], set[tuple[str, int, int]]] = defaultdict(set)
    for one in told:
        beside[_seat(one.first)].add(_seat(one.second))
    found = []
    known = {one.first for one in told} | {one.second for one in told}
    for piece in firsts:
        if piece in known or piece not in silent:
            continue
        seats = beside[_seat(piece)]
        rivals = [p for p in firsts if p not in known and p.key == piece.key and _seat(p) == _seat(piece)]
        there = [p for p in seconds if p not in known and p in silent and p.key == piece.key and _seat(p) in seats]
        if len(seats) == 1 and len(rivals) == 1 and len(there) == 1:
            orders = turns(piece.index.shape, there[0].index.shape)
            if len(orders) == 1:
                found.append(Alike(piece, there[0], orders[0], 0.0, np.inf, "module"))
    return found


def _seat(piece: LeafPart) -> tuple[str, int, int]:
    return _home(piece.leaf), piece.number, piece.count


def _by_names(here: Sequence[LeafPart], there: Sequence[LeafPart]) -> list[tuple[LeafPart, LeafPart]]:
    """Return likely pairs, by words and numbers that their names share, then by order; nothing is sure of them."""
    scores = [
        (-len(_words(a.leaf) & _words(b.leaf)) - (_number(a) == _number(b)) / 2, abs(i - j), i, j)
        for i, a in enumerate(here)
        for j, b in enumerate(there)
    ]
    found, taken = [], [set[int](), set[int]()]
    for _, _, i, j in sorted(scores):
        if i not in taken[0] and j not in taken[1]:
            found.append((here[i], there[j]))
            taken[0].add(i)
            taken[1].add(j)
    return found


def by_words(here: Sequence[LeafPart], there: Sequence[LeafPart]) -> list[tuple[LeafPart, LeafPart]]:
    """Return likely pairs of as many pieces by the words that their names share, numbers left out, then by order."""
    said = [[{word for word in _words(one.leaf) if not word[0].isdigit()} for one in side] for side in (here, there)]
    scores = sorted(
        (-len(first & second), abs(i - j), i, j)
        for i, first in enumerate(said[0])
        for j, second in enumerate(said[1])
    )
    found: dict[int, int] = {}
    for _, _, i, j in scores:
        if i not in found and j not in found.values():
            found[i] = j
    return [(here[i], there[j]) for i, j in sorted(found.items())]


def likely_pairs(
    here: Sequence[LeafPart], there: Sequence[LeafPart], told: Sequence[Alike]
) -> list[tuple[LeafPart, LeafPart]]:
    """Return pairs of as many pieces: those that lie beside pieces that were told, then by names and order.

    Args:
        here: Pieces of the first model.
        there: As many of the second.
        told: Pairs that are known.
    """
    beside = {(_home(one.first.leaf), _home(one.second.leaf)) for one in told}
    found: list[tuple[LeafPart, LeafPart]] = []
    for a in here:
        seats = [b for b in there if (_home(a.leaf), _home(b.leaf)) in beside]
        rivals = [one for one in here if _home(one.leaf) == _home(a.leaf)]
        if len(seats) == len(rivals) == 1:
            found.append((a, seats[0]))
    taken = {one for pair in found for one in pair}
    return [*found, *_by_names([a for a in here if a not in taken], [b for b in there if b not in taken])]


def _number(piece: LeafPart) -> int:
    """Return the place of a piece: among those of its leaf, or the last number in the name of a leaf of its own."""
    digits = re.findall(r"\d+", piece.leaf)
    return piece.number if piece.count > 1 or not digits else int(digits[-1])


def _words(leaf: str) -> set[str]:
    """Return the words of a name, those for one kind of leaf as one, and its numbers by their place."""
    words = [word for word in re.split(r"[^a-z0-9]+|(?<=[a-z])(?=[0-9])", leaf.lower()) if word]
    numbers = [f"{at}th {word}" for at, word in enumerate(word for word in words if word.isdigit())]
    return {_KINDS.get(word, word) for word in words if not word.isdigit()} | set(numbers)


def kind_of(leaf: str) -> int:
    """Return whether a leaf is called a bias: in a module it comes after the weight, in whichever order they lie."""
    last = leaf.lower().rpartition(".")[2]
    return int(_KINDS.get(last, last) == "bias" or last.startswith("b_"))


def likely_turn(
    a: LeafPart, b: LeafPart, pairs: Sequence[tuple[LeafPart, LeafPart]],
    uses: tuple[Mapping[str, LeafUse], Mapping[str, LeafUse]] = ({}, {}),
) -> tuple[int, ...]:  # fmt: skip
    """Return the order of axes in which two pieces are likely one: of a square matrix, that of others of its kind.

    Args:
        a: A piece of the first model.
        b: One of the second, of the same key.
        pairs: All likely pairs.
        uses: How both models take their leaves, where that is known.

    Where a port parts nothing tells which way a square matrix lies, and `.weight` to `.kernel` is one way in a port:
    as it is first would transpose queries beside projections whose shapes say that they are turned. Where those of
    its kind leave a choice, as leaves of a port of functions have no kind, it is that of most matrices which both
    models take as they do these two: a table that is indexed lies in one way, and tells nothing of a product.
    """
    orders = turns(a.index.shape, b.index.shape)
    kind = (a.leaf.rpartition(".")[2], b.leaf.rpartition(".")[2])
    others = [
        turns(one.index.shape, other.index.shape)
        for one, other in pairs
        if (one.leaf.rpartition(".")[2], other.leaf.rpartition(".")[2]) == kind and one.index.ndim == a.index.ndim
    ]
    fitting = [order for order in orders if all(order in allowed for allowed in others)] or list(orders[:1])
    clear, alike = Counter[tuple[int, ...]](), Counter[tuple[int, ...]]()
    taken = _kinds_of_use(a, b, uses)
    for one, other in pairs if len(fitting) > 1 else ():
        if one.index.ndim == a.index.ndim and len(allowed := turns(one.index.shape, other.index.shape)) == 1:
            clear[allowed[0]] += 1
            alike[allowed[0]] += taken != ("", "") and _kinds_of_use(one, other, uses) == taken
    return max(fitting, key=lambda order: (alike[order], clear[order]))


def _kinds_of_use(
    a: LeafPart, b: LeafPart, uses: tuple[Mapping[str, LeafUse], Mapping[str, LeafUse]]
) -> tuple[str, ...]:
    """Return what takes two pieces; empty words where that is not known."""
    return tuple(used[one.leaf].kind if one.leaf in used else "" for one, used in zip((a, b), uses, strict=True))


def _left_over(rest: Rest, silent: set[LeafPart], told: Sequence[Alike]
               ) -> tuple[list[tuple[Alike, str]], list[tuple[LeafPart, str]]]:  # fmt: skip
    """Return what is likely by order, with the reason for which it is not sure, and what has no counterpart."""
    likely = [(one.first, one.second) for one in told]
    likely += [pair for here, there in rest.values() for pair in _by_names(here, there)]
    unsure: list[tuple[Alike, str]] = []
    alone: list[tuple[LeafPart, str]] = []
    for here, there in rest.values():
        for a, b in _by_names(here, there):
            order = likely_turn(a, b, likely)
            if a in silent or b in silent:
                reason = f"no gradient reaches {a if a in silent else b}, and no output follows it"
            elif len(here) == 1:
                reason = "it is the only one of its shape, and it does not behave as its counterpart"
            else:
                reason = f"{len(here)} leaves of this shape are left, and what they do does not tell them apart"
            unsure.append((Alike(a, b, order, 1.0, 0.0, "order"), reason))
        paired = {one for match, _ in unsure for one in (match.first, match.second)}
        for one in (*here, *there):
            if one in paired:
                continue
            alone.append((one, f"the other model has no leaf of the extents {list(one.key[1])} left"))
    return unsure, alone
