"""Which of some names each shape is of: where every shape is there once, or where the order leaves one way.

Nothing is guessed: an array at another name of its shape is found by nobody.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence

__all__ = ["by_order", "by_shapes"]

Unsized = tuple[int, ...] | None
"""A shape; None where nothing says it, which fits any name."""


def by_shapes(wanted: Sequence[Unsized], there: Mapping[str, tuple[int, ...]]) -> list[str] | None:
    """Return the name of each shape where shapes decide alone, in any order; None where they do not.

    What has no shape takes the names that are left, if these are as many; that it does not matter which takes which
    is the caller's to know.

    Args:
        wanted: The shapes.
        there: Name to shape.

    Example:
        >>> by_shapes([(3,), (2, 3)], {"weight": (2, 3), "bias": (3,), "scale": (4,)})
        ['bias', 'weight']
        >>> by_shapes([(3,)], {"bias": (3,), "shift": (3,)})
    """
    names: dict[tuple[int, ...], list[str]] = defaultdict(list)
    for name, shape in there.items():
        names[shape].append(name)
    counts = Counter(wanted)
    if any(shape is not None and (counts[shape] > 1 or len(names[shape]) != 1) for shape in counts):
        return None
    taken = {names[shape][0] for shape in counts if shape is not None}
    left = iter([name for name in there if name not in taken])
    if counts[None] and counts[None] != len(there) - len(taken):
        return None
    return [next(left) if shape is None else names[shape][0] for shape in wanted]


def by_order(wanted: Sequence[Unsized], there: Sequence[tuple[int, ...]]) -> tuple[list[int], bool] | None:
    """Return where shapes stand among others that have the same order, and whether that is the only way.

    Args:
        wanted: The shapes, in order.
        there: Those among which they are.

    Returns:
        Places in `there`, or None where they stand there in no way.

    Example:
        >>> by_order([(2,), (3,)], [(2,), (4,), (3,)]), by_order([(2,)], [(2,), (2,)]), by_order([(5,)], [(2,)])
        (([0, 2], True), ([0], False), None)
    """
    first, last = _earliest(wanted, there), _earliest(wanted[::-1], there[::-1])
    if first is None or last is None:
        return None
    # the earliest and the latest way to find one row of shapes in another are the same where it is the only one
    return first, first == [len(there) - 1 - place for place in reversed(last)]


def _earliest(wanted: Sequence[Unsized], there: Sequence[tuple[int, ...]]) -> list[int] | None:
    """Return the earliest place of each wanted shape, in order; None if there is none."""
    places, at = [], 0
    for shape in wanted:
        while at < len(there) and shape is not None and there[at] != shape:
            at += 1
        if at == len(there):
            return None
        places.append(at)
        at += 1
    return places
