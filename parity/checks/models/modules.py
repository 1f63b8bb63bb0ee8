"""Modules of two models that stand for one another: those whose leaves are the same under a map."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from parity.checks.noise import spread_of
from parity.contract import Evaluation, ModelProbe, ModuleCall
from parity.mapping import RulePlacement

__all__ = ["CallPair", "comparable", "pair_calls"]


@dataclass(frozen=True)
class CallPair:
    """One call of a module, and the calls of the other model that do the same."""

    first: tuple[ModuleCall, ...]
    """One, or several whose results lie one after the other: separate projections of a fused one."""
    second: tuple[ModuleCall, ...]
    end: int
    """Place of the last of the first model's calls among all of them."""

    @property
    def paths(self) -> tuple[str, str]:
        """Return the modules of both, those of the model itself as `the model`."""
        return tuple(" + ".join(one.path or "the model" for one in side) for side in (self.first, self.second))  # type: ignore[return-value]


def pair_calls(
    first: ModelProbe, second: ModelProbe, placements: Sequence[RulePlacement], one: Evaluation, two: Evaluation
) -> list[CallPair]:
    """Return the calls that are paired, in the order in which those of the first model ended.

    Args:
        first: A model.
        second: The other.
        placements: The map from one to the other.
        one: The first, evaluated with its calls.
        two: The second, evaluated with its calls.
    """
    target = {name: frozenset(place.target) for place in placements for name in place.source}
    here, there = _by_leaves(first.leaves, one.calls), _by_leaves(second.leaves, two.calls)
    found: list[CallPair] = []
    groups: dict[frozenset[str], set[str]] = {}
    for leaves, calls in here.items():
        wanted = frozenset().union(*(target.get(leaf, frozenset()) for leaf in leaves))
        groups.setdefault(wanted, set()).update(leaves)
        for outer, other in zip(reversed(calls), reversed(there.get(wanted, [])), strict=False):
            found += _paired([outer], [other])
        if wanted not in there and (parts := _parts(wanted, there)):
            found += _paired([calls[0]], parts)
    for wanted, theirs in there.items():  # separate projections here that are one there
        sources = frozenset(name for name, made in target.items() if made & wanted and name in first.leaves)
        if sources not in here and (parts := _parts(sources, here)):
            found += _paired(parts, [theirs[0]])
    return sorted(found, key=lambda pair: pair.end)


_NumberedCalls = list[tuple[int, ModuleCall]]


def _by_leaves(leaves: Iterable[str], calls: Sequence[ModuleCall]) -> dict[frozenset[str], list[_NumberedCalls]]:
    """Return the calls of each module by the leaves that it holds, the innermost module first."""
    modules: dict[str, _NumberedCalls] = {}
    for at, call in enumerate(calls):
        modules.setdefault(call.path, []).append((at, call))
    names = list(leaves)
    found: dict[frozenset[str], list[_NumberedCalls]] = {}
    for path, numbered in sorted(modules.items(), key=lambda one: -len(one[0])):
        held = frozenset(name for name in names if not path or name.startswith(f"{path}."))
        if held:
            found.setdefault(held, []).append(numbered)
    return found


def _parts(wanted: frozenset[str], modules: Mapping[frozenset[str], list[_NumberedCalls]]) -> list[_NumberedCalls]:
    """Return modules that hold these leaves together and no others, in the order of their calls; or none."""
    inside = [(held, calls[0]) for held, calls in modules.items() if held < wanted]
    largest = [one for one in inside if not any(one[0] < other for other, _ in inside)]
    if len(largest) < 2 or frozenset().union(*(held for held, _ in largest)) != wanted:
        return []
    if sum(len(held) for held, _ in largest) != len(wanted):
        return []
    return sorted((calls for _, calls in largest), key=lambda calls: calls[0][0])


def _paired(mine: Sequence[_NumberedCalls], theirs: Sequence[_NumberedCalls]) -> list[CallPair]:
    counts = {len(calls) for calls in (*mine, *theirs)}
    if len(counts) != 1:
        return []
    return [
        CallPair(
            tuple(calls[at][1] for calls in mine),
            tuple(calls[at][1] for calls in theirs),
            max(calls[at][0] for calls in mine),
        )
        for at in range(counts.pop())
    ]


def comparable(
    mine: Sequence[NDArray[np.float64]], theirs: Sequence[NDArray[np.float64]]
) -> tuple[NDArray[np.float64], NDArray[np.float64]] | None:
    """Return arrays of both models in one shape: joined along the last axis, heads in one axis, channels last.

    None where they cannot be brought to one shape.
    """
    if not mine or not theirs:
        return None
    a, b = mine[0], theirs[0]
    if len(mine) != len(theirs):
        whole = a if len(mine) == 1 else b
        lead = whole.shape[:-1]
        size = int(np.prod(lead))
        flat = [
            [one.reshape(*lead, -1) if size and one.size % size == 0 else one for one in side]
            for side in (mine, theirs)
        ]
        if any(one.shape[:-1] != lead for side in flat for one in side):
            return None
        a, b = (np.concatenate(side, axis=-1) for side in flat)
    ways = [(a, b)]
    if a.ndim == b.ndim and 3 <= a.ndim <= 5:
        ways += [(np.moveaxis(a, 1, -1), b), (a, np.moveaxis(b, 1, -1))]
    ways = [way for way in ways if way[0].shape == way[1].shape]
    if ways:  # of as many channels as places shapes do not tell where the channels are
        return min(ways, key=lambda way: spread_of(*way))
    if a.size == b.size and a.ndim != b.ndim and a.shape[:2] == b.shape[:2]:
        return a, b.reshape(a.shape)
    return None
