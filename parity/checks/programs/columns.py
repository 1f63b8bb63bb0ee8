"""Columns of a value that lie in another order: sines and cosines in halves or in turn, heads before their numbers.

Both programs have the same numbers there, and every count of them agrees, so that nothing parts but what is computed
from them. With the last axis read as two axes, and these turned, the value is one of the other program.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from parity.checks.programs.edits import NamedValues, OperationChange, made_by
from parity.checks.programs.matching import Candidates
from parity.contract import OperationArrays, OperationEdit, ProgramOperation

__all__ = ["turned_columns"]

FEWEST = 4
"""Columns from which their order is looked at."""

LARGEST = 2**20


def turned_columns(
    operations: Sequence[ProgramOperation], candidates: Candidates, names: NamedValues
) -> Iterator[tuple[int, OperationChange]]:
    """Yield values that operations take with their columns in the order in which the other program has them.

    Args:
        operations: Of a program.
        candidates: Where it parts, and what the other program has.
        names: Of values that it is given.
    """
    for at in sorted(candidates.entries):
        for place, x in enumerate(operations[at].inputs):
            if x.dtype.kind != "f" or x.ndim < 2 or x.shape[-1] < FEWEST or x.size > LARGEST:
                continue
            value = np.asarray(x, np.float64)
            # what the other gives to what parts there: before that it may have them in either order
            if not candidates.given.has(value) or candidates.given.has_in_order(value):
                continue
            for first, second in _factors(x.shape[-1]):
                if not candidates.given.has_in_order(_turned(value, first)):
                    continue
                given = OperationEdit(given=_giving(place, first))
                words = f"columns of {_name(operations, at, x, names)} as they are"
                order = f"read as [{first}, {second}] and turned{_meaning(first, second)}"
                yield at, OperationChange("layout", words, order, 1, given)


def _factors(count: int) -> Iterator[tuple[int, int]]:
    yield from ((one, count // one) for one in range(2, count // 2 + 1) if count % one == 0)


def _turned(value: NDArray[Any], first: int) -> NDArray[Any]:
    """Return a value with its last axis read as two, and these exchanged."""
    return np.asarray(value.reshape(*value.shape[:-1], first, -1).swapaxes(-1, -2).reshape(value.shape))


def _giving(place: int, first: int) -> Callable[[OperationArrays, object], OperationArrays]:
    def given(inputs: OperationArrays, held: object) -> OperationArrays:
        return tuple(_turned(x, first) if at == place else x for at, x in enumerate(inputs))

    return given


def _meaning(first: int, second: int) -> str:
    """Return what an order of columns is where one of two axes is of two places."""
    if first == second:
        return ""
    if first == 2:
        return " (the two halves in turn)"
    return " (every second one first, as two halves)" if second == 2 else ""


def _name(operations: Sequence[ProgramOperation], at: int, value: NDArray[Any], names: NamedValues) -> str:
    """Return what a value is called: what made it, its name where it is given, or its extents."""
    for source in sorted(operations[at].before, reverse=True):
        if any(one.shape == value.shape and np.array_equal(one, value) for one in operations[source].outputs):
            return made_by(operations, source)
    named = [name for name, one in names.items() if one.shape == value.shape and np.array_equal(one, value)]
    return named[0] if named else f"a given value {list(value.shape)}"
