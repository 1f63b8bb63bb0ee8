"""What lines that are computed several times may take otherwise: one time less, or a value of another time.

A loop that has one turn less, a step that takes its first slope in place of its second, an output that is read from
the state before it is updated: each is one value of a line in place of another, in each turn of the lines alike. A
value that the other program has not is replaced by one that it has.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from parity.checks.programs.edits import OperationChange, made_by, told_apart, turns_of
from parity.contract import OperationEdit, ProgramOperation

__all__ = ["left_turns", "passed_on"]

MOST_SOURCES = 12
"""Values that are tried in place of one."""


def left_turns(operations: Sequence[ProgramOperation]) -> Iterator[tuple[int, OperationChange]]:
    """Yield loops that end one or more turns earlier: what the last turns make is what the one before them made.

    Args:
        operations: Of a program.
    """
    for line in _lines(operations):
        turns = turns_of(operations, line, apart=False)
        count = len(turns)
        for less in range(1, count):
            for number in range(len(turns[0]) - 1, -1, -1):
                places = [turn[number] for turn in turns]
                outputs = operations[places[-1]].outputs
                if not _of_floats(outputs) or outputs[0].shape != operations[places[0]].outputs[0].shape:
                    continue
                source = places[count - less - 1]
                # a function that is called for two values is no loop: there no turn is made of the one before
                if not _taken_later(operations, line, outputs[0]) or not _follows(operations, source, places[-1]):
                    continue
                edits = {at: _putting(source) for at in places[count - less :]}
                last, own, other = (
                    places[-1],
                    f"{count} turns",
                    f"{count - less} turn{'s' if count - less > 1 else ''}",
                )
                edit = edits.pop(last)
                yield last, OperationChange("turns of a loop", own, other, 0, edit, edits, whole=True)


def passed_on(
    operations: Sequence[ProgramOperation], parted: frozenset[int]
) -> Iterator[tuple[int, OperationChange]]:
    """Yield values of a line in place of others in each turn: what the other program has, for what it has not.

    Args:
        operations: Of a program.
        parted: Operations whose results the other program has not.
    """
    users: dict[tuple[Any, ...], list[tuple[int, int]]] = {}
    makers: dict[tuple[Any, ...], list[int]] = {}
    for at, one in enumerate(operations):
        for place, x in enumerate(one.inputs):
            users.setdefault(_key(x), []).append((at, place))
        if _of_floats(one.outputs):
            makers.setdefault(_key(one.outputs[0]), []).append(at)
    for line in _lines(operations):
        turns = turns_of(operations, line)
        if len(turns) < 2 or not any(at in parted for turn in turns for at in turn):
            continue
        seen: set[tuple[Any, ...]] = set()
        for number, first in enumerate(turns[0]):
            for place, x in enumerate(operations[first].inputs):
                if x.dtype.kind != "f" or x.size < 2 or _key(x) in seen:
                    continue
                seen.add(_key(x))
                own = [
                    next((n for n in reversed(makers.get(_key(operations[turn[number]].inputs[place]), []))
                          if n in operations[turn[number]].before), -1)
                    for turn in turns
                ]  # fmt: skip
                if min(own) >= 0 and own[0] not in turns[0]:
                    yield from _otherwise(operations, turns, number, place, own, parted, users)


def _otherwise(
    operations: Sequence[ProgramOperation], turns: Sequence[Sequence[int]], number: int, place: int,
    own: Sequence[int], parted: frozenset[int], users: Mapping[tuple[Any, ...], Sequence[tuple[int, int]]],
) -> Iterator[tuple[int, OperationChange]]:  # fmt: skip
    """Yield other values in place of one that a line takes, in it alone, and in all that takes the same."""
    values = [operations[turn[number]].inputs[place] for turn in turns]
    name = made_by(operations, own[0])
    for words, sources in _sources(operations, turns, number, own, parted, values[0]):
        for wide in (False, True):
            edits: dict[int, OperationEdit] = {}
            for turn, value, lies in zip(turns, values, sources, strict=True):
                slots: dict[int, list[int]] = {}
                for at, slot in users.get(_key(value), ()):
                    if (at >= turn[0] if wide else at in turn) and lies[0] in operations[at].before:
                        slots.setdefault(at, []).append(slot)
                edits |= {at: _taking(some, lies) for at, some in slots.items()}
            if edits:
                first = min(edits)
                source = operations[sources[0][0]]
                held = (*source.outputs, *source.inputs)[sources[0][1]]
                own_words, other = told_apart(operations, (name, words), (values[0], held))
                edit = edits.pop(first)
                yield first, OperationChange("value taken", own_words, other, 1, edit, edits, whole=True)


def _sources(
    operations: Sequence[ProgramOperation], turns: Sequence[Sequence[int]], number: int, own: Sequence[int],
    parted: frozenset[int], value: NDArray[Any],
) -> Iterator[tuple[str, list[tuple[int, int]]]]:  # fmt: skip
    """Yield what may be taken in place of a value, in words, and where it lies in each turn."""
    found = 0
    for source in sorted(operations[turns[0][number]].before, reverse=True):
        one = operations[source]
        distance = turns[0][number] - source
        if not _of_floats(one.outputs) or one.outputs[0].shape != value.shape or source in own:
            continue
        moved = [turn[number] - distance for turn in turns]
        alike = all(at >= 0 and operations[at].kind == one.kind and operations[at].place == one.place
                    and operations[at].outputs[0].shape == value.shape for at in moved)  # fmt: skip
        # what the other has, for what it has not
        has = any(a in parted and b not in parted for a, b in zip(own, moved, strict=True))
        if alike and has and not _same(one.outputs[0], value):
            yield made_by(operations, source), [(at, 0) for at in moved]
            found += 1
        if found == MOST_SOURCES:
            break
    if (before := _before_update(operations, own)) is not None:
        words = f"{made_by(operations, own[0])} in the turn before"
        yield words, before


def _before_update(operations: Sequence[ProgramOperation], own: Sequence[int]) -> list[tuple[int, int]] | None:
    """Return where a state lies that is updated in each turn, before that: operations, and which of their inputs.

    The state of a turn is made of that of the turn before; what stands in its place in the first is where it begins.
    """
    state = [operations[at].outputs[0] for at in own]
    for back in range(own[0], max(own[0] - 12, -1), -1):
        distance = own[0] - back
        places = [at - distance for at in own]
        if any(operations[at].kind != operations[back].kind or operations[at].place != operations[back].place
               for at in places):  # fmt: skip
            continue
        for index, x in enumerate(operations[back].inputs):
            held = [operations[at].inputs[index] if index < len(operations[at].inputs) else x for at in places]
            if x.shape == state[0].shape and all(_same(held[n], state[n - 1]) for n in range(1, len(held))):
                return [(at, len(operations[at].outputs) + index) for at in places]
    return None


def _lines(operations: Sequence[ProgramOperation]) -> list[list[int]]:
    lines: dict[str, list[int]] = {}
    for at, one in enumerate(operations):
        lines.setdefault(one.place, []).append(at)
    return list(lines.values())


def _of_floats(outputs: Sequence[NDArray[Any]]) -> bool:
    return len(outputs) == 1 and outputs[0].dtype.kind == "f" and outputs[0].size > 1


def _taken_later(operations: Sequence[ProgramOperation], line: Sequence[int], value: NDArray[Any]) -> bool:
    """Return whether an operation takes a value after all turns of a line."""
    return any(any(_same(x, value) for x in one.inputs) for one in operations[line[-1] + 1 :])


def _follows(operations: Sequence[ProgramOperation], source: int, target: int) -> bool:
    """Return whether what one operation makes goes into another, however many operations lie between.

    Values are known by their numbers: such as are one number everywhere, as zeros are, may be any others.
    """
    reached = {_key(y) for y in operations[source].outputs if _varies(y)}
    for one in operations[source + 1 : target + 1]:
        if any(_key(x) in reached for x in one.inputs if _varies(x)):
            if one is operations[target]:
                return True
            reached |= {_key(y) for y in one.outputs if _varies(y)}
    return False


def _varies(value: NDArray[Any]) -> bool:
    return value.size > 1 and bool((value != value.flat[0]).any())


def _key(value: NDArray[Any]) -> tuple[Any, ...]:
    return value.shape, value.dtype.kind, np.ascontiguousarray(value).tobytes()


def _putting(source: int) -> OperationEdit:
    return OperationEdit(after=lambda outputs, inputs, held: (held[0][0],), sources=(source,))


def _taking(slots: Sequence[int], source: tuple[int, int]) -> OperationEdit:
    def given(inputs: Any, held: Any) -> Any:
        return tuple(held[0][source[1]] if n in slots else x for n, x in enumerate(inputs))

    return OperationEdit(given=given, sources=(source[0],))


def _same(a: NDArray[Any], b: NDArray[Any]) -> bool:
    return a.shape == b.shape and a.dtype == b.dtype and np.array_equal(a, b)
