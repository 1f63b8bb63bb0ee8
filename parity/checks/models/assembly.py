"""Rules from pieces: for leaves whose pieces are one another's, the row of RULES.toml that moves every element there.

A row is looked for among those that the format has, and taken only if it puts each element where the pieces say.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import permutations

import numpy as np
from numpy.typing import NDArray

from parity.checks.models.likeness import Alike
from parity.checks.models.plan import MOST_PARTS
from parity.contract import ModelProbe
from parity.errors import CheckpointError
from parity.formats import InMemory
from parity.mapping import Join, LeafRule, Permute, Reshape, Split, Stack, Tie, Transform, Transpose, row_of

__all__ = ["LeafGroup", "groups_of", "rule_of"]

Truth = Mapping[str, NDArray[np.int64]]


@dataclass(frozen=True)
class LeafGroup:
    """Leaves of both models whose pieces are one another's, and no other's."""

    first: tuple[str, ...]
    second: tuple[str, ...]
    matches: tuple[Alike, ...]


def groups_of(matches: Sequence[Alike]) -> list[LeafGroup]:
    """Return the leaves that belong together, in the order of the first model's."""
    homes: dict[tuple[int, str], int] = {}
    groups: dict[int, list[Alike]] = {}
    for at, one in enumerate(matches):
        sides = ((0, one.first.leaf), (1, one.second.leaf))
        known = {homes[side] for side in sides if side in homes}
        home = min(known, default=at)
        merged = [one]
        for other in known:
            merged += groups.pop(other)
        groups[home] = merged
        for member in merged:
            homes[0, member.first.leaf] = homes[1, member.second.leaf] = home
    return [
        LeafGroup(
            tuple(dict.fromkeys(one.first.leaf for one in group)),
            tuple(dict.fromkeys(one.second.leaf for one in group)),
            tuple(group),
        )
        for _, group in sorted(groups.items())
    ]


def rule_of(group: LeafGroup, first: ModelProbe, second: ModelProbe) -> LeafRule | None:
    """Return the rule that takes the leaves of the first model to those of the second; None where no row says it.

    Args:
        group: Leaves that belong together, all of whose pieces were told.
        first: The first model; its leaves that are tied come with all their names.
        second: The second model.
    """
    start, truth = _labels(group, first, second)
    collection = next((second.collections[leaf] for leaf in group.second if leaf in second.collections), "")
    tied = {leaf: first.ties[leaf] for leaf in group.first if leaf in first.ties}
    if tied and len(group.first) > 1:
        return None
    sources = _by_truth(group.first, start, [truth[leaf] for leaf in group.second])
    targets = _by_truth(group.second, truth, [start[leaf] for leaf in sources])
    further = tuple(name for names in tied.values() for name in names)
    for names, transforms in _candidates(sources, targets, start, truth):
        if further:
            names, transforms = (*names, *further), (Tie(1 + len(further)), *transforms)
        rule = LeafRule(names, targets, transforms, collection)
        if _holds(rule, _filled(names, sources), start, truth) and _has_row(rule):
            return rule
    return None


def _labels(group: LeafGroup, first: ModelProbe, second: ModelProbe) -> tuple[Truth, Truth]:
    """Return a number for each element of the first leaves, and where the pieces say that it lies in the second."""
    start: dict[str, NDArray[np.int64]] = {}
    count = 0
    for leaf in group.first:
        size = first.leaves[leaf].size
        start[leaf] = np.arange(count, count + size).reshape(first.leaves[leaf].shape)
        count += size
    flat = {leaf: np.full(second.leaves[leaf].size, -1, np.int64) for leaf in group.second}
    for one in group.matches:
        flat[one.second.leaf][one.second.index] = one.first.of(start[one.first.leaf]).transpose(one.axes)
    return start, {leaf: values.reshape(second.leaves[leaf].shape) for leaf, values in flat.items()}


def _by_truth(leaves: Sequence[str], held: Truth, others: Sequence[NDArray[np.int64]]) -> tuple[str, ...]:
    """Return leaves in the order in which their elements come first in the arrays of the other model."""
    order = np.concatenate([one.reshape(-1) for one in others])
    place = np.empty(int(order.max(initial=0)) + 2, np.int64)
    place[order] = np.arange(order.size)
    return tuple(sorted(leaves, key=lambda leaf: int(place[held[leaf].reshape(-1)].min())))


