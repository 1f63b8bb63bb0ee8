"""An operation with a second value, such as a gate, a scale or a bias, that is done elsewhere in its line: the order.

A reset gate before or after the product of matrices, a scale before or after the bias: both are one exchange. The
second value is kept where the operation stood, and taken where it is done then. A factor of one number, such as the
weight of one class that is given to the other, is taken at another operation of its line.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from parity.checks.programs.edits import FloatNumbers, OperationChange, computed, equal
from parity.contract import OperationArrays, OperationEdit, ProgramOperation

__all__ = ["exchanges_of", "moved_scales"]

FURTHEST = 3
"""Operations behind which one may be done, each of which is given what the one before makes."""

_FUNCTIONS: dict[str, Callable[[FloatNumbers, FloatNumbers], Any]] = {
    "times": np.multiply, "plus": np.add, "less": np.subtract, "over": np.divide,
}  # fmt: skip


def exchanges_of(
    operations: Sequence[ProgramOperation], line: Sequence[int], turns: Sequence[Sequence[int]]
) -> Iterator[tuple[int, OperationChange]]:
    """Yield an operation done after those that follow it: at all places of a line alike, or at one of them.

    Args:
        operations: Of a program.
        line: Places of those that one line of it asks for.
        turns: The same for each time that the line is computed.
    """
    alike = {operations[at].kind: [two for two in line if operations[two].kind == operations[at].kind] for at in line}
    single = [[turn[number] for turn in turns] for number in range(len(turns[0]))]
    for places in (*alike.values(), *(one for one in single if one not in alike.values())):
        one = operations[places[0]]
        if len(one.inputs) != 2 or any(x.dtype.kind != "f" for x in one.inputs):
            continue
        for value, further in itertools.product((0, 1), (*range(1, FURTHEST + 1), 0)):
            found = [_later(operations, place, value, further) for place in places]
            if found[0] is not None:
                made = [each[1] for each in found if each is not None]
                edits = {place: edit for each in made for place, edit in each.items()}
                if len(edits) < sum(map(len, made)):
                    continue  # the one is done where the other is left: one of the two values would be lost
                own = edits.pop(places[0])
                yield places[0], OperationChange("order", f"{one.kind} before {found[0][0]}", f"after {found[0][0]}",
                                                 1, own, edits, whole=True)  # fmt: skip


def _later(
    operations: Sequence[ProgramOperation], at: int, value: int, further: int
) -> tuple[str, dict[int, OperationEdit]] | None:
    """Return behind which operations one is done, and the edits for it; None where it cannot be.

    Args:
        operations: Of a program.
        at: Place of the operation.
        value: Which of its two inputs is taken later.
        further: Operations behind which it is done; 0 for behind the next one and, beside it, with what is added in
            the same line, as a gate is taken with the bias of a product of matrices.
    """
    one = operations[at]
    if len(one.inputs) != 2 or one.inputs[1 - value].shape != one.outputs[0].shape:
        return None
    function = _function(one.inputs[1 - value], one.inputs[value], one.outputs[0], value)
    if function is None:
        return None
    kinds: list[str] = []
    end = at
    for _ in range(further or 1):
        given = operations[end].outputs[0]
        end = next((n for n in range(end + 1, len(operations)) if _takes(operations[n], given)), -1)
        if end < 0 or len(operations[end].outputs) != 1 or operations[end].outputs[0].dtype.kind != "f":
            return None
        kinds.append(operations[end].kind)
    if not _reaches(one.inputs[value], operations[end].outputs[0]):
        return None
    kept: list[FloatNumbers] = []

    def left(outputs: OperationArrays, inputs: OperationArrays, sources: object) -> OperationArrays:
        kept[:] = [inputs[value]]
        return (inputs[1 - value],)

    def taken(outputs: OperationArrays, inputs: OperationArrays, sources: object) -> OperationArrays:
        return (computed(function, outputs[0], kept[0]),)

    edits = {at: OperationEdit(after=left), end: OperationEdit(after=taken)}
    if further == 0:
        added = _added(operations, at, end) if function is np.multiply else None
        if added is None:
            return None
        place, index = added

        def both(inputs: OperationArrays, sources: object) -> OperationArrays:
            return tuple(computed(function, x, kept[0]) if n == index else x for n, x in enumerate(inputs))

        edits[place] = OperationEdit(given=both)
        kinds.append("what is added to it")
    return " and ".join(kinds), edits


def _added(operations: Sequence[ProgramOperation], at: int, end: int) -> tuple[int, int] | None:
    """Return the last sum of a line whose one operand the line takes from outside, and which: such as a bias."""
    line = operations[at].place
    places = [n for n in range(end + 1, len(operations)) if operations[n].place == line]
    places = list(itertools.takewhile(lambda n: n - end <= 2 * FURTHEST, places))
    made = [operations[n].outputs[0] for n in (at, end, *places) if operations[n].kind != "broadcast_in_dim"]
    for place in reversed(places):
        one = operations[place]
        if one.kind.strip("_") not in ("add", "iadd", "radd") or len(one.inputs) != 2:
            continue
        for index, x in enumerate(one.inputs):
            own, other = (any(np.array_equal(value, y) for y in made) for value in (x, one.inputs[1 - index]))
            if other and not own and x.dtype.kind == "f" and _reaches(x, operations[end].outputs[0]):
                return place, index
    return None


def _function(
    kept: FloatNumbers, later: FloatNumbers, made: FloatNumbers, value: int
) -> Callable[[FloatNumbers, FloatNumbers], Any] | None:
    """Return what makes an output of the input that is kept and the one that is taken later."""
    if not _reaches(later, kept):
        return None
    for word, function in _FUNCTIONS.items():
        if (value == 1 or word in ("times", "plus")) and equal(computed(function, kept, later), made):
            return function
    return None


def _reaches(value: FloatNumbers, other: FloatNumbers) -> bool:
    """Return whether a value is spread over another without making it larger."""
    try:
        return np.broadcast_shapes(value.shape, other.shape) == other.shape
    except ValueError:
        return False


def _takes(operation: ProgramOperation, value: FloatNumbers) -> bool:
    return any(one.shape == value.shape and np.array_equal(one, value) for one in operation.inputs)


def moved_scales(
    operations: Sequence[ProgramOperation], turns: Sequence[Sequence[int]]
) -> Iterator[tuple[int, OperationChange]]:
    """Yield each factor of one number at each other operation of its line.

    Args:
        operations: Of a program.
        turns: Places of the operations of a line, for each time that it is computed.
    """
    for number, at in enumerate(turns[0]):
        factor = _factor(operations[at])
        if factor is None:
            continue
        shape = operations[at].outputs[0].shape
        for other, two in enumerate(turns[0]):
            made = operations[two].outputs
            if other == number or len(made) != 1 or made[0].dtype.kind != "f" or made[0].shape != shape:
                continue
            edits = {}
            for turn in turns:
                edits[turn[number]] = _times(1.0 / factor)
                edits[turn[other]] = _times(factor)
            own = edits.pop(at)
            words = f"{factor:.6g} times the result of {operations[at].kind}"
            moved = f"{factor:.6g} times that of {operations[two].kind}, in the same line"
            yield at, OperationChange("factor", words, moved, 2, own, edits, whole=True)


def _factor(one: ProgramOperation) -> float | None:
    """Return the number that an operation multiplies by; None where it does not."""
    if len(one.outputs) != 1 or one.outputs[0].dtype.kind != "f" or one.outputs[0].size < 2:
        return None
    full = next((x for x in one.inputs if x.shape == one.outputs[0].shape and x.dtype.kind == "f"), None)
    if full is None or not np.abs(full).max() > 0.0:
        return None
    place = np.unravel_index(int(np.abs(full).argmax()), full.shape)
    with np.errstate(all="ignore"):  # a mask is filled with what has no ratio
        factor = float(one.outputs[0][place] / full[place])
    told = np.isfinite(factor) and factor not in (0.0, 1.0, -1.0) and equal(full * factor, one.outputs[0])
    return factor if told else None


def _times(factor: float) -> OperationEdit:
    def after(outputs: OperationArrays, inputs: OperationArrays, sources: object) -> OperationArrays:
        return (outputs[0] * factor,)

    return OperationEdit(after=after)
