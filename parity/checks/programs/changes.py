"""What a port may do otherwise at one operation: the table of changes, each with the words for it.

A change says what an operation does as it is, and what it would do changed. The narrower ones come first: another
function, setting or order in place of the one that is there, then what is left out, then what is added.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from parity.checks.programs.edits import (
    FEWEST_NUMBERS,
    FloatNumbers,
    NamedValues,
    OperationChange,
    computed,
    edit_of,
    equal,
    nearest,
    turns_of,
)
from parity.checks.programs.entropies import entropies_of
from parity.checks.programs.exchanges import exchanges_of, moved_scales
from parity.checks.programs.functions import ACTIVATIONS
from parity.checks.programs.insertions import insertions_of
from parity.checks.programs.norms import norms_of
from parity.checks.programs.operands import operands_of
from parity.checks.programs.reductions import reductions_of
from parity.checks.programs.repeated import repeated
from parity.checks.programs.reread import pairs_taken, reread
from parity.checks.programs.shared_rows import shared_rows
from parity.checks.programs.weights import weighed
from parity.contract import OperationEdit, ProgramOperation

__all__ = ["changes_of", "changes_of_line"]

LARGEST = 2**20
"""Elements of a value above which no change of it is tried."""


def changes_of(operations: Sequence[ProgramOperation], at: int) -> Iterator[OperationChange]:
    """Yield what may be otherwise at an operation.

    Args:
        operations: Of a program.
        at: Place of the operation.
    """
    one = operations[at]
    if any(a.size > LARGEST for a in one.outputs):
        return
    yield from _strides_moved(operations, at)
    for words, settings in one.others:
        own, _, other = words.rpartition("|")
        edit = OperationEdit(settings=settings)
        yield OperationChange("setting", f"{one.kind} with {own}", other, 0, edit, words=words)
    yield from _exchanges(operations, at)
    if len(one.outputs) != 1:
        yield from _several(one)
        return
    yield from shared_rows(one)
    if one.outputs[0].dtype.kind == "b":
        yield from _conditions(one)
    if one.outputs[0].dtype.kind != "f":
        return
    yield from norms_of(one)
    yield from entropies_of(one)
    yield from _functions(operations, at)
    yield from _arithmetic(one)
    yield from reductions_of(one)
    yield from _joined(one)
    yield from _left_out(one)
    yield from _neutral(one)
    yield from _laid(one)
    yield from insertions_of(operations, at)


def changes_of_line(
    operations: Sequence[ProgramOperation], line: Sequence[int], names: NamedValues
) -> Iterator[tuple[int, OperationChange]]:
    """Yield what may be otherwise in a line as a whole: what it is given, and the order of its operations.

    Args:
        operations: Of a program.
        line: Places of those that one line of it asks for.
        names: Of values that it is given.

    Yields:
        The place of the operation at which the edit of a change is made, and the change.
    """
    turns = turns_of(operations, line)
    yield from exchanges_of(operations, line, turns)
    yield from moved_scales(operations, turns)
    yield from pairs_taken(operations, line)
    yield from reread(operations, line)
    yield from repeated(operations, line)
    yield from weighed(operations, line)
    yield from operands_of(operations, line, turns, names)


def _strides_moved(operations: Sequence[ProgramOperation], at: int) -> Iterator[OperationChange]:
    """Yield the stride of a convolution at another one of its kind, as a block has it at its first or its second.

    Without this a dilation is told: of every second place, the second of two that are two apart takes the same.
    """
    one = operations[at]
    for words, settings in one.others:
        if not words.startswith("stride "):
            continue
        own, other = words.removeprefix("stride ").split("|")
        for place, two in enumerate(operations):
            theirs = dict(two.others).get(f"stride {other}|{own}") if two.kind == one.kind else None
            if theirs is not None:
                first, second = f"stride {own} and {other} at {two.place}", f"{other} and {own}"
                rest = {place: OperationEdit(settings=theirs)}
                yield OperationChange("setting", f"{one.kind} with {first}", second, 0,
                                      OperationEdit(settings=settings), rest)  # fmt: skip


def _functions(operations: Sequence[ProgramOperation], at: int) -> Iterator[OperationChange]:
    """Yield other functions in place of the one that makes the output of an input, or of a value before."""
    one = operations[at]
    y = one.outputs[0]
    givens: list[tuple[int | None, FloatNumbers]] = [
        (place, x) for place, x in enumerate(one.inputs) if x.shape == y.shape and x.dtype.kind == "f"
    ]
    for place, x in givens:
        if (own := _function(x, y)) and place is not None:
            for name, function in ACTIVATIONS.items():
                if name not in (own, "nothing") and np.unique(computed(function, x)).size >= FEWEST_NUMBERS:
                    edit = OperationEdit(after=lambda o, i, s, f=function, p=place: (computed(f, i[p]),))  # type: ignore[misc]
                    yield OperationChange("activation", own, name, 0, edit)
            yield from _before(operations, at, place, own)
            return
    for source in nearest(operations, at, y.shape):
        if own := _function(operations[source].outputs[0], y):
            for name, function in ACTIVATIONS.items():
                if name != own:
                    edit = OperationEdit(after=lambda o, i, s, f=function: (computed(f, s[0][0]),), sources=(source,))  # type: ignore[misc]
                    yield OperationChange("activation", own, name, 0, edit)
            return


def _before(
    operations: Sequence[ProgramOperation], at: int, place: int, own: str
) -> Iterator[OperationChange]:  # fmt: skip
    """Yield a function that is applied before the operation that makes what it is given, such as a norm."""
    x = operations[at].inputs[place]
    source = next((n for n in sorted(operations[at].before, reverse=True) if any(
        y.shape == x.shape and np.array_equal(y, x) for y in operations[n].outputs)), None)  # fmt: skip
    if source is None or own == "nothing":
        return
    maker = operations[source]
    main = next((n for n, a in enumerate(maker.inputs) if a.size == x.size and a.dtype.kind == "f"), None)
    if main is None or len(maker.outputs) != 1 or np.unique(maker.inputs[main]).size < FEWEST_NUMBERS:
        return
    function = ACTIVATIONS[own]
    given = OperationEdit(
        given=lambda inputs, held: tuple(computed(function, a) if n == main else a for n, a in enumerate(inputs))
    )
    edit = OperationEdit(after=lambda o, i, s: (i[place],))
    yield OperationChange("order", f"{maker.kind} before {own}", f"after {own}", 1, edit, {source: given})


def _function(x: FloatNumbers, y: FloatNumbers) -> str:
    """Return the name of the function that makes one of the other; empty where none does, or nothing is done."""
    if equal(x, y) or np.unique(x).size < FEWEST_NUMBERS:
        return ""  # of zeros and ones many functions make the same
    for name, function in ACTIVATIONS.items():
        if equal(computed(function, x), y):
            return name
    return ""


_BINARY: dict[str, Callable[[FloatNumbers, FloatNumbers], Any]] = {
    "a + b": np.add, "a - b": np.subtract, "b - a": lambda a, b: b - a, "a * b": np.multiply, "a / b": np.divide,
    "b / a": lambda a, b: b / a, "the larger": np.maximum, "the smaller": np.minimum,
}  # fmt: skip


def _arithmetic(one: ProgramOperation) -> Iterator[OperationChange]:
    """Yield other arithmetic of two inputs, and each of them turned over where it is a square matrix."""
    y = one.outputs[0]
    floats = [at for at, x in enumerate(one.inputs) if x.dtype.kind == "f"]
    if len(floats) != 2:
        return
    i, j = floats
    if one.numbers:  # of a number others are solved for
        return
    with np.errstate(all="ignore"):
        try:
            made = {word: np.asarray(f(one.inputs[i], one.inputs[j])) for word, f in _BINARY.items()}
        except ValueError:
            made = {}
        own = next((word for word, value in made.items() if equal(value, y)), "")
    given = [x for x in (one.inputs[i], one.inputs[j]) if _spreads(x, y)]
    for word, function in _BINARY.items() if own else ():
        if word != own and not equal(made[word], y):
            if any(equal(np.broadcast_to(x, y.shape), np.broadcast_to(made[word], y.shape)) for x in given):
                continue  # one of the two is the larger everywhere: that the other is left out says what is seen
            edit = OperationEdit(after=lambda o, a, s, f=function: (computed(f, a[i], a[j]),))  # type: ignore[misc]
            yield OperationChange("arithmetic", own, word, 1, edit)
    if one.kind in ("dot_general", "matmul", "linear", "mm", "bmm", "__matmul__"):
        a, b = one.inputs[i], one.inputs[j]
        if b.ndim == 2 and b.shape[0] == b.shape[1] and a.shape[-1] == b.shape[0]:
            own_b = b if equal(a @ b, y) else b.T
            if equal(a @ own_b, y):
                edit = OperationEdit(after=lambda o, v, s, turn=own_b is b: (v[i] @ (v[j].T if turn else v[j]),))  # type: ignore[misc]
                yield OperationChange("weight", "as it is", "transposed", 0, edit)


def _spreads(x: NDArray[Any], y: NDArray[Any]) -> bool:
    try:
        return np.broadcast_shapes(x.shape, y.shape) == y.shape
    except ValueError:
        return False


def _joined(one: ProgramOperation) -> Iterator[OperationChange]:
    """Yield other orders of what is joined."""
    y, count = one.outputs[0], len(one.inputs)
    if not 2 <= count <= 4 or sum(x.size for x in one.inputs) != y.size:
        return
    for axis in range(y.ndim):
        try:
            fits = equal(np.concatenate(one.inputs, axis), y)
        except ValueError:
            continue
        for order in itertools.permutations(range(count)) if fits else ():
            if order != tuple(range(count)):
                edit = OperationEdit(after=lambda o, i, s, w=order, a=axis: (np.concatenate([i[p] for p in w], a),))  # type: ignore[misc]
                yield OperationChange("order", "parts joined as they are", f"in the order {list(order)}", 1, edit)
        if fits:
            return


def _several(one: ProgramOperation) -> Iterator[OperationChange]:
    """Yield other orders of what is cut into parts of one shape."""
    shapes = {a.shape for a in one.outputs}
    if not 2 <= len(one.outputs) <= 4 or len(shapes) != 1:
        return
    count = len(one.outputs)
    for order in itertools.permutations(range(count)):
        if order != tuple(range(count)):
            edit = OperationEdit(after=lambda o, i, s, w=order: tuple(o[p] for p in w))  # type: ignore[misc]
            yield OperationChange("order", f"the {count} parts as they are", f"in the order {list(order)}", 1, edit)


def _exchanges(operations: Sequence[ProgramOperation], at: int) -> Iterator[OperationChange]:
    """Yield other orders of the places that operations of one kind take of the same value, such as gates."""
    one = operations[at]
    if not one.exchanged:
        return
    alike = [
        other for other, two in enumerate(operations)
        if two.kind == one.kind and two.exchanged and two.outputs[0].shape == one.outputs[0].shape
        and two.inputs[0].shape == one.inputs[0].shape and np.array_equal(two.inputs[0], one.inputs[0])
    ]  # fmt: skip
    # each layer of a stack may take them anew, as both ends of the edges of a graph
    ways = [operations[other].exchanged for other in alike]
    numbers = [next(first for first, one in enumerate(ways) if _is_one(one, way)) for way in ways]
    parts = sorted(set(numbers))
    count = len(parts)
    # of two the first may be none that anything is changed at; of more that would be many trials
    if not 2 <= count <= 4 or (count > 2 and at != alike[0]):
        return
    for order in itertools.permutations(range(count)):
        if order != tuple(range(count)):
            edits = {
                other: OperationEdit(settings=ways[parts[order[parts.index(number)]]])
                for other, number in zip(alike, numbers, strict=True)
            }
            mine = edits.pop(at)
            yield OperationChange(
                "order", f"the {count} parts as they are", f"in the order {list(order)}", 1, mine, edits
            )


def _is_one(first: Any, second: Any) -> bool:
    """Return whether two places are one; of arrays, which have no one answer, whether they are one object."""
    try:
        return first is second or bool(first == second)
    except (RuntimeError, ValueError):
        return all(first[key] is second.get(key) for key in first)


def _conditions(one: ProgramOperation) -> Iterator[OperationChange]:
    """Yield other masks in place of a condition."""
    y = one.outputs[0]
    if y.any() and not y.all():  # of a mask that is set everywhere that is one of the others
        yield OperationChange("mask", f"{one.kind} as it is", "the other way round", 1, edit_of(np.logical_not))
    for value in (True, False):
        yield OperationChange("mask", f"{one.kind} as it is", "set everywhere" if value else "set nowhere", 1,
                              edit_of(lambda y, v=value: np.full_like(y, v)))  # fmt: skip
    yield from _laid(one)
    if y.ndim >= 2 and y.shape[-1] == y.shape[-2] > 1:
        for by in (-1, 1):
            moved = OperationEdit(after=lambda o, i, s, b=by: (_shifted(o[0], b),))  # type: ignore[misc]
            where = "behind" if by > 0 else "ahead"
            yield OperationChange("mask", f"{one.kind} as it is", f"one place further {where}", 0, moved)


def _shifted(mask: NDArray[Any], by: int) -> NDArray[Any]:
    """Return a mask of places by places whose columns lie one further; of no step one at the edge is repeated."""
    n = mask.shape[-1]
    for offset in range(-2, 3):  # of a causal mask the edge is what its step gives
        for step in (np.tri(n, k=offset, dtype=bool), ~np.tri(n, k=offset, dtype=bool)):
            if np.array_equal(np.broadcast_to(step, mask.shape), mask):
                other = np.tri(n, k=offset + by, dtype=bool)
                return np.broadcast_to(other if step[-1, 0] else ~other, mask.shape).copy()
    moved = np.roll(mask, by, -1)
    at = 0 if by > 0 else -1
    moved[..., at] = mask[..., at]
    return moved


def _left_out(one: ProgramOperation) -> Iterator[OperationChange]:
    y = one.outputs[0]
    for place, x in enumerate(one.inputs):
        if x.dtype.kind == "f" and x.size > 0 and not (x.shape == y.shape and np.array_equal(x, y)):
            try:
                fits = np.broadcast_shapes(x.shape, y.shape) == y.shape
            except ValueError:
                fits = False
            if fits and (x.size == y.size or x.size == 1):
                edit = OperationEdit(after=lambda o, i, s, p=place: (np.broadcast_to(i[p], o[0].shape),))  # type: ignore[misc]
                yield OperationChange("left out", f"{one.kind} is applied", "not", 1 + (x.size == 1), edit)
            elif fits:  # spread over what it is a factor or a summand of
                edit = OperationEdit(after=lambda o, i, s, p=place: (np.broadcast_to(i[p], o[0].shape),))  # type: ignore[misc]
                yield OperationChange("left out", f"{one.kind} is applied", "not", 2, edit)
    if y.size > 1:
        yield OperationChange("left out", f"{one.kind} is applied", "zeros in its place", 3, edit_of(np.zeros_like))
        yield OperationChange("left out", f"{one.kind} is applied", "ones in its place", 3, edit_of(np.ones_like))


def _neutral(one: ProgramOperation) -> Iterator[OperationChange]:
    """Yield a product or sum of a value and a number without the value: such as where an episode ends, in a rate."""
    y = one.outputs[0]
    full = [(place, x) for place, x in enumerate(one.inputs) if x.dtype.kind == "f" and x.shape == y.shape]
    if y.size < 2 or len(full) != 1:
        return
    place, x = full[0]
    good = x != 0.0
    with np.errstate(all="ignore"):
        factor, term = y[good] / x[good], y - x
    for word, value, number in (("factor", 1.0, factor), ("term", 0.0, term)):
        if number.size and np.ptp(number) <= 1e-12 * np.abs(number).max() and not equal(x, y):
            edit = OperationEdit(given=lambda i, s, p=place, v=value: tuple(  # type: ignore[misc]
                np.full_like(a, v) if n == p else a for n, a in enumerate(i)))  # fmt: skip
            own = f"{one.kind} of a value and the {word} {float(np.median(number)):.6g}"
            yield OperationChange("left out", own, f"the {word} alone", 2, edit)
            return


def _laid(one: ProgramOperation) -> Iterator[OperationChange]:
    """Yield the output with axes of one extent exchanged, turned about an axis, or moved by a place."""
    y = one.outputs[0]
    for a, b in itertools.combinations(range(y.ndim), 2):
        if y.shape[a] == y.shape[b] > 1:
            yield OperationChange("layout", f"the result of {one.kind} as it is", f"axes {a} and {b} exchanged", 2,
                                  edit_of(lambda y, a=a, b=b: y.swapaxes(a, b)))  # fmt: skip
    own = f"the result of {one.kind} as it is"
    for axis in range(y.ndim):
        if y.shape[axis] > 1:
            turned = edit_of(lambda y, a=axis: np.flip(y, a))
            yield OperationChange("layout", own, f"axis {axis} the other way round", 2, turned)
            for by in (-1, 1):
                moved = edit_of(lambda y, a=axis, b=by: np.roll(y, b, a))
                yield OperationChange("layout", own, f"moved by {by} along axis {axis}", 2, moved)
