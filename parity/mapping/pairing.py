"""Pairing: which leaf of a trainer's port stands for which leaf of the trainer, by rules, by values, by names."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from itertools import permutations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from parity.mapping.pair import Arrays, Pair, PairRule, by_rules

__all__ = ["pair_leaves", "permutation_of"]

MOST_AXES = 5
"""Axes above which no permutation is tried: 120 at 5."""


def pair_leaves(
    a: Arrays, b: Arrays, component: str, rules: Iterable[PairRule] = (), later: tuple[Arrays, Arrays] = ({}, {})
) -> tuple[list[Pair], list[str]]:
    """Pair the leaves of one component.

    First by the rules; of what they leave, those whose values are equal after some permutation of the axes; then
    those of equal shape whose neighbours are paired; then what is the only one of its shape; of leaves that all hold
    one value, such as the scales of norms, those that training made most alike.

    Args:
        a: Path to values of the trainer, at a moment at which both should be equal.
        b: The same of its port.
        component: What the leaves are.
        rules: Rows of paths and transforms.
        later: Values of both after some training.

    Returns:
        The pairs in the order of `a`, and the paths of `a` and then `b` that have no counterpart.

    Raises:
        SpecError: A rule that matches nothing, gives a leaf twice, or does not fit the shapes.
    """
    found = by_rules(a, b, component, rules)
    ways = (_by_value, partial(_by_neighbour, found=found), _by_shape, partial(_by_training, later=later))
    while True:
        taken = {pair.b for pair in found.values()}
        free_a = {path: values for path, values in a.items() if path not in found}
        free_b = {path: values for path, values in b.items() if path not in taken}
        one = next((hit for way in ways if (hit := way(free_a, free_b)) is not None), None)
        if one is None:
            return [found[path] for path in a if path in found], [*free_a, *free_b]
        path, other, axes = one
        found[path] = Pair(path, other, component, axes)


Match = tuple[str, str, tuple[int, ...] | None]


def _by_value(a: Arrays, b: Arrays) -> Match | None:
    """Return a leaf of which exactly one counterpart holds the same values, and which is its only one."""
    for path in a:
        if _constant(a[path]):
            continue
        fits = [(other, axes) for other in b if (axes := permutation_of(a[path], b[other])) is not None]
        rivals = [p for p in a if p != path and fits and permutation_of(a[p], b[fits[0][0]]) is not None]
        if len(fits) == 1 and not rivals:
            return path, fits[0][0], fits[0][1] or None
    return None


def _by_neighbour(a: Arrays, b: Arrays, found: Mapping[str, Pair]) -> Match | None:
    """Return a leaf whose module is that of a paired one: `model.0.bias` beside `model.0.weight`."""
    homes: dict[str, set[str]] = {}
    for pair in found.values():
        homes.setdefault(_home(pair.a), set()).add(_home(pair.b))
    for path in a:
        near = [o for o in b if _home(o) in homes.get(_home(path), ()) and _fits(a[path], b[o])]
        same = [o for o in near if _last(o) == _last(path)] or near
        if len(same) == 1:
            return path, same[0], shape_permutation(a[path].shape, b[same[0]].shape) or None
    return None


def _by_shape(a: Arrays, b: Arrays) -> Match | None:
    """Return a leaf that is the only one left of its shape, on both sides."""
    for path in a:
        fits = [other for other in b if _fits(a[path], b[other])]
        if len(fits) == 1 and sum(_fits(a[p], b[fits[0]]) for p in a) == 1:
            return path, fits[0], shape_permutation(a[path].shape, b[fits[0]].shape) or None
    return None


def _by_training(a: Arrays, b: Arrays, later: tuple[Arrays, Arrays]) -> Match | None:
    """Return a leaf of one value whose counterpart of the same value training moved to nearly the same place."""
    free_a, free_b = ([p for p in free if p in after] for free, after in zip((a, b), later, strict=True))

    def near(path: str, others: Sequence[str]) -> str | None:
        """Return which of some leaves is by far the nearest."""
        fits = [o for o in others if a[path].shape == b[o].shape and np.array_equal(a[path], b[o])]
        gaps = sorted((float(np.abs(later[0][path] - later[1][o]).max(initial=0.0)), o) for o in fits)
        clear = len(gaps) == 1 or (len(gaps) > 1 and gaps[0][0] <= CLEARLY * gaps[1][0] and gaps[1][0] > 0)
        return gaps[0][1] if clear else None

    for path in free_a:
        other = near(path, free_b)
        if other is not None and [p for p in free_a if near(p, free_b) == other] == [path]:
            return path, other, None
    return None


CLEARLY = 0.1
"""How much nearer than the next a counterpart must be, to be taken by what training made of it."""


def permutation_of(a: NDArray[Any], b: NDArray[Any]) -> tuple[int, ...] | None:
    """Return the permutation of axes that makes two arrays equal, empty for none needed; None if there is none.

    Args:
        a: The array that is transposed.
        b: What it is compared with; NaN equals nothing. Other shapes are tried for 2 to `MOST_AXES` axes.

    Example:
        >>> a = np.arange(6.0).reshape(2, 3)
        >>> permutation_of(a, a), permutation_of(a, a.T), permutation_of(a, a + 1)
        ((), (1, 0), None)
    """
    if a.shape == b.shape and np.array_equal(a, b):
        return ()
    if a.ndim != b.ndim or not 2 <= a.ndim <= MOST_AXES or sorted(a.shape) != sorted(b.shape):
        return None
    for axes in permutations(range(a.ndim)):
        if tuple(a.shape[axis] for axis in axes) == b.shape and np.array_equal(a.transpose(axes), b):
            return axes
    return None


def shape_permutation(here: tuple[int, ...], there: tuple[int, ...]) -> tuple[int, ...]:
    """Return the likeliest permutation that takes one shape to another: reversed axes, or the first that fits."""
    if here == there:
        return ()
    candidates = [tuple(reversed(range(len(here)))), *permutations(range(len(here)))]
    return next(axes for axes in candidates if tuple(here[axis] for axis in axes) == there)


def _fits(a: NDArray[Any], b: NDArray[Any]) -> bool:
    return a.shape == b.shape or (2 <= a.ndim <= MOST_AXES and sorted(a.shape) == sorted(b.shape))


def _constant(values: NDArray[Any]) -> bool:
    return bool(values.size < 2 or (values == values.flat[0]).all())


def _home(path: str) -> str:
    return re.sub(r"[.\[][^.\[]*$", "", path)


def _last(path: str) -> str:
    return path.removeprefix(_home(path)).strip(".[]'\"")
