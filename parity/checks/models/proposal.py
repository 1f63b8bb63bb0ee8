"""The proposal: which piece of one model is which of the other, by what they do, and why where that does not tell.

All leaves of one extent have the same values first (`parity.checks.models.draws`), so both models compute the same
and gradients tell the pieces apart. Then what was told gets values of its own, and the rest is looked at again, until
nothing new is told. Last, all of it is looked at once more with values of its own: what does not hold then is unsure.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from parity.checks.models.finer import finer_plans
from parity.checks.models.likeness import ALIKE, CLEAR, EQUAL, Alike, gap, left_over, match_pieces
from parity.checks.models.pieces import LeafPart, PartArrays, key_of, pieces_of
from parity.checks.models.plan import CutPlan, ShapeCounts, cut_plans
from parity.checks.models.quiet import match_quiet
from parity.checks.models.responses import by_responses
from parity.checks.models.subjects import Subjects, own_values, values_of
from parity.checks.models.symmetry import break_ties, of_one_sum
from parity.contract import Inputs, ModelProbe

__all__ = ["Matched", "match_models"]

ROUNDS = 4
"""Most rounds in which what was told gets values of its own; the models of the corpus need 1 to 3."""

QUIET = 1e-13
"""Share of the largest gradient of a model below which a gradient is rounding: no gradient reaches the piece."""

REACHED = 1e-6
"""Share of the largest gradient above which one is no rounding."""

FOLLOWS = 1e-11
"""Relative distance from which an output follows a piece."""

OF_ONE_SUM = "what it and others of its shape do does not tell them apart: any pairing of them computes the same"


@dataclass(frozen=True)
class Matched:
    """Pieces of two models, and which of them are one."""

    first: tuple[LeafPart, ...]
    second: tuple[LeafPart, ...]
    sure: tuple[Alike, ...]
    unsure: tuple[tuple[Alike, str], ...]
    """Likely pairs, with the reason for which they are not sure."""
    alone: tuple[tuple[LeafPart, str], ...]
    """Pieces of either model without a counterpart, with the reason."""
    agree: bool
    """Whether both computed the same at equal values, before anything was told."""
    coarser: Matched | None = None
    """What was told by the simplest plan of cuts, where another told more and both do not agree by the simplest: the
    smaller the pieces that have the same values, the more models agree."""
    one_sided: bool = False
    """Whether one model has more leaves of an extent that a gradient clearly reaches than the other has that any
    does, though both agree: no map makes them one."""
    others: tuple[Matched, ...] = ()
    """What was told by other plans of cuts that leave nothing over, where both agree by none: a fault before most
    leaves hides which plan is the one."""


def match_models(subjects: Subjects) -> Matched:
    """Return which pieces of two models are one.

    Raises:
        SpecError: A model cannot be called, or does not give the same when it is called again.
    """
    subjects.require_repeatable()
    plans = _plans(_shapes(subjects.first), _shapes(subjects.second))
    found: Matched | None = None
    simplest: Matched | None = None
    every: list[Matched] = []
    for plan in plans:
        tried = _match(subjects, plan)
        every.append(tried)
        simplest = simplest or tried
        # of rows that are all alike nothing shows, not even where two models part: that both agree says little then
        if found is None or (_told(tried), tried.agree) > (_told(found), found.agree):
            found = tried
        if found.agree or (not found.alone and not found.unsure):
            break
    if found is not None and not found.agree and plans[0].left == 0:
        finer = finer_plans(_shapes(subjects.first), _shapes(subjects.second), plans[0])
        fitting = next((plan for plan in finer if _agree(subjects, plan)), None)
        cut = None if fitting is None else _match(subjects, fitting)
        found = found if cut is None or _told(cut) < _told(found) else cut
    if found is None:
        return Matched((), (), (), (), (), False)
    if found.unsure and simplest is not None and found is not simplest and not (simplest.agree or simplest.alone):
        return replace(found, coarser=simplest)
    if found.unsure and not (found.agree or found.alone):
        return replace(found, others=tuple(one for one in every if one is not found and not one.alone))
    return found


def _plans(first: ShapeCounts, second: ShapeCounts) -> list[CutPlan]:
    """Return plans of cuts: of a model that has one leaf more, with it set aside where the others fit without it.

    Of a head that is tied to an embedding in one model and has a leaf of its own in the other, any bits of the
    extents of smaller leaves could be made.
    """
    plans = cut_plans(first, second)
    sizes = [sum(math.prod(shape) * count for (_, shape), count in shapes.items()) for shapes in (first, second)]
    if sizes[0] == sizes[1]:
        return plans
    more, other = (first, second) if sizes[0] > sizes[1] else (second, first)
    known = {key_of(kind, shape) for kind, shape in other}
    for kind, shape in more:
        if math.prod(shape) == abs(sizes[0] - sizes[1]) and key_of(kind, shape) in known:
            rest = more - Counter({(kind, shape): 1})
            aside = cut_plans(rest, other) if more is first else cut_plans(other, rest)
            if aside and aside[0].left == 0:
                return aside
    return plans


def _told(matched: Matched) -> float:
    """Return the share of a model's elements that lie in pieces which are told."""
    every = sum(one.index.size for one in matched.first)
    return sum(one.first.index.size for one in matched.sure) / max(every, 1)