def _candidates(
    sources: tuple[str, ...], targets: tuple[str, ...], start: Truth, truth: Truth
) -> Iterator[tuple[tuple[str, ...], tuple[Transform, ...]]]:
    """Yield names and transforms in the order in which a row has them."""
    shapes = [start[leaf].shape for leaf in sources]
    ends = [truth[leaf].shape for leaf in targets]
    if len(sources) == 1:
        for turn, shape in _turned(shapes[0]):
            for end in _ended(shape, ends):
                yield sources, (*turn, *end)
        yield from ((sources, steps) for steps in _viewed(start[sources[0]], [truth[leaf] for leaf in targets]))
        return
    if len(set(shapes)) == 1 and (pattern := _starred(sources)) is not None:
        for axis in range(len(shapes[0]) + 1):
            stack = Stack(axis)
            for turn, shape in _turned(stack.moved(shapes)[0]):
                for end in _ended(shape, ends):
                    yield (pattern,), (stack, *turn, *end)
            layered = np.stack([start[leaf] for leaf in sources], axis)
            views = _viewed(layered, [truth[leaf] for leaf in targets])
            yield from (((pattern,), (stack, *some)) for some in views)
    yield from _joined_layers(sources, start, [truth[leaf] for leaf in targets])
    for axis in range(len(shapes[0])):
        others = {(len(one), one[:axis] + one[axis + 1 :]) for one in shapes}
        if len(others) == 1:
            join = Join(axis)
            for turn, shape in _turned(join.moved(shapes)[0]):
                for end in _ended(shape, ends):
                    yield sources, (join, *turn, *end)
    for axis in range(len(shapes[0])):
        if len({(len(one), one[:axis] + one[axis + 1 :]) for one in shapes}) == 1:
            whole = np.concatenate([start[leaf] for leaf in sources], axis)
            steps = _viewed(whole, [truth[leaf] for leaf in targets])
            yield from ((sources, (Join(axis), *some)) for some in steps)


def _joined_layers(
    sources: tuple[str, ...], start: Truth, ends: Sequence[NDArray[np.int64]]
) -> Iterator[tuple[tuple[str, ...], tuple[Transform, ...]]]:
    """Yield what joins the parts of each layer and then stacks the layers, for names that are counted alike."""
    patterns, layers = _starred_together(sources)
    if len(patterns) < 2 or layers < 2:
        return
    names = _filled(patterns, sources)
    shapes = [start[name].shape for name in names]
    if len({len(shape) for shape in shapes}) > 1:
        return
    for axis in range(len(shapes[0])):
        if len({one[:axis] + one[axis + 1 :] for one in shapes}) > 1:
            continue
        join = Join(axis, len(patterns))
        wholes = [
            np.concatenate([start[name] for name in names[at : at + len(patterns)]], axis)
            for at in range(0, len(names), len(patterns))
        ]
        if len({one.shape for one in wholes}) > 1:
            continue
        for along in range(len(shapes[0]) + 1):
            stack = Stack(along)
            for turn, shape in _turned(stack.moved(join.moved(shapes))[0]):
                for end in _ended(shape, [one.shape for one in ends]):
                    yield patterns, (join, stack, *turn, *end)
            for steps in _viewed(np.stack(wholes, along), ends):
                yield patterns, (join, stack, *steps)


def _turned(shape: tuple[int, ...]) -> Iterator[tuple[tuple[Transform, ...], tuple[int, ...]]]:
    """Yield orders of axes, the plainest first, with the shape that they give."""
    yield (), shape
    if len(shape) >= 2:
        turned = Transpose()
        yield (turned,), turned.moved([shape])[0]
    for axes in list(permutations(range(len(shape))))[1:120]:
        plain = (*range(len(shape) - 2), len(shape) - 1, len(shape) - 2)
        if axes != plain:
            yield (Permute(axes),), tuple(shape[axis] for axis in axes)


def _viewed(whole: NDArray[np.int64], ends: Sequence[NDArray[np.int64]]) -> Iterator[tuple[Transform, ...]]:
    """Yield what turns an array whose axis of a fused projection is seen as parts and heads, or heads and parts.

    Some elements are looked at before a transform is tried: there are thousands, and leaves of millions of elements.
    """
    if whole.ndim > 3:
        return
    for view in _views(whole.shape):
        seen = whole.reshape(view)
        for axes in list(permutations(range(len(view))))[1:]:
            turned = seen.transpose(axes)
            for end in _ended(turned.shape, [one.shape for one in ends]):
                split = next((step for step in end if isinstance(step, Split)), None)
                wanted = ends[0] if split is None else np.concatenate(ends, split.axis)
                some = np.linspace(0, whole.size - 1, 64).astype(np.int64)
                if np.array_equal(turned[np.unravel_index(some, turned.shape)], wanted.reshape(-1)[some]):
                    yield (Reshape(view), Permute(axes), *end)


