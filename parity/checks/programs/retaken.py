"""Another value in place of what an operation takes: one that the other program gives to what parts there.

A skip that is taken from another layer lies far before the operation that it is given to, with many values of its
shape between; but the other program has it among what goes into the operations at which the two part.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from parity.checks.programs.edits import OperationChange, made_by
from parity.checks.programs.matching import Candidates
from parity.contract import OperationArrays, OperationEdit, ProgramOperation

__all__ = ["retaken"]

MOST = 24
"""Values that are tried in place of one."""


def retaken(operations: Sequence[ProgramOperation], candidates: Candidates) -> Iterator[tuple[int, OperationChange]]:
    """Yield other values of the program in place of what the operations take at which it parts.

    Args:
        operations: Of the program.
        candidates: Where it parts, and what the other program gives there.
    """
    for at in sorted(candidates.entries):
        one = operations[at]
        for place, x in enumerate(one.inputs):
            if x.dtype.kind != "f" or x.size < 2:
                continue
            own = next((n for n in sorted(one.before, reverse=True) if _makes(operations[n], x)), None)
            if own is None or candidates.given.has(np.asarray(x, np.float64)):
                continue  # the other gives it to what parts there as well
            tried: list[int] = []
            for source in sorted(one.before, reverse=True):
                value = operations[source].outputs[0]
                if len(operations[source].outputs) != 1 or value.shape != x.shape or value.dtype.kind != "f":
                    continue
                known = any(np.array_equal(value, operations[other].outputs[0]) for other in tried)
                if known or not candidates.given.has(value):
                    continue
                tried.append(source)
                if (index := _passed(operations, own, value, at)) is not None:
                    left = OperationEdit(after=lambda outputs, inputs, held, index=index: (inputs[index],))  # type: ignore[misc]
                    yield own, OperationChange("left out", f"{operations[own].kind} is applied", "not", 1, left)
                    continue
                words = [made_by(operations, n) for n in (own, source)]
                edit = OperationEdit(given=_in_place(place), sources=(source,))
                yield at, OperationChange("value taken", words[0], words[1], 1, edit, whole=True)
                if len(tried) == MOST:
                    break


def _passed(operations: Sequence[ProgramOperation], own: int, value: NDArray[Any], at: int) -> int | None:
    """Return which input of an operation a value is, where one other operation alone takes what it makes of it.

    That another value is taken then is no more than that it is not applied.
    """
    one = operations[own]
    if len(one.outputs) != 1:
        return None
    takers = [n for n, two in enumerate(operations) if n > own and any(_same(x, one.outputs[0]) for x in two.inputs)]
    return next((n for n, x in enumerate(one.inputs) if _same(x, value)), None) if takers == [at] else None


def _makes(operation: ProgramOperation, value: NDArray[Any]) -> bool:
    return any(_same(a, value) for a in operation.outputs)


def _same(a: NDArray[Any], b: NDArray[Any]) -> bool:
    return a.shape == b.shape and np.array_equal(a, b)


def _in_place(place: int) -> Callable[[OperationArrays, Sequence[OperationArrays]], OperationArrays]:
    def given(inputs: OperationArrays, held: Sequence[OperationArrays]) -> OperationArrays:
        return tuple(held[0][0] if at == place else x for at, x in enumerate(inputs))

    return given