def _agree(subjects: Subjects, plan: CutPlan) -> bool:
    """Return whether both compute the same where all pieces of one extent have the same values."""
    firsts, seconds = _pieces(subjects, plan)
    values = (values_of(subjects.first, firsts, {}, 0), values_of(subjects.second, seconds, {}, 0))
    one, two = subjects.evaluate(*values, grads=False)
    return all(gap(x, y) <= 1e-9 for x, y in zip(one.outputs, two.outputs, strict=True))


def _pieces(subjects: Subjects, plan: CutPlan) -> tuple[list[LeafPart], list[LeafPart]]:
    """Return the pieces of both models."""
    first, second = (
        pieces_of({leaf: value.shape for leaf, value in model.leaves.items()}, model.statistics, cuts)
        for model, cuts in ((subjects.first, plan.first), (subjects.second, plan.second))
    )
    return first, second


def _shapes(model: ModelProbe) -> ShapeCounts:
    return Counter(
        ("statistic" if leaf in model.statistics else "parameter", value.shape)
        for leaf, value in model.leaves.items()
    )


def _match(subjects: Subjects, plan: CutPlan) -> Matched:
    """Return what is told where leaves are cut by one plan."""
    firsts, seconds = _pieces(subjects, plan)
    told: list[Alike] = []
    agree, quiet = False, ([], [])  # type: tuple[bool, tuple[list[LeafPart], list[LeafPart]]]
    for at in range(ROUNDS):
        left, right, same = _observe(subjects, firsts, seconds, told, seed=at)
        agree = same if at == 0 else agree
        quiet = _quiet(left), _quiet(right)
        more = _round(firsts, seconds, told, left, right, quiet, EQUAL if agree else ALIKE)
        told += more
        if not more:
            given = (subjects, firsts, seconds, told, quiet, left, right)
            tie = break_ties(*given) if agree else None
            ties = [tie] if tie is not None else of_one_sum(*given) if agree else []
            if not ties:
                break
            told += ties
    by_outputs = by_responses(subjects, firsts, seconds, told) if agree else []
    held, doubted = _confirm(subjects, firsts, seconds, [*told, *by_outputs])
    told = [one for one in held if one.why != "sum"]
    doubted += [(one, OF_ONE_SUM) for one in held if one.why == "sum"]
    sure, unsure, alone = match_quiet(subjects, firsts, seconds, told, quiet, [one for one, _ in doubted])
    one_sided = agree and any(
        _reaches_more(grads, others) and not _follow(model, inputs, pieces, others)
        for grads, others, (model, inputs), pieces in (
            (left, right, subjects.both[1], seconds), (right, left, subjects.both[0], firsts))
    )  # fmt: skip
    unclear = (*doubted, *unsure)
    return Matched(tuple(firsts), tuple(seconds), tuple(sure), unclear, tuple(alone), agree, one_sided=one_sided)


