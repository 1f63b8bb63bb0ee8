"""Masks that one of two programs does not apply at some of the places where it attends, such as between two streams.

A helper attends at all places of a model at one line, and one mask is given to several of them. With it, what is
hidden at all of them is not what is hidden at the ones that a port has without a mask, or with one of ones. So every
subset of them is tried that a stack of layers may have: one alone, or every so many from one of them on.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from parity.checks.programs.edits import OperationChange
from parity.contract import OperationEdit, ProgramOperation

__all__ = ["unhidden"]

HIDDEN = -1e4
"""Numbers at most as large are filled in where a mask hides something: all are one to a softmax."""

MOST = 24
"""Places at which a program hides something, above which none of them are tried."""

_MASKS = ("attn_mask as it is|none", "key_padding_mask as it is|none")
"""Settings of a call that hides something by itself."""


@dataclass(frozen=True)
class _HidingPlace:
    """An operation that hides something."""

    at: int
    edit: OperationEdit
    """Hides nothing."""
    words: str
    """How much it hides, or which mask it takes; the same for what may be one line of layers."""


def unhidden(operations: Sequence[ProgramOperation]) -> Iterator[tuple[int, OperationChange]]:
    """Yield masks that are not applied at some of the places where the program hides something.

    Args:
        operations: Of a program.
    """
    held = [one for at in range(len(operations)) if (one := _hiding(operations, at)) is not None]
    if not 2 <= len(held) <= MOST:
        return  # that of one place is tried as any other operation
    for some in _subsets(len(held)):
        first, *rest = (held[number] for number in some)
        kind, at = operations[first.at].kind, ", ".join(str(number + 1) for number in some)
        which = f"(number {at} of the {len(held)} places that hide something)"
        own = f"{kind} hides {first.words} {which}"
        edits = {one.at: one.edit for one in rest}
        yield first.at, OperationChange("mask", own, "nothing is hidden", 1, first.edit, edits, whole=True)


def _subsets(count: int) -> Iterator[tuple[int, ...]]:
    """Yield each of so many places alone, and every so many from each on; all of them are one operation's mask."""
    yield from ((at,) for at in range(count))
    for step in range(1, count):
        for begin in range(count - step):
            if step > 1 or begin > 0:
                yield tuple(range(begin, count, step))


def _hiding(operations: Sequence[ProgramOperation], at: int) -> _HidingPlace | None:
    """Return how an operation hides nothing; None where it hides nothing as it is."""
    one = operations[at]
    for words, settings in one.others:
        if words in _MASKS:
            return _HidingPlace(at, OperationEdit(settings=settings), f"something by its {words.split()[0]}")
    if len(one.outputs) != 1 or one.outputs[0].dtype.kind != "f" or one.outputs[0].size < 2:
        return None
    y = one.outputs[0]
    low = y <= HIDDEN
    if not low.any():
        return None
    for place, x in enumerate(one.inputs):
        if x.dtype.kind == "f" and x.shape == y.shape and _shows(x, y, low):
            edit = OperationEdit(after=lambda o, i, s, p=place: (i[p],))  # type: ignore[misc]
            return _HidingPlace(at, edit, f"{int(low.sum())} of {low.size} places")
    return None


def _shows(x: NDArray[np.float64], y: NDArray[np.float64], low: NDArray[np.bool_]) -> bool:
    """Return whether a value has all that is hidden in another one, and all the rest as it is there."""
    return bool((x > HIDDEN).all()) and np.array_equal(x[~low], y[~low])
