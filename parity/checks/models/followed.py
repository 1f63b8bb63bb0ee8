"""The map of two models that part, followed through what the first computes, up to the place at which they part.

An operation of which the other model has all that goes in, and not what comes out, takes a leaf that is paired wrong,
or is where the two part. So the leaves that it takes are turned, or exchanged for those of another operation of its
kind, and what makes fewer operations part is kept. What lies behind the fault no operation tells.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from parity.checks.models.likeness import Alike
from parity.checks.models.pieces import turns
from parity.checks.models.proposal import Matched
from parity.checks.models.subjects import Subjects, own_values, values_of
from parity.checks.programs import candidates_of
from parity.contract import ProgramOperation

__all__ = ["FollowedMap"]

SEED = 53

MOST_TRIES = 24
"""Ways in which the leaves of one operation are paired otherwise."""


class FollowedMap:
    """Counts the operations that part under pairs of leaves, and pairs leaves so that fewer do.

    Args:
        subjects: The models.
        matched: Their pieces.
        end: Time of the processor after which nothing is tried any more.
    """

    def __init__(self, subjects: Subjects, matched: Matched, end: float) -> None:
        self.subjects, self.matched, self.end = subjects, matched, end
        self._first: list[ProgramOperation] | None = None

    def parted(self, pairs: Sequence[Alike]) -> int:
        """Return how many operations of both models make what the other has not; 0 where they are not looked at."""
        both = self._programs(pairs)
        return 0 if both is None else _count(*both)

    def better(self, pairs: Sequence[Alike]) -> tuple[list[Alike], int]:
        """Return pairs under which fewer operations part than under those that are given, and how many do."""
        best, done = list(pairs), set[int]()
        both = self._programs(best)
        if both is None:
            return best, 0
        count = _count(*both)
        while time.process_time() < self.end:
            at = next((one for one in _entries(*both) if one not in done and self._taken(both[0], one, best)), None)
            if at is None:
                break
            done.add(at)
            for tried in itertools.islice(self._otherwise(both[0], at, best), MOST_TRIES):
                now = self._programs(tried)
                if now is not None and (fewer := _count(*now)) < count:
                    best, both, count = tried, now, fewer
                    done.discard(at)  # another leaf of it may be paired wrong as well
                    break
                if time.process_time() > self.end:
                    break
        return best, count

    def _programs(
        self, pairs: Sequence[Alike]
    ) -> tuple[Sequence[ProgramOperation], Sequence[ProgramOperation]] | None:
        """Return the operations of both where each pair has values of its own, the first model's always the same."""
        (first, to_first), (second, to_second) = self.subjects.both
        own = own_values(sorted(pairs, key=lambda one: (one.first.leaf, one.first.number)), SEED)
        if self._first is None:
            one = first.trace(values_of(first, self.matched.first, own[0], SEED), to_first)
            self._first = [] if one is None else list(one.operations)
        two = second.trace(values_of(second, self.matched.second, own[1], SEED), to_second) if self._first else None
        return None if two is None else (self._first, two.operations)

    def _values(self, pairs: Sequence[Alike]) -> dict[tuple[tuple[int, ...], bytes], list[int]]:
        """Return the values of the first model's leaves, each with the numbers of the pairs of its pieces."""
        own = own_values(sorted(pairs, key=lambda one: (one.first.leaf, one.first.number)), SEED)
        held = values_of(self.subjects.first, self.matched.first, own[0], SEED)
        numbers = {leaf: [at for at, one in enumerate(pairs) if one.first.leaf == leaf] for leaf in held}
        return {_key(value): numbers[leaf] for leaf, value in held.items()}

    def _taken(self, operations: Sequence[ProgramOperation], at: int, pairs: Sequence[Alike]) -> list[int]:
        """Return the numbers of the pairs whose leaves an operation takes."""
        known = self._values(pairs)
        found = [number for x in operations[at].inputs if x.dtype.kind == "f" for number in known.get(_key(x), ())]
        return list(dict.fromkeys(found))

    def _otherwise(
        self, operations: Sequence[ProgramOperation], at: int, pairs: list[Alike]
    ) -> Iterator[list[Alike]]:
        """Yield pairs in which those of one operation are turned, exchanged for those of another one, or both."""
        own = self._taken(operations, at, pairs)
        yield from _turned(pairs, own)
        seen: list[list[int]] = []
        for other, two in enumerate(operations):
            if other == at or two.kind != operations[at].kind:
                continue
            numbers = self._taken(operations, other, pairs)
            if numbers in seen or len(numbers) != len(own) or set(numbers) & set(own):
                continue
            seen.append(numbers)
            if all(pairs[a].first.key == pairs[b].first.key for a, b in zip(own, numbers, strict=True)):
                swapped = pairs
                for a, b in zip(own, numbers, strict=True):
                    swapped = _exchanged(swapped, a, b)
                yield swapped
                yield from _turned(swapped, own)
        for a in own:
            for b, one in enumerate(pairs):
                if b != a and one.first.key == pairs[a].first.key:
                    yield _exchanged(pairs, a, b)


def _turned(pairs: Sequence[Alike], numbers: Sequence[int]) -> Iterator[list[Alike]]:
    """Yield pairs of which one has its axes in another order."""
    for at in numbers:
        one = pairs[at]
        for turn in turns(one.first.index.shape, one.second.index.shape):
            if turn != one.axes:
                yield [replace(one, axes=turn) if number == at else two for number, two in enumerate(pairs)]


def _exchanged(pairs: Sequence[Alike], a: int, b: int) -> list[Alike]:
    """Return pairs of which two have each other's counterpart, as that lies to what it was paired with."""
    one, two = pairs[a], pairs[b]
    found = list(pairs)
    for at, first, other in ((a, one.first, two), (b, two.first, one)):
        allowed = turns(first.index.shape, other.second.index.shape)
        axes = other.axes if other.axes in allowed else allowed[0]
        found[at] = replace(pairs[at], second=other.second, axes=axes)
    return found


def _entries(first: Sequence[ProgramOperation], second: Sequence[ProgramOperation]) -> list[int]:
    """Return the operations of one program of which the other has all that goes in, and not what comes out."""
    return sorted(candidates_of(first, second).entries)


def _count(first: Sequence[ProgramOperation], second: Sequence[ProgramOperation]) -> int:
    return sum(len(candidates_of(*both).parted) for both in ((first, second), (second, first)))


def _key(value: NDArray[Any]) -> tuple[tuple[int, ...], bytes]:
    value = np.ascontiguousarray(value, np.float64)
    return value.shape, value.tobytes()
