"""The plan of how leaves are cut: by their shapes alone, so that both models have the same pieces.

Leaves of a shape are cut where one model has more of it than the other: into parts of the shapes that the other has
more of. Nothing is decided here about which leaf is which.
"""

from __future__ import annotations

import heapq
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations_with_replacement, permutations, product

from parity.checks.models.pieces import Cutting, PieceKey, key_of

__all__ = ["CutPlan", "Shapes", "cut_plans"]

Shapes = Counter[tuple[str, tuple[int, ...]]]
"""Kind and shape of leaves, to how many a model has."""

Cuts = Mapping[tuple[int, ...], Cutting]

MOST_PLANS = 20_000
"""Combinations that are tried; five shapes that do not fit have a few hundred."""

MOST_PARTS = 8
"""Equal parts of a fused projection: query, key and value are 3, the gates of an LSTM 4."""


@dataclass(frozen=True)
class CutPlan:
    """How the leaves of both models are cut."""

    first: Cuts
    second: Cuts
    left: int
    """Elements of pieces for which the other model has none of these extents."""


def cut_plans(first: Shapes, second: Shapes, most: int = 4) -> list[CutPlan]:
    """Return the likeliest plans: those that leave the fewest elements over, and of these the simplest.

    Args:
        first: Shapes of one model.
        second: Those of the other.
        most: Plans to return.

    Example:
        >>> separate = Counter({("parameter", (4, 4)): 3})
        >>> fused = Counter({("parameter", (4, 12)): 1})
        >>> cut_plans(separate, fused)[0].second
        {(4, 12): Cutting(merged=(4, 12), stacked=None, axis=1, extents=(4, 4, 4))}
    """
    models = (first, second)
    keys = [Counter[PieceKey]() for _ in models]
    for counter, shapes in zip(keys, models, strict=True):
        for (kind, shape), count in shapes.items():
            counter[key_of(kind, shape)] += count
    found: list[CutPlan] = []
    for reach in (_plainly, _reachable):  # what few shapes explain is not looked for among many
        pools = [reach(shapes) for shapes in models]
        doubtful, choices = [], []
        for at, shapes in enumerate(models):
            for kind, shape in sorted(shapes, key=lambda one: -math.prod(one[1])):
                key = key_of(kind, shape)
                if keys[at][key] > keys[1 - at][key]:
                    doubtful.append((at, kind, shape))
                    ways = dict.fromkeys(_ways(kind, shape, pools[1 - at]))
                    choices.append(sorted(ways, key=lambda way, shape=shape: _cost(shape, way)))  # type: ignore[misc]
        found += _tried(models, doubtful, choices, most)
        if any(plan.left == 0 for plan in found):
            break
    return sorted(found, key=lambda plan: plan.left)[:most]


def _tried(
    models: Sequence[Shapes], doubtful: Sequence[tuple[int, str, tuple[int, ...]]],
    choices: Sequence[Sequence[Cutting]], most: int,
) -> list[CutPlan]:  # fmt: skip
    """Return plans, the fewest elements left over first, of those that are tried from the simplest on."""
    costs = [[_cost(shape, way) for way in ways] for (_, _, shape), ways in zip(doubtful, choices, strict=True)]
    start = (0,) * len(choices)
    heap, seen = [(0, start)], {start}
    found: list[tuple[int, int, CutPlan]] = []
    for _ in range(MOST_PLANS):
        if not heap or sum(left == 0 for left, _, _ in found) >= most:
            break
        cost, places = heapq.heappop(heap)
        ways = [choices[at][place] for at, place in enumerate(places)]
        plan = _shared(doubtful, ways, models)
        if plan is not None:
            left = _left_over(models, plan)
            found.append((left, cost, CutPlan(plan[0], plan[1], left)))
        for at, place in enumerate(places):
            following = (*places[:at], place + 1, *places[at + 1 :])
            if place + 1 < len(choices[at]) and following not in seen:
                seen.add(following)
                heapq.heappush(heap, (sum(costs[i][p] for i, p in enumerate(following)), following))
    found.sort(key=lambda one: one[:2])
    return [plan for _, _, plan in found[:most]]


def _cost(shape: tuple[int, ...], way: Cutting) -> int:
    return (way.merged != shape) + (way.stacked is not None) * 2 + (way.axis is not None) * len(way.extents)