def _observe(
    subjects: Subjects, firsts: Sequence[LeafPart], seconds: Sequence[LeafPart], told: Sequence[Alike], seed: int
) -> tuple[PartArrays, PartArrays, bool]:
    """Return the gradient of each piece of both models, and whether their outputs are the same."""
    own_a, own_b = own_values(told, seed)
    a = values_of(subjects.first, firsts, own_a, seed)
    b = values_of(subjects.second, seconds, own_b, seed)
    one, two = subjects.evaluate(a, b)
    left = {p: p.of(one.gradients[p.leaf]) for p in firsts if p.leaf in one.gradients}
    right = {p: p.of(two.gradients[p.leaf]) for p in seconds if p.leaf in two.gradients}
    same = all(gap(x, y) <= 1e-9 for x, y in zip(one.outputs, two.outputs, strict=True))
    return left, right, same


def _quiet(grads: PartArrays) -> list[LeafPart]:
    """Return the pieces that no gradient reaches."""
    sizes = {piece: float(np.abs(grad).max(initial=0.0)) for piece, grad in grads.items()}
    largest = max(sizes.values(), default=0.0)
    return [piece for piece, size in sizes.items() if size <= QUIET * largest]


def _reaches_more(grads: PartArrays, others: PartArrays) -> bool:
    """Return whether gradients clearly reach more pieces of an extent than they reach at all in the other model."""
    quiet = set(_quiet(others))
    reached = Counter(piece.key for piece in others if piece not in quiet)
    largest = max((float(np.abs(grad).max(initial=0.0)) for grad in grads.values()), default=0.0)
    clearly = Counter(
        piece.key for piece, grad in grads.items() if float(np.abs(grad).max(initial=0.0)) > REACHED * largest
    )
    return any(count > reached[key] for key, count in clearly.items())


def _follow(
    model: ModelProbe, inputs: Inputs, pieces: Sequence[LeafPart], grads: PartArrays
) -> bool:  # fmt: skip
    """Return whether outputs move with the pieces that no gradient reaches: it may be stopped on its way alone."""
    quiet = _quiet(grads)
    values = values_of(model, pieces, {}, ROUNDS + 2)
    other = values_of(model, quiet, {}, ROUNDS + 3)
    moved = {leaf: value.copy() for leaf, value in values.items()}
    for piece in quiet:
        moved[piece.leaf].reshape(-1)[piece.index] = other[piece.leaf].reshape(-1)[piece.index]
    one, two = (model.evaluate(each, inputs).outputs for each in (values, moved))
    return any(gap(x, y) > FOLLOWS for x, y in zip(one, two, strict=True))


def _round(
    firsts: Sequence[LeafPart], seconds: Sequence[LeafPart], told: Sequence[Alike], left: PartArrays,
    right: PartArrays, quiet: tuple[Sequence[LeafPart], Sequence[LeafPart]], alike: float,
) -> list[Alike]:  # fmt: skip
    """Return what is told now and was not before."""
    pairs = left_over(firsts, seconds, told, quiet, left, right)
    return [match for here, there in pairs for match in match_pieces(here, there, left, right, alike)]


def _confirm(
    subjects: Subjects, firsts: Sequence[LeafPart], seconds: Sequence[LeafPart], told: Sequence[Alike]
) -> tuple[list[Alike], list[tuple[Alike, str]]]:
    """Return which pairs hold where each has values of its own, and those that do not."""
    left, right, _ = _observe(subjects, firsts, seconds, told, seed=ROUNDS + 1)
    held, doubted = [], []
    for one in told:
        if one.why == "outputs" or one.first not in left or one.second not in right:
            held.append(one)
            continue
        distance = gap(left[one.first].transpose(one.axes), right[one.second])
        others = [
            gap(left[one.first].transpose(two.axes), right[two.second])
            for two in told
            if two is not one and two.first.key == one.first.key and not {"sum", "outputs"} & {one.why, two.why}
            and two.first.index.shape == one.first.index.shape and two.second in right
        ]  # fmt: skip
        if distance <= CLEAR * min(others, default=np.inf) and distance <= 1.0:
            held.append(replace(one, gap=max(one.gap, distance)))
        else:
            doubted.append((one, f"behaves as its counterpart to {distance:.1e} only, and so does another"))
    return held, doubted