def _views(shape: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
    """Yield a shape with one axis as heads and the rest, or as three: parts, heads and the rest, in both orders."""
    for axis, n in enumerate(shape):
        for heads in range(2, n // 2 + 1):
            if n % heads == 0:
                yield (*shape[:axis], heads, n // heads, *shape[axis + 1 :])
        for parts in range(2, MOST_PARTS + 1):
            for heads in range(2, n // parts + 1) if n % parts == 0 else ():
                if n % (parts * heads) == 0:
                    rest = n // parts // heads
                    for pair in dict.fromkeys(((parts, heads), (heads, parts))):
                        yield (*shape[:axis], *pair, rest, *shape[axis + 1 :])


def _ended(shape: tuple[int, ...], ends: Sequence[tuple[int, ...]]) -> Iterator[tuple[Transform, ...]]:
    """Yield what takes an array of a shape to arrays of others: a reshape, a split, or both."""
    if len(ends) == 1:
        yield () if shape == ends[0] else (Reshape(ends[0]),)
        return
    for axis in range(len(ends[0])):
        if len({one[:axis] + one[axis + 1 :] for one in ends}) != 1:
            continue
        extents = tuple(one[axis] for one in ends)
        whole = (*ends[0][:axis], sum(extents), *ends[0][axis + 1 :])
        split = Split(extents, axis)
        yield (split,) if shape == whole else (Reshape(whole), split)


def _starred(names: Sequence[str]) -> str | None:
    """Return the pattern of names that differ in one number only, counted from 0 in their order."""
    rows = [name.split(".") for name in names]
    if len({len(row) for row in rows}) != 1:
        return None
    places = [at for at in range(len(rows[0])) if len({row[at] for row in rows}) > 1]
    if len(places) != 1 or [row[places[0]] for row in rows] != [str(at) for at in range(len(rows))]:
        return None
    return ".".join("*" if at == places[0] else key for at, key in enumerate(rows[0]))


def _filled(names: Sequence[str], sources: Sequence[str]) -> tuple[str, ...]:
    """Return the leaves that names take, in the order in which a rule has them: layer by layer."""
    if not any("*" in one.split(".") for one in names):
        return tuple(sources)
    layers = range(len(sources) // len(names))
    return tuple(
        ".".join(str(layer) if key == "*" else key for key in one.split(".")) for layer in layers for one in names
    )


def _starred_together(names: Sequence[str]) -> tuple[tuple[str, ...], int]:
    """Return the patterns of names that are counted from 0 at one place alike, and how many each has; none else.

    Example:
        >>> _starred_together(["h.0.q", "h.0.k", "h.1.q", "h.1.k"])
        (('h.*.q', 'h.*.k'), 2)
    """
    rows = [name.split(".") for name in names]
    for place in range(min(map(len, rows))):
        found: dict[str, list[str]] = {}
        for row in rows:
            found.setdefault(".".join((*row[:place], "*", *row[place + 1 :])), []).append(row[place])
        counts = {tuple(sorted(numbers, key=lambda one: (len(one), one))) for numbers in found.values()}
        if len(counts) == 1 and (wanted := next(iter(counts))) == tuple(map(str, range(len(wanted)))):
            return tuple(found), len(wanted)
    return (), 0


def _holds(rule: LeafRule, sources: Sequence[str], start: Truth, truth: Truth) -> bool:
    """Return whether a rule puts each element where it should lie."""
    arrays = [InMemory(start[leaf]) for leaf in sources]
    shapes = [one.shape for one in arrays]
    inner = [one for one in rule.transforms if not isinstance(one, Tie)]
    try:
        for one in inner:
            shapes = one.moved(shapes)
        if [tuple(shape) for shape in shapes] != [truth[leaf].shape for leaf in rule.target]:
            return False
        made: Sequence[object] = arrays
        for one in inner:
            made = one.forward(made, sources)
    except (CheckpointError, IndexError, ValueError):
        return False
    return all(np.array_equal(array.load(), truth[leaf]) for array, leaf in zip(made, rule.target, strict=True))  # type: ignore[attr-defined]


def _has_row(rule: LeafRule) -> bool:
    try:
        row_of(rule)
    except CheckpointError:
        return False
    return True