def _shared(
    doubtful: Sequence[tuple[int, str, tuple[int, ...]]], ways: Sequence[Cutting], models: Sequence[Shapes]
) -> list[dict[tuple[int, ...], Cutting]] | None:
    """Return the plan of both, where leaves of the extents of one that is cut are cut alike in either model.

    Which of them is the fused one only behaviour can tell, and both must have the same values until then.
    """
    plan: list[dict[tuple[int, ...], Cutting]] = [{}, {}]
    for (at, _, shape), way in zip(doubtful, ways, strict=True):
        if way != Cutting(shape):
            plan[at][shape] = way
    for (_, kind, _), way in zip(doubtful, ways, strict=True):
        if way.axis is None:
            continue
        inner = [n for axis, n in enumerate(way.merged) if axis != way.stacked]
        extent = inner[way.axis]
        for at, shapes in enumerate(models):
            for other_kind, shape in shapes:
                if other_kind != kind or key_of(kind, shape) != key_of(kind, inner) or shape in plan[at]:
                    continue
                if shape.count(extent) != 1:
                    return None
                plan[at][shape] = Cutting(shape, axis=shape.index(extent), extents=way.extents)
    return plan


def _left_over(models: Sequence[Shapes], plan: Sequence[Cuts]) -> int:
    counts: list[Counter[PieceKey]] = [Counter(), Counter()]
    for at, shapes in enumerate(models):
        for (kind, shape), count in shapes.items():
            for key in _keys(kind, plan[at].get(shape, Cutting(shape))):
                counts[at][key] += count
    return sum(abs(counts[0][key] - counts[1][key]) * math.prod(key[1]) for key in counts[0] | counts[1])


def _keys(kind: str, way: Cutting) -> list[PieceKey]:
    """Return the keys of the pieces that a shape is cut into, without making them."""
    inner = [n for axis, n in enumerate(way.merged) if axis != way.stacked]
    layers = 1 if way.stacked is None else way.merged[way.stacked]
    if way.axis is None:
        return [key_of(kind, inner)] * layers
    parts = [[*inner[: way.axis], extent, *inner[way.axis + 1 :]] for extent in way.extents]
    return [key_of(kind, one) for one in parts] * layers


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


def _plainly(shapes: Shapes) -> set[PieceKey]:
    """Return the keys of the leaves of a model as they are, those of three axes and more with axes made one."""
    return {
        key_of(kind, merged)
        for kind, shape in shapes
        for merged in _merges(shape)
        if merged == shape or (len(shape) > 2 and len(merged) > 1)
    }


def _reachable(shapes: Shapes) -> set[PieceKey]:
    """Return the keys of the leaves of a model, with axes made one and with layers taken apart."""
    found: set[PieceKey] = set()
    for kind, shape in shapes:
        for merged in _merges(shape):
            found.add(key_of(kind, merged))
            if len(merged) > 1:
                found |= {key_of(kind, merged[:axis] + merged[axis + 1 :]) for axis in range(len(merged))}
    return found


def _ways(kind: str, shape: tuple[int, ...], pool: set[PieceKey]) -> Iterator[Cutting]:
    """Yield how leaves of a shape may be cut into pieces of the other model, as they are first."""
    yield Cutting(shape)
    for merged in _merges(shape):
        whole = Cutting(merged)
        if merged != shape and key_of(kind, merged) in pool:
            yield whole
        stacks = [None, *(axis for axis, n in enumerate(merged) if n > 1)]
        for stacked in stacks:
            inner = tuple(n for axis, n in enumerate(merged) if axis != stacked)
            if stacked is not None and key_of(kind, inner) in pool:
                yield replace(whole, stacked=stacked)
            for axis, extents in _splits(kind, inner, pool):
                yield replace(whole, stacked=stacked, axis=axis, extents=extents)


def _splits(kind: str, shape: tuple[int, ...], pool: set[PieceKey]) -> Iterator[tuple[int, tuple[int, ...]]]:
    """Yield axes and extents of parts that are all pieces of the other model: equal ones first."""
    for axis, n in enumerate(shape):
        rest = shape[:axis] + shape[axis + 1 :]
        equal = [parts for parts in range(2, MOST_PARTS + 1) if n % parts == 0]
        for parts in equal:
            if key_of(kind, (*rest, n // parts)) in pool:
                yield axis, (n // parts,) * parts
        known = sorted((m for m in range(2, n) if key_of(kind, (*rest, m)) in pool), reverse=True)
        if len(known) > 8 or not rest and n > 4096:
            continue
        for parts in (2, 3):
            for chosen in combinations_with_replacement(known, parts):
                if sum(chosen) == n and len(set(chosen)) > 1:
                    for order in dict.fromkeys(permutations(chosen)):
                        yield axis, order

