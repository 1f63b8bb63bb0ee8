"""What a line of a program may be given otherwise: two values exchanged, another value, or one that lies otherwise.

A port that takes the softmax over sources in place of targets, or exchanges the two sides of a divergence, does so
in all that one line of it computes, and each time that the line is computed. So the values that a line takes from
outside are changed at all operations of the line, and of the lines after it that take the same value.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from parity.checks.programs.edits import NEAREST, NamedValues, OperationChange, made_by, nearest, told_apart
from parity.contract import OperationArrays, OperationEdit, ProgramOperation

__all__ = ["operands_of"]

MOST_TAKEN = 8
"""Values that a line takes from outside above which no two of them are exchanged."""

MOST_OPERATIONS = 40
"""Of one line, above which those of one kind exchange nothing."""

FURTHER = 3
"""Lines after one that take the same value, and are changed with it."""

LARGEST = 2**20
"""Elements of a value above which it is left as it is."""


@dataclass(frozen=True)
class _LineValue:
    """A value that a line takes from outside, in each of its turns."""

    values: tuple[NDArray[Any], ...]
    name: str


def operands_of(
    operations: Sequence[ProgramOperation], line: Sequence[int], turns: Sequence[Sequence[int]], names: NamedValues
) -> Iterator[tuple[int, OperationChange]]:
    """Yield what a line may be given otherwise.

    Args:
        operations: Of a program.
        line: Places of those that one line of it asks for.
        turns: The same for each time that the line is computed.
        names: Of values that the program is given.
    """
    taken = _taken(operations, turns, names)
    for one in taken:
        for lines in _lines(operations, line, one):
            yield from _laid(operations, lines, one)
    if len(taken) <= MOST_TAKEN:
        for one, two in itertools.combinations(taken, 2):
            if _alike(one, two):
                for lines in _lines(operations, line, one, two):
                    yield from _changed(operations, lines, one, two, both=True)
    yield from _between(operations, turns, names)
    yield from _at_one(operations, turns, taken, names)
    for one in taken:
        others = [two for two in taken if two is not one] if len(taken) <= MOST_TAKEN else []
        for two in (*others, *_before(operations, turns, one, names)):
            if _alike(one, two):
                for lines in _lines(operations, line, one):
                    yield from _changed(operations, lines, one, two, both=False)


def _taken(
    operations: Sequence[ProgramOperation], turns: Sequence[Sequence[int]], names: NamedValues
) -> list[_LineValue]:
    """Return the values that a line takes from outside, those of one element left out."""
    found: list[_LineValue] = []
    made: list[NDArray[Any]] = []
    for number, at in enumerate(turns[0]):
        for place, x in enumerate(operations[at].inputs):
            if not 1 < x.size <= LARGEST or any(_same(x, one) for one in made):
                continue
            if not any(_same(x, one.values[0]) for one in found):
                values = tuple(operations[turn[number]].inputs[place] for turn in turns)
                found.append(_LineValue(values, _name(operations, at, x, names)))
        made += operations[at].outputs
    return found


def _name(operations: Sequence[ProgramOperation], at: int, value: NDArray[Any], names: NamedValues) -> str:
    """Return what a value is: what made it, its name where it is given, or how it looks where it has none."""
    for source in sorted(operations[at].before, reverse=True):
        if any(_same(value, one) for one in operations[source].outputs):
            return made_by(operations, source)
    if known := [name for name, one in names.items() if one.shape == value.shape and np.array_equal(one, value)]:
        return known[0]
    if value.size == 1:
        return f"{value.item():.6g}"
    if operations[at].turns:
        return f"a value {list(value.shape)} that its loop is given"
    kind = {"f": "numbers", "i": "whole numbers", "u": "whole numbers", "b": "flags"}.get(value.dtype.kind, "values")
    return f"the given {kind} {list(value.shape)} that begin with {value.ravel()[:3].tolist()}"


def _before(
    operations: Sequence[ProgramOperation], turns: Sequence[Sequence[int]], one: _LineValue, names: NamedValues
) -> Iterator[_LineValue]:
    """Yield values of the same shape that are there before a line."""
    value = one.values[0]
    if value.dtype.kind == "f":
        yield from _nearest(operations, [turn[0] for turn in turns], value.shape)
        return
    found: list[NDArray[Any]] = []
    for source in sorted(operations[turns[0][0]].before, reverse=True):
        for x in (*operations[source].inputs, *operations[source].outputs):
            if x.shape == value.shape and x.dtype == value.dtype and not any(_same(x, other) for other in found):
                found.append(x)
                yield _LineValue((x,) * len(turns), _name(operations, source, x, names))
                if len(found) == NEAREST:
                    return


def _nearest(
    operations: Sequence[ProgramOperation], places: Sequence[int], shape: tuple[int, ...]
) -> Iterator[_LineValue]:
    """Yield values of a shape that are there before operations, the nearest first."""
    sources = [nearest(operations, at, shape) for at in places]
    for number, source in enumerate(sources[0]):
        if not all(
            number < len(each) and operations[each[number]].kind == operations[source].kind for each in sources
        ):
            continue
        values = tuple(operations[each[number]].outputs[0] for each in sources)
        yield _LineValue(values, made_by(operations, source))


def _alike(one: _LineValue, two: _LineValue) -> bool:
    a, b = one.values[0], two.values[0]
    return a.shape == b.shape and a.dtype == b.dtype and not np.array_equal(a, b)


def _lines(operations: Sequence[ProgramOperation], line: Sequence[int], *taken: _LineValue) -> Iterator[list[int]]:
    """Yield the operations of a line, and with those of the lines after it that take the same values."""
    yield list(line)
    own, later = operations[line[0]].place, dict[str, list[int]]()
    for at in range(line[0], len(operations)):
        one = operations[at]
        if one.place != own and any(_same(x, value) for x in one.inputs for each in taken for value in each.values):
            later.setdefault(one.place, [])
    for place in list(later)[:FURTHER]:
        later[place] = [at for at in range(line[0], len(operations)) if operations[at].place == place]
    lines = list(line)
    for place in list(later)[:FURTHER]:
        lines = sorted([*lines, *later[place]])
        yield lines


def _changed(
    operations: Sequence[ProgramOperation], lines: Sequence[int], one: _LineValue, two: _LineValue, *, both: bool
) -> Iterator[tuple[int, OperationChange]]:
    """Yield a value in place of another in lines; with `both`, the other in its place too."""
    edits: dict[int, OperationEdit] = {}
    for at in lines:
        ways: list[tuple[int, int, int]] = []
        for place, x in enumerate(operations[at].inputs):
            wanted = next((v for u, v in zip(one.values, two.values, strict=True) if _same(x, u)), None)
            if wanted is None and both:
                wanted = next((u for u, v in zip(one.values, two.values, strict=True) if _same(x, v)), None)
            if wanted is None:
                continue
            held = _held(operations, at, wanted)
            if held is None:
                return
            ways.append((place, *held))
        if ways:
            edits[at] = _taking(ways)
    if edits:
        first = min(edits)
        names = told_apart(operations, (one.name, two.name), (one.values[0], two.values[0]))
        words, other = (" and ".join(names), "each in place of the other") if both else names
        topic, rank = ("values exchanged", 1) if both else ("value taken", 2)
        own = edits.pop(first)
        yield first, OperationChange(topic, words, other, rank, own, edits, whole=True)


def _between(
    operations: Sequence[ProgramOperation], turns: Sequence[Sequence[int]], names: NamedValues
) -> Iterator[tuple[int, OperationChange]]:
    """Yield what two operations of one kind in a line take, exchanged, such as the weights of a sum."""
    turn = turns[0] if len(turns[0]) <= MOST_OPERATIONS else ()
    for (a, one), (b, two) in itertools.combinations(enumerate(turn), 2):
        first, second = operations[one], operations[two]
        if first.kind != second.kind or len(first.inputs) < 2:
            continue
        for i, j in itertools.product(range(len(first.inputs)), range(len(second.inputs))):
            x, y = first.inputs[i], second.inputs[j]
            if x.shape != y.shape or x.dtype != y.dtype or x.size == 0 or np.array_equal(x, y):
                continue
            edits: dict[int, OperationEdit] = {}
            for each in turns:
                here, there = operations[each[a]], operations[each[b]]
                own, other = _held(operations, each[a], there.inputs[j]), _held(operations, each[b], here.inputs[i])
                if own is not None and other is not None:
                    edits |= {each[a]: _taking([(i, *own)]), each[b]: _taking([(j, *other)])}
            if len(edits) == 2 * len(turns):
                words = f"{_name(operations, one, x, names)} and {_name(operations, two, y, names)}"
                yield one, OperationChange("values exchanged", f"{words} in two operations {first.kind}", "exchanged",
                                           1, edits.pop(one), edits, whole=True)  # fmt: skip


def _at_one(
    operations: Sequence[ProgramOperation],
    turns: Sequence[Sequence[int]],
    taken: Sequence[_LineValue],
    names: NamedValues,
) -> Iterator[tuple[int, OperationChange]]:
    """Yield another value in place of what a single operation of a line takes, in each turn of the line."""
    for number, first in enumerate(turns[0]):
        places = [turn[number] for turn in turns]
        for index, x in enumerate(operations[first].inputs):
            if not 1 < x.size <= LARGEST:
                continue
            own = _LineValue(tuple(operations[at].inputs[index] for at in places), _name(operations, first, x, names))
            near = _nearest(operations, places, x.shape) if x.dtype.kind == "f" else ()
            for two in (*near, *taken):
                if not _alike(own, two):
                    continue
                held = [_held(operations, at, value) for at, value in zip(places, two.values, strict=True)]
                if any(one is None for one in held):
                    continue
                edits = {
                    at: _taking([(index, *one)]) for at, one in zip(places, held, strict=True) if one is not None
                }
                yield (
                    first,
                    OperationChange("value taken", own.name, two.name, 2, edits.pop(first), edits, whole=True),
                )


def _held(operations: Sequence[ProgramOperation], at: int, value: NDArray[Any]) -> tuple[int, int] | None:
    """Return an operation that has a value before one begins, and at which place; itself as -1."""
    for place, x in enumerate(operations[at].inputs):
        if _same(x, value):
            return -1, place
    for source in sorted(operations[at].before, reverse=True):
        for place, x in enumerate((*operations[source].outputs, *operations[source].inputs)):
            if _same(x, value):
                return source, place
    return None


def _taking(ways: Sequence[tuple[int, int, int]]) -> OperationEdit:
    sources = tuple(sorted({source for _, source, _ in ways if source >= 0}))

    def given(inputs: OperationArrays, held: Sequence[OperationArrays]) -> OperationArrays:
        new = list(inputs)
        for place, source, index in ways:
            new[place] = inputs[index] if source < 0 else held[sources.index(source)][index]
        return tuple(new)

    return OperationEdit(given=given, sources=sources)


def _laid(
    operations: Sequence[ProgramOperation], lines: Sequence[int], one: _LineValue
) -> Iterator[tuple[int, OperationChange]]:
    """Yield a value that a line takes with axes of one extent exchanged, or turned about one; a mask otherwise."""
    value = one.values[0]
    slots = {
        at: places for at in lines
        if (places := [n for n, x in enumerate(operations[at].inputs) if any(_same(x, v) for v in one.values)])
    }  # fmt: skip
    if not slots:  # a value with numbers that are none is equal to nothing, itself included
        return

    def change(topic: str, other: str, rank: int, make: Callable[[NDArray[Any]], Any]) -> tuple[int, OperationChange]:
        edits = {at: _making(places, make) for at, places in slots.items()}
        first = min(edits)
        own = edits.pop(first)
        return first, OperationChange(topic, f"{one.name} as it is", other, rank, own, edits, whole=True)

    for a, b in itertools.combinations(range(value.ndim), 2):
        if value.shape[a] == value.shape[b] > 1:
            yield change("operand", f"axes {a} and {b} exchanged", 1, partial(np.swapaxes, axis1=a, axis2=b))
    if value.dtype.kind == "b":
        yield change("mask", "the other way round", 1, np.logical_not)
    elif value.dtype.kind == "f":
        held = np.unique(value)
        if held.size == 2 and (held == 0).any():
            yield change("mask", "its two numbers exchanged", 1, lambda x: np.unique(x).sum() - x)
        for axis in range(value.ndim):
            if value.shape[axis] > 1:
                yield change("operand", f"axis {axis} the other way round", 2, partial(np.flip, axis=axis))


def _making(places: Sequence[int], make: Callable[[NDArray[Any]], Any]) -> OperationEdit:
    def given(inputs: OperationArrays, held: object) -> OperationArrays:
        return tuple(np.asarray(make(x)) if place in places else x for place, x in enumerate(inputs))

    return OperationEdit(given=given)


def _same(a: NDArray[Any], b: NDArray[Any]) -> bool:
    return a.shape == b.shape and a.dtype == b.dtype and np.array_equal(a, b)
