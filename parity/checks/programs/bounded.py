"""A bound or a condition that a change keeps from acting: what is true of the program is that it is left out.

A change before a `minimum` may make one of its two values the smaller one everywhere. Then the other value, which was
changed, goes into nothing, and any change that makes it large enough would do as well. A comparison of a value with
itself is as true everywhere: that the condition is absent is what the change comes to.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from parity.checks.programs.edits import FloatNumbers, OperationChange
from parity.contract import OperationEdit, ProgramOperation, TracedProgram

__all__ = ["kept_from_acting"]


def kept_from_acting(
    programs: Sequence[TracedProgram], edits: Mapping[int, OperationEdit], *, conditions: bool = True
) -> Iterator[tuple[int, OperationChange]]:
    """Yield bounds and conditions left out that act in a program as it is, and with a change in none of its draws.

    Args:
        programs: One at each draw of leaves and inputs.
        edits: The change.
        conditions: Whether conditions are looked at too.
    """
    first = min(edits)
    behind = [at for at in range(first + 1, len(programs[0].operations)) if at not in edits]
    bounds = [(at, place) for at in behind for place in _sides(programs[0].operations[at])]
    decided = [at for at in behind if conditions and _decides(programs[0].operations[at])]
    if not (bounds or decided):
        return
    changed = [program.changed(edits) for program in programs]
    yield from _conditions(programs, changed, decided)
    held: dict[tuple[str, str, int], list[int]] = {}
    for at, place in bounds:
        if any(program is None or not _gives(program.operations[at], place) for program in changed):
            continue
        if all(_gives(program.operations[at], place) for program in programs):
            continue
        one = programs[0].operations[at]
        held.setdefault((one.place, one.kind, place), []).append(at)
    for (_, kind, place), places in held.items():
        left = OperationEdit(after=lambda outputs, inputs, sources, place=place: (inputs[place],))  # type: ignore[misc]
        rest = dict.fromkeys(places[1:], left)
        yield places[0], OperationChange("left out", f"{kind} is applied", "not", 1, left, rest, whole=True)


def _conditions(
    programs: Sequence[TracedProgram], changed: Sequence[TracedProgram | None], conditions: Sequence[int]
) -> Iterator[tuple[int, OperationChange]]:
    """Yield conditions that hold everywhere, or nowhere, with a change, and as the program is do not."""
    for value in (True, False):
        held: dict[tuple[str, str], list[int]] = {}
        for at in conditions:
            if all(program is not None and (program.operations[at].outputs[0] == value).all() for program in changed):
                held.setdefault((programs[0].operations[at].place, programs[0].operations[at].kind), []).append(at)
        for (_, kind), places in held.items():
            edit = OperationEdit(after=lambda o, i, s, v=value: (np.full_like(o[0], v),))  # type: ignore[misc]
            words = "set everywhere" if value else "set nowhere"
            rest = dict.fromkeys(places[1:], edit)
            yield places[0], OperationChange("mask", f"{kind} as it is", words, 1, edit, rest)


def _decides(one: ProgramOperation) -> bool:
    """Return whether an operation gives truths of which some hold and others do not."""
    if len(one.outputs) != 1 or one.outputs[0].dtype.kind != "b":
        return False
    return bool(one.outputs[0].any() and not one.outputs[0].all())


def _sides(one: ProgramOperation) -> list[int]:
    """Return the inputs of which an operation gives each number or another one: a bound, or a choice of two."""
    if len(one.outputs) != 1 or one.outputs[0].dtype.kind != "f" or one.outputs[0].size < 2:
        return []
    y = one.outputs[0]
    floats = [at for at, x in enumerate(one.inputs) if x.dtype.kind == "f"]
    spread = [np.broadcast_to(one.inputs[at], y.shape) for at in floats if _spreads(one.inputs[at], y)]
    spread += [np.full(y.shape, number) for number in (*one.numbers.values(), 0.0)]  # ReLU has no number of its own
    if not np.any([x == y for x in spread], 0).all():
        return []
    return [at for at in floats if one.inputs[at].shape == y.shape]


def _gives(one: ProgramOperation, place: int) -> bool:
    x: NDArray[Any] | FloatNumbers
    x, y = one.inputs[place], one.outputs[0]
    return x.shape == y.shape and np.array_equal(x, y)


def _spreads(x: NDArray[Any], y: NDArray[Any]) -> bool:
    try:
        return np.broadcast_shapes(x.shape, y.shape) == y.shape
    except ValueError:
        return False
