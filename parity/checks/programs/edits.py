"""One thing that may be otherwise at an operation, and what is needed to say and to try it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from parity.contract import OperationEdit, ProgramOperation

__all__ = ["FloatNumbers", "OperationChange", "computed", "edit_of", "equal", "nearest"]

FloatNumbers: TypeAlias = NDArray[np.float64]

NEAREST = 8
"""Earlier operations whose values may be taken in place of one, or added to it."""


@dataclass(frozen=True)
class OperationChange:
    """One thing that may be otherwise at an operation."""

    topic: str
    """What it is about, such as `activation`."""
    own: str
    """What the operation does."""
    other: str
    """What it does with the change."""
    rank: int
    """How narrow it is, the narrowest 0."""
    edit: OperationEdit
    rest: Mapping[int, OperationEdit] = field(default_factory=dict)
    """What is done at further operations with it."""


def edit_of(make: Any) -> OperationEdit:
    """Return an edit that takes the one output to another.

    Args:
        make: Takes an array to an array.
    """
    return OperationEdit(after=lambda outputs, inputs, sources: (make(outputs[0]),))


def nearest(operations: Sequence[ProgramOperation], at: int, shape: tuple[int, ...]) -> list[int]:
    """Return the nearest operations before one with an output of a shape, each value once.

    Args:
        operations: All of a program, in order.
        at: Number of the one before which they lie.
        shape: Of their only output, which is floating.
    """
    found: list[int] = []
    for source in sorted(operations[at].before, reverse=True):
        outputs = operations[source].outputs
        if len(outputs) != 1 or outputs[0].shape != shape or outputs[0].dtype.kind != "f":
            continue
        if any(np.array_equal(outputs[0], operations[other].outputs[0]) for other in found):
            continue
        found.append(source)
        if len(found) == NEAREST:
            break
    return found


def computed(function: Callable[..., Any], *args: FloatNumbers) -> FloatNumbers:
    """Return what a function makes of arrays, without a warning of what is not finite."""
    with np.errstate(all="ignore"):
        return np.asarray(function(*args))


def equal(a: FloatNumbers, b: FloatNumbers) -> bool:
    """Return whether two arrays are one but for rounding; never where one is not finite.

    Args:
        a: One array.
        b: The other, whose largest element gives the scale: 1e-11 of it passes.
    """
    if a.shape != b.shape or not np.isfinite(b).all():
        return False
    return bool(np.abs(a - b).max(initial=0.0) <= 1e-11 * float(np.abs(b).max(initial=0.0)))
