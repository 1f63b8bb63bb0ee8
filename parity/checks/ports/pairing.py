"""Pairing: which leaf of a trainer's port stands for which leaf of the trainer, by rules, by values, by names."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import permutations, takewhile
from typing import Any

import numpy as np
from numpy.typing import NDArray

from parity.errors import SpecError

__all__ = ["Pair", "PairRule", "pair_leaves", "permutation_of"]

PairRule = tuple[str, str] | tuple[str, str, "str | Sequence[int]"]
"""A path of the trainer, the path of its port, and how the axes go over: `transpose`, `reshape`, or a permutation
as of `numpy.transpose`. `*` stands for the same text on both sides."""

Arrays = Mapping[str, NDArray[Any]]

MOST_AXES = 5
"""Axes above which no permutation is tried: 120 at 5."""


@dataclass(frozen=True)
class Pair:
    """Two leaves that stand for the same value."""

    a: str
    b: str
    component: str
    axes: tuple[int, ...] | None = None
    """Permutation that takes the axes of `a` to those of `b`; None where they are in the same order."""

    @property
    def turned(self) -> Pair:
        """Return the pair from the other side."""
        axes = None if self.axes is None else tuple(int(axis) for axis in np.argsort(self.axes))
        return Pair(self.b, self.a, self.component, axes)

    def carry(self, values: NDArray[Any], shape: tuple[int, ...]) -> NDArray[Any]:
        """Return values of `a` as `b` holds them, in float64 unless they are whole numbers.

        Args:
            values: Of leaf `a`.
            shape: Of leaf `b`.
        """
        moved = values if self.axes is None else values.transpose(self.axes)
        return moved.reshape(shape)


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
    found = _by_rules(a, b, component, rules)
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


def _by_rules(a: Arrays, b: Arrays, component: str, rules: Iterable[PairRule]) -> dict[str, Pair]:
    found: dict[str, Pair] = {}
    taken: set[str] = set()
    for rule in rules:
        left, right, how = (*rule, "same")[:3]
        matches = matching(rule, a)
        if not matches:
            raise SpecError("rules", f"{left!r} matches no array of the trainer; it has {', '.join(list(a)[:6])}")
        for path, stars in matches.items():
            texts = iter(stars)
            other = "".join(part if part != "*" else next(texts, "*") for part in re.split(r"(\*)", right))
            if other not in b:
                raise SpecError("rules", f"{left!r} takes {path} to {other}, which the port has not; it has "
                                f"{', '.join(list(b)[:6])}")  # fmt: skip
            if path in found or other in taken:
                raise SpecError("rules", f"two rows for {path if path in found else other}; give each leaf one row")
            found[path] = _fitting(path, other, component, how, a[path].shape, b[other].shape)
            taken.add(other)
    return found


def matching(rule: PairRule, paths: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """Return the paths of the trainer that a rule names, with the texts that its stars stand for."""
    pattern = re.compile("(.+?)".join(map(re.escape, rule[0].split("*"))))
    matches = ((path, pattern.fullmatch(path)) for path in paths)
    return {path: match.groups() for path, match in matches if match is not None}


def _fitting(path: str, other: str, component: str, how: Any, here: tuple[int, ...], there: tuple[int, ...]) -> Pair:
    axes: tuple[int, ...] | None = None
    if how == "transpose":
        axes = tuple(reversed(range(len(here))))
    elif not isinstance(how, str):
        axes = tuple(how)
        if sorted(axes) != list(range(len(here))):
            raise SpecError("rules", f"{path} has {len(here)} axes, the permutation is {list(axes)}")
    elif how not in ("same", "reshape"):
        raise SpecError("rules", f"transform of {path} must be same, transpose, reshape or axes, got {how!r}")
    moved = here if axes is None else tuple(here[axis] for axis in axes)
    if moved != there and (how != "reshape" or np.prod(moved) != np.prod(there)):
        raise SpecError("rules", f"{path} {list(here)} does not fit {other} {list(there)} by {how!r}")
    return Pair(path, other, component, axes)


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


def pair_slots(params: Sequence[Pair], a: Mapping[str, str], b: Mapping[str, str]) -> list[Pair]:
    """Pair the slots of optimizers and averages: each belongs to a parameter, and goes over as that does.

    Args:
        params: The pairs of the parameters.
        a: Path to component of the trainer's slots, such as `optimizer.state[model.0.weight].exp_avg`.
        b: The same of its port.
    """
    slots: dict[tuple[str, str], list[str]] = {}
    for path, component in b.items():
        owner = owner_of(path, [pair.b for pair in params])
        if owner is not None:
            slots.setdefault((owner, component), []).append(path)
    found = []
    for path, component in a.items():
        owner = owner_of(path, [pair.a for pair in params])
        for pair in (one for one in params if one.a == owner):
            others = slots.get((pair.b, component), [])
            if len(others) == 1:
                found.append(Pair(path, others[0], component, pair.axes))
    return found


def owner_of(path: str, parameters: Sequence[str]) -> str | None:
    """Return the parameter that a slot belongs to: named in brackets, or by the longest common end of both paths.

    Example:
        >>> owner_of("optimizer.state[model.0.weight].exp_avg", ["model.0.weight", "model.0.bias"])
        'model.0.weight'
        >>> owner_of("opt_state[0].mu.first.kernel", ["model.first.kernel", "model.second.kernel"])
        'model.first.kernel'
    """
    for parameter in parameters:
        if f"[{parameter}]" in path:
            return parameter
    words = words_of(path)
    common = {parameter: _common(words, words_of(parameter)) for parameter in parameters}
    best = max(common.values(), default=0)
    owners = [parameter for parameter, count in common.items() if count == best]
    return owners[0] if best and len(owners) == 1 else None


def words_of(path: str) -> list[str]:
    """Return the names that a path is made of."""
    return [word for word in re.split(r"[.\[\]'\"]+", path) if word]


def _common(a: Sequence[str], b: Sequence[str]) -> int:
    """Return how many names two paths have in common at their ends."""
    pairs = zip(reversed(a), reversed(b), strict=False)
    return len(list(takewhile(lambda pair: pair[0] == pair[1], pairs)))
