"""An edge of a program that goes elsewhere: operations that take an earlier value in place of the one they take.

A norm that is given the input of the block and not what attention has added to it, a leaf that stands at two places
while its neighbour stands at none, values that are turned as keys are: each is one value in place of another, at the
operation that takes it, or at those of one call of a helper, and in every layer alike. The value is one that the
program has before; what makes both programs equal is told, whatever the other one is written like.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from parity.checks.programs.edits import NamedValues, OperationChange, made_by, told_apart
from parity.checks.programs.matching import Candidates
from parity.contract import OperationArrays, OperationEdit, ProgramOperation

__all__ = ["rewired"]

MOST_SOURCES = 10
"""Values that are tried in place of one, the nearest first."""

MOST_TAKERS = 3
"""Operations one after the other, from the first that parts, that are given another value together."""

LARGEST = 2**20


@dataclass(frozen=True)
class _ValuePlace:
    """Where a value lies: an operation, and which of its outputs, then inputs."""

    at: int
    place: int


def rewired(
    operations: Sequence[ProgramOperation], candidates: Candidates, names: NamedValues
) -> Iterator[tuple[int, OperationChange]]:
    """Yield other values in place of those that operations take whose results the other program has not.

    Args:
        operations: Of a program.
        candidates: Where it parts.
        names: Of values that it is given.
    """
    keys = _ValueKeys(operations)
    made = {key for each in keys.made for key in each}
    lacking = {key for at in candidates.parted for key in keys.made[at]}
    alone: set[int] = set()
    slots: dict[tuple[int, int], None] = {}
    for at in sorted(candidates.parted):
        for x, key in zip(operations[at].inputs, keys.taken[at], strict=True):
            if _looked_at(x):
                slots[at, key] = None
                if key not in made and not operations[at].turns and not candidates.known.has(x):
                    alone.add(key)  # a leaf that the other program takes nowhere

    def order(slot: tuple[int, int]) -> int:
        """Return 0 where the two part first: behind that what is made of a value could be replaced as well."""
        at, key = slot
        return 0 if at in candidates.entries or key in alone else 1 if key in lacking else 2

    for at, key in sorted(slots, key=order):
        takers = [n for n in keys.takers[key] if n >= at and _is_beside(operations, at, n)]
        for source in _sources(operations, keys, at, key, candidates):
            if key not in made and keys.at(source) in made:
                continue  # in place of a leaf another one is taken
            for count in range(1, min(len(takers), MOST_TAKERS) + 1):
                yield from _changes(operations, keys, takers[:count], key, source, names)


class _ValueKeys:
    """What operations take and make, equal values under one number."""

    def __init__(self, operations: Sequence[ProgramOperation]) -> None:
        numbers: dict[tuple[Any, ...], int] = {}

        def key(x: NDArray[Any]) -> int:
            held = x.shape, x.dtype.kind, np.ascontiguousarray(x).tobytes()
            return numbers.setdefault(held, len(numbers))

        self.taken = [[key(x) for x in one.inputs] for one in operations]
        self.made = [[key(x) for x in one.outputs] for one in operations]
        self.takers: dict[int, list[int]] = {}
        for at, each in enumerate(self.taken):
            for one in dict.fromkeys(each):
                self.takers.setdefault(one, []).append(at)

    def at(self, source: _ValuePlace) -> int:
        """Return the number of the value that lies at a place."""
        return [*self.made[source.at], *self.taken[source.at]][source.place]


def _is_beside(operations: Sequence[ProgramOperation], first: int, at: int) -> bool:
    """Return whether an operation is one of a loop where another is, or neither is."""
    return bool(operations[first].turns) == bool(operations[at].turns)


def _looked_at(x: NDArray[Any]) -> bool:
    return x.dtype.kind == "f" and 1 < x.size <= LARGEST


def _sources(
    operations: Sequence[ProgramOperation], keys: _ValueKeys, at: int, own: int, candidates: Candidates
) -> Iterator[_ValuePlace]:
    """Yield where values of a shape lie before an operation, the nearest first; those alone that the other has."""
    found: set[int] = {own}
    x = operations[at].inputs[keys.taken[at].index(own)]
    parted = set(candidates.parted)
    for before in sorted(operations[at].before, reverse=True):
        one = operations[before]
        values = [*one.outputs, *one.inputs]
        for place, value in enumerate(values):
            key = keys.at(_ValuePlace(before, place))
            if key in found or value.shape != x.shape or not _looked_at(value):
                continue
            if place < len(one.outputs) and before in parted:
                continue  # what the other has not makes nothing equal
            found.add(key)
            yield _ValuePlace(before, place)
            if len(found) > MOST_SOURCES:
                return


def _changes(
    operations: Sequence[ProgramOperation], keys: _ValueKeys, takers: Sequence[int], key: int, source: _ValuePlace,
    names: NamedValues,
) -> Iterator[tuple[int, OperationChange]]:  # fmt: skip
    """Yield a value in place of another at some operations, and before that in each layer that has them."""
    layers = [
        edits for moved in _moved(operations, keys, takers, key, source)
        if (edits := _edits(operations, keys, moved[0], moved[1], moved[2]))
    ]  # fmt: skip
    if not layers:
        return
    first = takers[0]
    own, other = _words(operations, keys, first, key, source, names)
    if len(layers) > 1 and source.place >= len(operations[source.at].outputs) and other.startswith("what "):
        taker = operations[source.at]  # in each layer another operation may make it
        other = f"what {taker.kind} takes at {taker.place}"
    every = {at: edit for edits in layers for at, edit in edits.items()}
    for edits in (every, layers[0]) if len(layers) > 1 else (every,):
        rest = {at: edit for at, edit in edits.items() if at != first}
        yield first, OperationChange("value taken", own, other, 2, edits[first], rest, whole=True)


def _moved(
    operations: Sequence[ProgramOperation], keys: _ValueKeys, takers: Sequence[int], key: int, source: _ValuePlace
) -> Iterator[tuple[list[int], int, _ValuePlace]]:
    """Yield the takers, the value that they take, and where the other lies, of each layer: the first as it is."""
    first = takers[0]
    yield list(takers), key, source
    place = keys.taken[first].index(key)
    for at in range(first + 1, len(operations)):
        by = at - first
        if not _is_like(operations, first, at) or not all(
            n + by < len(operations) and _is_like(operations, n, n + by) for n in (*takers, source.at)
        ):
            continue
        own, there = keys.taken[at][place], _ValuePlace(source.at + by, source.place)
        if keys.at(there) != own and there.at in operations[at].before:
            yield [n + by for n in takers], own, there


def _is_like(operations: Sequence[ProgramOperation], one: int, two: int) -> bool:
    """Return whether two operations are one of the user's code, at shapes that are equal."""
    a, b = operations[one], operations[two]
    alike = a.kind == b.kind and a.place == b.place and len(a.outputs) == len(b.outputs)
    return alike and [x.shape for x in a.inputs] == [x.shape for x in b.inputs]


