"""A bound that a change keeps from acting: what is true of the program is that the bound is left out.

A change before a `minimum` may make one of its two values the smaller one everywhere. Then the other value, which was
changed, goes into nothing, and any change that makes it large enough would do as well.
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
    programs: Sequence[TracedProgram], edits: Mapping[int, OperationEdit]
) -> Iterator[tuple[int, OperationChange]]:
    """Yield bounds left out that act in a program as it is, and with a change in none of its draws.

    Args:
        programs: One at each draw of leaves and inputs.
        edits: The change.
    """
    first = min(edits)
    bounds = [
        (at, place) for at in range(first + 1, len(programs[0].operations)) if at not in edits
        for place in _sides(programs[0].operations[at])
    ]  # fmt: skip
    if not bounds:
        return
    changed = [program.changed(edits) for program in programs]
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
