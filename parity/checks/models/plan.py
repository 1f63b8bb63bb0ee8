"""The plan of how leaves are cut: by their shapes alone, so that both models have the same pieces.

Leaves of a shape are cut where one model has more of it than the other: into parts of the shapes that the other has
more of. Nothing is decided here about which leaf is which.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import combinations_with_replacement, islice, permutations, product

import numpy as np

from parity.checks.models.descent import descend
from parity.checks.models.pieces import Cutting, ExtentsKey, key_of

__all__ = ["CutPlan", "ShapeCounts", "cut_plans"]

ShapeCounts = Counter[tuple[str, tuple[int, ...]]]
"""Kind and shape of leaves, to how many a model has."""

Doubt = tuple[int, str, tuple[int, ...]]
"""A model, and kind and shape of leaves of which it has more than the other."""

Cuts = Mapping[tuple[int, ...], Cutting]

MOST_PARTS = 8
"""Equal parts of a fused projection: query, key and value are 3, the gates of an LSTM 4."""

MOST_OTHERS = 8
"""Moves of the best plan that are left out in turn, to find others."""


@dataclass(frozen=True)
class CutPlan:
    """How the leaves of both models are cut."""

    first: Cuts
    second: Cuts
    left: int
    """Elements of pieces for which the other model has none of these extents."""


def cut_plans(first: ShapeCounts, second: ShapeCounts, most: int = 4) -> list[CutPlan]:
    """Return the likeliest plans: those that leave the fewest elements over, and of these the simplest.

    Args:
        first: ShapeCounts of one model.
        second: Those of the other.
        most: Plans to return.

    Example:
        >>> separate = Counter({("parameter", (4, 4)): 3})
        >>> fused = Counter({("parameter", (4, 12)): 1})
        >>> cut_plans(separate, fused)[0].second
        {(4, 12): Cutting(merged=(4, 12), stacked=None, axis=1, extents=(4, 4, 4), heads=1, order=None)}
    """
    models = (first, second)
    keys = [Counter[ExtentsKey]() for _ in models]
    for counter, shapes in zip(keys, models, strict=True):
        for (kind, shape), count in shapes.items():
            counter[key_of(kind, shape)] += count
    doubtful = [
        (at, kind, shape)
        for at, shapes in enumerate(models)
        for kind, shape in sorted(shapes, key=lambda one: -math.prod(one[1]))
        if keys[at][key_of(kind, shape)] > keys[1 - at][key_of(kind, shape)]
    ]
    found: list[CutPlan] = []
    for reach in (_plainly, _reachable):  # what few shapes explain is not looked for among many
        pools = [reach(shapes) for shapes in models]
        loose = [list(dict.fromkeys(_ways(kind, shape, pools[1 - at]))) for at, kind, shape in doubtful]
        choices = _needed(models, keys, doubtful, loose)
        tried = _tried(models, doubtful, choices, most)
        # where a leaf is missing, cutting others to bits may leave less over, and means nothing
        found += [plan for plan in tried if plan.left == 0 or reach is _plainly]
        if any(plan.left == 0 for plan in found):
            break
    return sorted(found, key=lambda plan: plan.left)[:most]


def _needed(
    models: Sequence[ShapeCounts], keys: Sequence[Counter[ExtentsKey]], doubtful: Sequence[Doubt],
    loose: Sequence[Sequence[Cutting]],
) -> list[list[Cutting]]:  # fmt: skip
    """Return the ways whose pieces the other model may have more of, the simplest first."""
    most: list[Counter[ExtentsKey]] = [Counter(keys[0]), Counter(keys[1])]
    for (at, kind, shape), ways in zip(doubtful, loose, strict=True):
        for key in {key for way in ways for key in _keys(kind, way)}:
            most[at][key] += models[at][kind, shape] * max(_keys(kind, way)[key] for way in ways)
    return [
        sorted(
            (way for way in ways if way == Cutting(shape)
             or all(most[1 - at][key] > keys[at][key] for key in _keys(kind, way))),
            key=lambda way, shape=shape: _cost(shape, way),  # type: ignore[misc]
        )
        for (at, kind, shape), ways in zip(doubtful, loose, strict=True)
    ]  # fmt: skip


def _tried(
    models: Sequence[ShapeCounts], doubtful: Sequence[Doubt], choices: Sequence[Sequence[Cutting]], most: int
) -> list[CutPlan]:
    """Return plans that leave few elements over: one way after the other, or two at once, that leave fewer.

    Two at once, as heads of one model and fused projections of the other only fit when both are cut.
    """
    base = _imbalance(models, ({}, {}))
    units, ways, counters = [], [], []
    for unit, (doubt, some) in enumerate(zip(doubtful, choices, strict=True)):
        for way in some:
            plan = _shared([doubt], [way], models)
            if way != Cutting(doubt[2]) and plan is not None:
                counter = _imbalance(models, plan)
                counter.subtract(base)
                units.append(unit)
                ways.append(way)
                counters.append(counter)
    keys = list(dict.fromkeys(key for counter in (base, *counters) for key in counter))
    sizes = np.array([math.prod(key[1]) for key in keys])
    moves = np.array([[counter[key] for key in keys] for counter in counters]).reshape(len(counters), len(keys))
    left = np.array([base[key] for key in keys])
    costs = [_cost(doubtful[unit][2], way) for unit, way in zip(units, ways, strict=True)]
    descent = descend(left, moves, sizes, np.array(units), costs)
    # of two moves that leave as much over, the simpler one may lead nowhere good: each is left out in turn
    descents = dict.fromkeys(tuple(sorted(one)) for one in (descent, *(
        descend(left, moves, sizes, np.array(units), costs, without=move, alike=alike)
        for move in descent[:MOST_OTHERS] for alike in (False, True)
    )))  # fmt: skip
    found: list[tuple[int, int, CutPlan]] = []
    for chosen in descents:
        variants = [[ways[move], *_reordered(ways[move])] for move in chosen]
        for number, some in enumerate(islice(product(*variants), most)):
            plan = _shared([doubtful[units[move]] for move in chosen], some, models)
            if plan is not None:
                over = _over(models, plan)
                # another order of parts is as much as another part, so that no plan has all the tries
                price = sum(costs[move] for move in chosen) + number
                found.append((over, price, CutPlan(plan[0], plan[1], over)))
    return [plan for _, _, plan in sorted(found, key=lambda one: one[:2])]


def _reordered(way: Cutting) -> list[Cutting]:
    """Return a way with its parts in other orders, of which shapes do not say the right one."""
    if len(set(way.extents)) < 2:
        return []
    orders = dict.fromkeys(permutations(way.extents))
    return [replace(way, extents=order) for order in orders if order != way.extents]


def _imbalance(models: Sequence[ShapeCounts], plan: Sequence[Cuts]) -> Counter[ExtentsKey]:
    """Return how many more pieces of each key the first model has than the second."""
    counts: Counter[ExtentsKey] = Counter()
    for at, shapes in enumerate(models):
        for (kind, shape), count in shapes.items():
            for key, pieces in _keys(kind, plan[at].get(shape, Cutting(shape))).items():
                counts[key] += (1 if at == 0 else -1) * count * pieces
    return counts


def _cost(shape: tuple[int, ...], way: Cutting) -> int:
    """Return how much a way does: parts that are not equal count more, as any sum can be made of those of others."""
    parts = 0 if way.axis is None else len(way.extents) + len(set(way.extents)) - 1
    return (way.merged != shape) + (way.order is not None) * 2 + (way.stacked is not None) * 2 + parts


def _shared(
    doubtful: Sequence[Doubt], ways: Sequence[Cutting], models: Sequence[ShapeCounts]
) -> list[dict[tuple[int, ...], Cutting]] | None:
    """Return the plan of both, where leaves of the extents of one that is cut are cut alike in either model.

    Which of them is the fused or the stacked one only behaviour can tell, and both must have the same values until
    then: two layers of norms have the shape of a table of two segments.
    """
    plan: list[dict[tuple[int, ...], Cutting]] = [{}, {}]
    for (at, _, shape), way in zip(doubtful, ways, strict=True):
        if way != Cutting(shape):
            plan[at][shape] = way
    for (_, kind, _), way in zip(doubtful, ways, strict=True):
        if way.axis is None and way.stacked is None:
            continue
        layers = None if way.stacked is None else way.merged[way.stacked]
        extent = (
            None if way.axis is None else [n for axis, n in enumerate(way.merged) if axis != way.stacked][way.axis]
        )
        for at, shapes in enumerate(models):
            for other_kind, shape in shapes:
                if other_kind != kind or key_of(kind, shape) != key_of(kind, way.merged) or shape in plan[at]:
                    continue
                if any(n is not None and shape.count(n) != 1 for n in (layers, extent)):
                    return None
                stacked = None if layers is None else shape.index(layers)
                inner = [n for axis, n in enumerate(shape) if axis != stacked]
                plan[at][shape] = Cutting(
                    shape, stacked, None if extent is None else inner.index(extent), way.extents
                )
    return min((plan, _merged_alike(models, plan)), key=lambda one: _over(models, one))


def _merged_alike(
    models: Sequence[ShapeCounts], plan: Sequence[dict[tuple[int, ...], Cutting]]
) -> list[dict[tuple[int, ...], Cutting]]:
    """Return a plan in which leaves of a shape whose axes one model makes one are so in the other model too.

    Four biases of four gates have the shape of a table of four classes: which of them is the table only behaviour
    can tell, once neither has its axes.
    """
    found = [dict(ways) for ways in plan]
    for at, ways in enumerate(plan):
        for shape, way in ways.items():
            if way == Cutting(way.merged) and any(other == shape for _, other in models[1 - at]):
                found[1 - at].setdefault(shape, way)
    return found


def _over(models: Sequence[ShapeCounts], plan: Sequence[Cuts]) -> int:
    """Return the elements of pieces for which the other model has none of these extents."""
    return sum(abs(n) * math.prod(key[1]) for key, n in _imbalance(models, plan).items())


@lru_cache(4096)
def _keys(kind: str, way: Cutting) -> Counter[ExtentsKey]:
    """Return the keys of the pieces that a shape is cut into, and how many there are of each."""
    inner = [n for axis, n in enumerate(way.merged) if axis != way.stacked]
    layers = 1 if way.stacked is None else way.merged[way.stacked]
    if way.axis is None:
        return Counter({key_of(kind, inner): layers})
    parts = [[*inner[: way.axis], extent, *inner[way.axis + 1 :]] for extent in way.extents]
    return Counter([key_of(kind, one) for one in parts] * layers)


def _merges(shape: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
    """Yield a shape, and it with adjacent axes made one."""
    for joins in product((False, True), repeat=max(len(shape) - 1, 0)):
        merged = [shape[0]] if shape else []
        for together, n in zip(joins, shape[1:], strict=True):
            if together:
                merged[-1] *= n
            else:
                merged.append(n)
        yield tuple(merged)


def _apart(shape: tuple[int, ...]) -> Iterator[tuple[tuple[int, ...], tuple[int, ...]]]:
    """Yield orders in which an axis stands before another that was not beside it, and the shape with both made one.

    Weights `[heads, width, size of a head]`, and three of them in one array, are the matrices of other models so.
    """
    for one in range(len(shape) - 2):
        for other in range(one + 2, len(shape)):
            order = (*(axis for axis in range(other) if axis != one), one, *range(other, len(shape)))
            joined = shape[one] * shape[other]
            left = tuple(shape[axis] for axis in order[: other - 1])
            for before in _merges(left):
                yield order, (*before, joined, *shape[other + 1 :])


def _plainly(shapes: ShapeCounts) -> set[ExtentsKey]:
    """Return the keys of the leaves of a model as they are, those of three axes and more with axes made one."""
    return {
        key_of(kind, merged)
        for kind, shape in shapes
        for merged in _merges(shape)
        if merged == shape or (len(shape) > 2 and len(merged) > 1)
    } | {key_of(kind, merged) for kind, shape in shapes for _, merged in _apart(shape)}


def _reachable(shapes: ShapeCounts) -> set[ExtentsKey]:
    """Return the keys of the leaves of a model, with axes made one and with layers taken apart."""
    found: set[ExtentsKey] = set()
    for kind, shape in shapes:
        for merged in (*_merges(shape), *(merged for _, merged in _apart(shape))):
            found.add(key_of(kind, merged))
            if len(merged) > 1:
                found |= {key_of(kind, merged[:axis] + merged[axis + 1 :]) for axis in range(len(merged))}
    return found


def _ways(kind: str, shape: tuple[int, ...], pool: set[ExtentsKey]) -> Iterator[Cutting]:
    """Yield how leaves of a shape may be cut into pieces of the other model, as they are first."""
    yield Cutting(shape)
    for whole in (*map(Cutting, _merges(shape)), *(Cutting(merged, order=order) for order, merged in _apart(shape))):
        merged = whole.merged
        if merged != shape and key_of(kind, merged) in pool:
            yield whole
        stacks = [None, *(axis for axis, n in enumerate(merged) if n > 1)]
        for stacked in stacks:
            inner = tuple(n for axis, n in enumerate(merged) if axis != stacked)
            if stacked is not None and key_of(kind, inner) in pool:
                yield replace(whole, stacked=stacked)
            for axis, extents in _splits(kind, inner, pool):
                yield replace(whole, stacked=stacked, axis=axis, extents=extents)


def _splits(kind: str, shape: tuple[int, ...], pool: set[ExtentsKey]) -> Iterator[tuple[int, tuple[int, ...]]]:
    """Yield axes and extents of parts that are all pieces of the other model: equal ones first."""
    for axis, n in enumerate(shape):
        rest = shape[:axis] + shape[axis + 1 :]
        equal = [parts for parts in range(2, MOST_PARTS + 1) if n % parts == 0 and n > parts]
        for parts in equal:
            if key_of(kind, (*rest, n // parts)) in pool:
                yield axis, (n // parts,) * parts
        known = sorted((m for m in _beside(kind, rest, pool) if 1 < m < n), reverse=True)
        if len(known) > 8 or (not rest and n > 4096):
            continue
        for parts in (2, 3):
            for chosen in combinations_with_replacement(known, parts):
                if sum(chosen) == n and len(set(chosen)) > 1:
                    yield axis, chosen


def _beside(kind: str, rest: Sequence[int], pool: set[ExtentsKey]) -> set[int]:
    """Return the extents that make a piece of the other model with those of the rest."""
    own = Counter(n for n in rest if n != 1)
    found: set[int] = set()
    for other, extents in pool:
        if other == kind and len(extents) == own.total() + 1:
            more = Counter(extents)
            more.subtract(own)
            if min(more.values()) >= 0:
                found.update(+more)
    return found
