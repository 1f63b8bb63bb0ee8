"""Plans of how leaves are cut that shapes do not ask for: tried where the plans that they ask for compute otherwise.

A fused projection may have queries, keys and values head by head, `[heads, 3, size]`, where the other has all queries
first; both are of one shape, or of the shapes that separate projections have when they are joined. A matrix may be
the kernel of a convolution in another order of its axes. Which it is only outputs can tell, one plan at a time.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice, permutations

from parity.checks.models.pieces import Cutting, key_of
from parity.checks.models.plan import CutPlan, ShapeCounts

__all__ = ["finer_plans"]

MOST_PLANS = 96
"""Plans that are tried: each costs one evaluation of both models."""

PARTS = (3, 2)
"""Parts of a fused projection that is of one shape in both models: query, key and value; key and value, or gate and
up."""

CutsByShape = dict[tuple[int, ...], Cutting]


def finer_plans(first: ShapeCounts, second: ShapeCounts, base: CutPlan) -> Iterator[CutPlan]:
    """Yield further plans, the likelier ones first.

    Args:
        first: Kinds and shapes of the leaves of one model.
        second: Those of the other.
        base: The plan that shapes ask for, under which the two do not compute the same.
    """
    models = ({shape: kind for kind, shape in first}, {shape: kind for kind, shape in second})
    cuts = (dict(base.first), dict(base.second))
    found = (*_heads_of_cut(cuts), *_heads_of_whole(models, cuts), *_kernels(models, cuts))
    for one, two in islice(found, MOST_PLANS):
        yield CutPlan(one, two, 0)


def _heads(extent: int) -> list[int]:
    """Return the counts of heads that a part of some extent may have."""
    return [n for n in range(2, extent) if extent % n == 0]


def _heads_of_cut(cuts: Sequence[CutsByShape]) -> Iterator[tuple[CutsByShape, CutsByShape]]:
    """Yield plans in which what is cut into equal parts is cut head by head."""
    fused = {
        (at, way.extents)
        for at, ways in enumerate(cuts)
        for way in ways.values()
        if len(set(way.extents)) == 1 and way.heads == 1
    }
    for at, extents in sorted(fused):
        for heads in _heads(extents[0]):
            turned = {
                shape: replace(way, heads=heads) if way.extents == extents else way for shape, way in cuts[at].items()
            }
            yield (turned, cuts[1]) if at == 0 else (cuts[0], turned)


def _heads_of_whole(models: Sequence[Mapping[tuple[int, ...], str]], cuts: Sequence[CutsByShape]
                    ) -> Iterator[tuple[CutsByShape, CutsByShape]]:  # fmt: skip
    """Yield plans in which a projection that is fused in both models is head by head in one of them."""
    extents = [{n for shape in shapes for n in shape} for shapes in models]
    for parts in PARTS:
        for n in sorted(extents[0] & extents[1], reverse=True):
            for heads in _heads(n // parts) if n % parts == 0 else ():
                for by_heads in (1, 0):
                    made = [
                        ways | _whole(shapes, ways, n, parts, heads if at == by_heads else 1)
                        for at, (shapes, ways) in enumerate(zip(models, cuts, strict=True))
                    ]
                    yield made[0], made[1]


def _whole(shapes: Mapping[tuple[int, ...], str], ways: CutsByShape, n: int, parts: int, heads: int) -> CutsByShape:
    """Return how leaves that have an axis of some extent are cut along it, those left out that are cut already."""
    return {
        shape: Cutting(shape, axis=shape.index(n), extents=(n // parts,) * parts, heads=heads)
        for shape, kind in shapes.items()
        if kind == "parameter" and shape.count(n) == 1 and shape not in ways
    }


def _kernels(
    models: Sequence[Mapping[tuple[int, ...], str]], cuts: Sequence[CutsByShape]
) -> Iterator[tuple[CutsByShape, CutsByShape]]:
    """Yield plans in which a matrix has the axes of a kernel in another order than the kernel's own."""
    for at, ways in enumerate(cuts):
        for shape, way in ways.items():
            if way.stacked is not None or way.axis is not None or way.order or len(way.merged) == len(shape):
                continue
            kind = models[at][shape]
            there = [one for one in models[1 - at] if key_of(kind, one) == key_of(kind, way.merged)]
            for matrix in there:
                for merged in _unmerged(matrix, shape):
                    mine = {other: held for other, held in ways.items() if other != shape}
                    theirs = cuts[1 - at] | {matrix: Cutting(merged)}
                    yield (mine, theirs) if at == 0 else (theirs, mine)


def _unmerged(matrix: tuple[int, ...], kernel: tuple[int, ...]) -> list[tuple[int, ...]]:
    """Return the orders of a kernel's extents in which adjacent ones make the axes of a matrix.

    Example:
        >>> _unmerged((6, 4), (4, 3, 2))
        [(3, 2, 4), (2, 3, 4)]
    """
    found = []
    for order in dict.fromkeys(permutations(kernel)):
        at, product = 0, 1
        for n in order:
            product *= n
            if at < len(matrix) and product == matrix[at]:
                at, product = at + 1, 1
        if at == len(matrix) and product == 1:
            found.append(order)
    return found
