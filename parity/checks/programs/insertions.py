"""What one program may do besides at an operation: a function, a norm, a mask or a term that the other has not."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from parity.checks.programs.edits import FloatNumbers, OperationChange, computed, edit_of, made_by, nearest, shows
from parity.checks.programs.functions import ACTIVATIONS, TAKEN
from parity.contract import OperationArrays, OperationEdit, ProgramOperation

__all__ = ["insertions_of"]

_INSERTED = ("ReLU", "tanh", "sigmoid", "GELU (erf)", "GELU (tanh)", "SiLU", "softplus", "exp", "ELU", "hardtanh",
             "leaky ReLU of 0.01", "sine")  # fmt: skip
"""Activations that may be there in one alone."""


def insertions_of(operations: Sequence[ProgramOperation], at: int) -> Iterator[OperationChange]:
    """Yield what may be done besides at an operation with one output of floats.

    Args:
        operations: Of a program.
        at: Place of the operation.
    """
    yield from _added(operations[at])
    yield from _taken(operations[at])
    yield from _terms(operations, at)
    yield from _gated(operations, at)


def _added(one: ProgramOperation) -> Iterator[OperationChange]:
    """Yield what may be taken of the output besides."""
    y = one.outputs[0]
    for name, function in ACTIVATIONS.items():
        if name in _INSERTED and shows(function, y):
            yield OperationChange("activation", "nothing", f"{name} after {one.kind}", 2,
                                  edit_of(lambda y, f=function: computed(f, y)))  # fmt: skip
    for name, function in TAKEN.items():
        if not shows(function, y):
            continue
        yield OperationChange("value", f"the result of {one.kind} as it is", name, 2,
                              edit_of(lambda y, f=function: computed(f, y)))  # fmt: skip
    if y.ndim and y.shape[-1] > 1:
        for name, function in _NORMALIZED.items():
            yield OperationChange("norm", f"the result of {one.kind} as it is", name, 2,
                                  edit_of(lambda y, f=function: computed(f, y)))  # fmt: skip
    if y.ndim >= 2 and y.shape[-1] == y.shape[-2] > 1:
        for name, fill in (("minus infinity", -np.inf), ("zero", 0.0)):
            masked = edit_of(lambda y, v=fill: np.where(np.tril(np.ones(y.shape[-2:], bool)), y, v))
            yield OperationChange("mask", "none", f"{name} above the diagonal after {one.kind} (causal)", 2, masked)


def _log_softmax(x: FloatNumbers) -> FloatNumbers:
    shifted = x - x.max(-1, keepdims=True)
    return np.asarray(shifted - np.log(np.exp(shifted).sum(-1, keepdims=True)))


_NORMALIZED: dict[str, Callable[[FloatNumbers], Any]] = {
    "divided by its length": lambda x: x / np.sqrt((x * x).sum(-1, keepdims=True)),
    "softmax": lambda x: np.exp(_log_softmax(x)),
    "log softmax": lambda x: _log_softmax(x),
    "less its mean": lambda x: x - x.mean(-1, keepdims=True),
    "divided by its sum": lambda x: x / x.sum(-1, keepdims=True),
    "divided by the root of its mean square": lambda x: x / np.sqrt((x * x).mean(-1, keepdims=True)),
}  # fmt: skip


def _taken(one: ProgramOperation) -> Iterator[OperationChange]:
    """Yield what may be taken of an input before the operation, and of that alone."""
    floats = [at for at, x in enumerate(one.inputs) if x.dtype.kind == "f" and x.size > 1]
    if not 1 <= len(floats) <= 4 or (len(floats) == 1 and len(one.inputs) == 1):
        return
    for place in floats:
        word = f"input {place} of {one.kind}"
        for name, function in ACTIVATIONS.items():
            if name in _INSERTED and shows(function, one.inputs[place]):
                yield OperationChange("activation", "nothing", f"{name} on {word}", 2, _given(place, function))
        for name, function in TAKEN.items():
            if not shows(function, one.inputs[place]):
                continue
            yield OperationChange("value", f"{word} as it is", name, 2, _given(place, function))
        if one.inputs[place].ndim and one.inputs[place].shape[-1] > 1:
            for name, function in _NORMALIZED.items():
                yield OperationChange("norm", f"{word} as it is", name, 2, _given(place, function))


def _given(place: int, function: Callable[[FloatNumbers], Any]) -> OperationEdit:
    def given(inputs: OperationArrays, sources: object) -> OperationArrays:
        return tuple(computed(function, x) if at == place else x for at, x in enumerate(inputs))

    return OperationEdit(given=given)


def _terms(operations: Sequence[ProgramOperation], at: int) -> Iterator[OperationChange]:
    """Yield values before an operation that are added to its output, or taken in its place."""
    one = operations[at]
    y = one.outputs[0]
    if y.size < 2:
        return
    for source in nearest(operations, at, y.shape):
        x = operations[source].outputs[0]
        name = made_by(operations, source)
        for word, function in (("plus", np.add), ("less", np.subtract), ("times", np.multiply)):
            edit = OperationEdit(after=lambda o, i, s, f=function: (f(o[0], s[0][0]),), sources=(source,))  # type: ignore[misc]
            yield OperationChange(
                "term", f"without {name}" if word == "plus" else "as it is", f"{word} {name}", 3, edit
            )
        if not np.array_equal(x, y):
            edit = OperationEdit(after=lambda o, i, s: (s[0][0],), sources=(source,))
            yield OperationChange("value", f"what {one.kind} makes", name, 3, edit)


def _gated(operations: Sequence[ProgramOperation], at: int) -> Iterator[OperationChange]:
    """Yield a value before an operation that one of two inputs is taken times, such as a bias inside a gate.

    The input may be spread over the output, as a bias is: then no value before it has its shape.
    """
    one = operations[at]
    y = one.outputs[0]
    if len(one.inputs) != 2 or y.size < 2 or any(x.dtype.kind != "f" for x in one.inputs):
        return
    places = [place for place, x in enumerate(one.inputs) if x.size > 1 and _spread(x, y)]
    for source in nearest(operations, at, y.shape) if len(places) == 2 else ():
        x = operations[source].outputs[0]
        name = made_by(operations, source)
        for place in places:
            if not np.array_equal(x, one.inputs[place]):
                edit = OperationEdit(given=_times(place), sources=(source,))
                yield OperationChange("term", f"input {place} of {one.kind} as it is", f"times {name}", 3, edit)


def _times(place: int) -> Callable[[OperationArrays, Sequence[OperationArrays]], OperationArrays]:
    def given(inputs: OperationArrays, sources: Sequence[OperationArrays]) -> OperationArrays:
        return tuple(x * sources[0][0] if at == place else x for at, x in enumerate(inputs))

    return given


def _spread(x: FloatNumbers, y: FloatNumbers) -> bool:
    """Return whether a value has the shape of another, or is spread over it."""
    return x.ndim <= y.ndim and all(n in (1, m) for n, m in zip(x.shape[::-1], y.shape[::-1], strict=False))