def _edits(
    operations: Sequence[ProgramOperation], keys: _ValueKeys, takers: Sequence[int], key: int, source: _ValuePlace
) -> dict[int, OperationEdit]:
    """Return the edits that give operations the value of a source; none where one of them begins before it."""
    edits: dict[int, OperationEdit] = {}
    for at in takers:
        places = [place for place, one in enumerate(keys.taken[at]) if one == key]
        if not places or source.at not in operations[at].before:
            return {}
        edits[at] = _taking(places, source)
    return edits


def _taking(places: Sequence[int], source: _ValuePlace) -> OperationEdit:
    def given(inputs: OperationArrays, held: Sequence[OperationArrays]) -> OperationArrays:
        return tuple(held[0][source.place] if place in places else x for place, x in enumerate(inputs))

    return OperationEdit(given=given, sources=(source.at,))


def _words(
    operations: Sequence[ProgramOperation],
    keys: _ValueKeys,
    first: int,
    key: int,
    source: _ValuePlace,
    names: NamedValues,
) -> tuple[str, str]:
    """Return what both values are called, the first with the line that what is made of it goes on to."""
    place = keys.taken[first].index(key)
    values = operations[first].inputs[place], [*operations[source.at].outputs, *operations[source.at].inputs][
        source.place
    ]  # fmt: skip
    own, other = (_name(operations, keys, at, key, value, names) for at, key, value in
                  ((first, key, values[0]), (source.at + 1, keys.at(source), values[1])))  # fmt: skip
    own, other = told_apart(operations, (own, other), values)
    if own == other:
        taker = operations[source.at]
        other = f"what {taker.kind} takes at {taker.place}"
    onward = _onward(operations, keys, first)
    return f"{own} goes into {operations[first].kind}{f' (on to {onward})' if onward else ''}", other


def _name(
    operations: Sequence[ProgramOperation],
    keys: _ValueKeys,
    at: int,
    key: int,
    value: NDArray[Any],
    names: NamedValues,
) -> str:
    """Return what a value is called: a leaf or an input by its name, else by what made it."""
    named = [
        name for name, one in names.items()
        if one.size == value.size and one.dtype.kind == "f" and np.array_equal(one.ravel(), value.ravel())
    ]  # fmt: skip
    if named:
        return named[0]
    maker = next((n for n in range(at - 1, -1, -1) if key in keys.made[n]), None)
    return made_by(operations, maker) if maker is not None else f"a value {list(value.shape)} that its loop is given"


def _onward(operations: Sequence[ProgramOperation], keys: _ValueKeys, first: int) -> str:
    """Return the first other line that takes what is made of an operation; empty where there is none."""
    reached = set(keys.made[first])
    for at in range(first + 1, len(operations)):
        if reached.intersection(keys.taken[at]):
            if operations[at].place != operations[first].place:
                return operations[at].place
            reached.update(keys.made[at])
    return ""
