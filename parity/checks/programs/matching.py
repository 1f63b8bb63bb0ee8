"""Which values of one program are values of another, in whatever order their numbers lie."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from parity.contract import ProgramOperation

__all__ = ["Candidates", "KnownValues", "candidates_of", "chosen_apart"]

CLOSE = 1e-9
"""Relative distance within which two values are one."""

FEWEST_LAID = 4
"""Numbers of a value from which the axes that it lies in are looked at."""

_FILLED = 1e4
"""How many times as large as all others the largest number of a value is, where a mask is filled with it."""


class KnownValues:
    """Values by what no order of their numbers changes: their count, sum, sum of squares, smallest and largest.

    Args:
        values: OperationArrays; those of one element are left out: they are in every program.
    """

    def __init__(self, values: Iterable[NDArray[np.float64]]) -> None:
        found: dict[int, list[NDArray[np.float64]]] = defaultdict(list)
        for one in values:
            if one.size > 1:
                found[one.size].append(one)
        self._arrays = found
        self._held = {size: np.stack([_print(one) for one in held]) for size, held in found.items()}

    def has(self, value: NDArray[np.float64]) -> bool:
        """Return whether a value is among them, its numbers in whatever order."""
        return bool(len(self._places(value)))

    def has_in_order(self, value: NDArray[np.float64]) -> bool:
        """Return whether a value is among them with its axes in some order."""
        return next(self.in_order(value), None) is not None

    def in_order(self, value: NDArray[np.float64]) -> Iterator[int]:
        """Yield the places, among those of as many numbers, of what is this value with its axes in some order."""
        orders = list(itertools.permutations(range(value.ndim))) if value.ndim <= 4 else [tuple(range(value.ndim))]
        scale = CLOSE * float(np.abs(value).max(initial=0.0))
        for place in self._places(value):
            other = self._arrays[value.size][place]
            turned = itertools.permutations(range(other.ndim)) if other.ndim <= 4 else ()
            if any(np.abs(value.transpose(order).ravel() - other.ravel()).max() <= scale for order in orders) or any(
                np.abs(other.transpose(order).ravel() - value.ravel()).max() <= scale for order in turned
            ):
                yield int(place)

    def has_reordered(self, value: NDArray[np.float64]) -> bool:
        """Return whether one of the same extents has its numbers, and none has them with its axes in some order."""
        extents = sorted(_inner(value))
        alike = any(sorted(_inner(self._arrays[value.size][place])) == extents for place in self._places(value))
        return alike and not self.has_in_order(value)

    def _places(self, value: NDArray[np.float64]) -> NDArray[np.int64]:
        held = self._held.get(value.size)
        if held is None or not np.isfinite(value).all():
            return np.zeros(0, np.int64)
        mine = _print(value)
        # a sum is rounded at the size of its terms
        scale = np.array([mine[4], mine[1], mine[3], mine[3], mine[4], mine[5]])
        with np.errstate(all="ignore"):
            apart = np.abs(held - mine)
        return np.flatnonzero((apart <= CLOSE * np.abs(scale)).all(1))


def _print(value: NDArray[np.float64]) -> NDArray[np.float64]:
    flat = np.asarray(value, np.float64).ravel()
    size = np.abs(flat)
    largest = float(size.max())
    rest = size[size < largest]
    if rest.size and 0.0 < _FILLED * float(rest.max()) < largest:  # of zeros and ones neither is filled in
        # beside what a mask is filled with all other numbers would be rounding
        flat = np.where(size < largest, flat, 2.0 * np.sign(flat) * rest.max())
        size = np.abs(flat)
    with np.errstate(all="ignore"):  # squares of what is no filling may be beyond any number
        return np.array([flat.sum(), (flat * flat).sum(), flat.min(), size.max(), size.sum(), largest])


@dataclass(frozen=True)
class Candidates:
    """Operations of a program at which a change may make it another one."""

    parted: list[int]
    """Those whose results the other has not, those first of which it has all that goes in."""
    before: list[int]
    """Those whose results the other has, and of which a parted one is made."""
    moved: list[int]
    """Those whose numbers the other has in another order."""
    wanted: KnownValues
    """Values of the other that are not of this one."""
    numbers: frozenset[float] = frozenset()
    """Plain numbers that operations of the other are given."""
    entries: frozenset[int] = frozenset()
    """Those of `parted` of which the other has all that goes in."""
    reordered: tuple[int, ...] = ()
    """Those of which the other has the numbers in a value of the same extents, and in no order of its axes: what was
    turned round or rolled is computed otherwise, though no number tells."""
    given: KnownValues = field(default_factory=lambda: KnownValues(()))
    """Of what this one has too, what goes into the operations of the other whose results it has not."""
    known: KnownValues = field(default_factory=lambda: KnownValues(()))
    """All values of the other."""


def candidates_of(mine: Sequence[ProgramOperation], theirs: Sequence[ProgramOperation]) -> Candidates:
    """Return the operations of one program at which another may part from it.

    Args:
        mine: Of the program that is looked at.
        theirs: Of the other.
    """
    known = KnownValues(_numbers(theirs))
    own = KnownValues(_numbers(mine))
    wanted = KnownValues(value for value in _numbers(theirs) if not own.has(value))
    first: list[int] = []
    later: list[int] = []
    same: list[int] = []
    for at, one in enumerate(mine):
        outputs = [np.asarray(a, np.float64) for a in one.outputs if a.dtype.kind in "biuf"]
        if not outputs:
            continue
        floats = [a for a in one.inputs if a.dtype.kind == "f" and a.size > 1]
        # in a loop all of a later turn parts behind a fault: what made the same in the first is given something else
        begun = one.turns and all(known.has(np.asarray(a, np.float64)) for a in one.turns[0] if a.dtype.kind in "bif")
        if any(known.has(a) for a in outputs) or (begun and not all(known.has(a) for a in floats)):
            same.append(at)
            # a mean may be the same where the variance beside it is not
            if len(outputs) < 2 or not any(_is_taken(mine, at, a) for a in one.outputs if not _known(known, a)):
                continue
        (first if all(known.has(a) for a in floats) else later).append(at)
    before = _before(mine, same, [a for at in first for a in mine[at].inputs])
    moved = [
        at
        for at in same
        for a in mine[at].outputs[:1]
        if a.size > 1 and known.has(np.asarray(a, np.float64)) and not known.has_in_order(np.asarray(a, np.float64))
    ]
    # numbers that are read in other axes lie in one order all the same, until they are turned
    moved = moved or [at for at in same if _is_laid(mine[at]) and not _has(theirs, mine[at].outputs[0])]
    reordered = tuple(
        at
        for at in same
        for a in mine[at].outputs
        if len(mine[at].outputs) == 1 and a.dtype.kind == "f" and a.size >= FEWEST_LAID
        and known.has_reordered(np.asarray(a, np.float64))
    )  # fmt: skip
    numbers = frozenset(number for one in theirs for number in one.numbers.values())
    given = KnownValues(
        np.asarray(a, np.float64)
        for one in theirs
        if any(a.dtype.kind in "biuf" and not own.has(np.asarray(a, np.float64)) for a in one.outputs)
        for a in one.inputs
        if a.dtype.kind == "f" and own.has(np.asarray(a, np.float64))
    )
    return Candidates(
        [*first, *later], before[::-1], moved, wanted, numbers, frozenset(first), reordered, given, known
    )


def chosen_apart(
    mine: Sequence[Sequence[ProgramOperation]], theirs: Sequence[Sequence[ProgramOperation]]
) -> list[int]:
    """Return the operations of a program that choose between values, as no one value of the other does at all draws.

    What a condition chooses is at each draw a value that both have, and not the same one.

    Args:
        mine: Operations of the program that is looked at, at several draws.
        theirs: Those of the other at the same draws.
    """
    asked = [
        at
        for at, one in enumerate(mine[0])
        if any(x.dtype.kind == "b" for x in one.inputs) and len(one.outputs) == 1
        and one.outputs[0].dtype.kind == "f" and one.outputs[0].size >= FEWEST_LAID
    ]  # fmt: skip
    if not asked:
        return []
    shared: dict[int, set[int]] = {}
    for draw, others in zip(mine, theirs, strict=True):
        known = KnownValues(_numbers(others))
        for at in asked:
            here = set(known.in_order(np.asarray(draw[at].outputs[0], np.float64)))
            shared[at] = shared.get(at, here) & here
    return [at for at, places in shared.items() if not places]


def _known(known: KnownValues, value: NDArray[Any]) -> bool:
    return value.dtype.kind not in "f" or value.size < 2 or known.has(np.asarray(value, np.float64))


def _is_taken(operations: Sequence[ProgramOperation], at: int, value: NDArray[Any]) -> bool:
    """Return whether a later operation takes a value."""
    return any(x.shape == value.shape and x.dtype == value.dtype and np.array_equal(x, value)
               for one in operations[at + 1 :] for x in one.inputs)  # fmt: skip


def _before(mine: Sequence[ProgramOperation], same: Sequence[int], given: Sequence[NDArray[Any]]) -> list[int]:
    """Return operations that make values, or such as are laid otherwise alone on the way to them, in order."""
    wanted, found = list(given), []
    for at in sorted(same, reverse=True):
        one = mine[at]
        if not any(a.shape == b.shape and np.array_equal(a, b) for a in one.outputs for b in wanted):
            continue
        found.append(at)
        if len(one.outputs) == 1 and len(one.inputs) == 1 and _same_numbers(one.inputs[0], one.outputs[0]):
            wanted.append(one.inputs[0])
    return found[::-1]


def _is_laid(one: ProgramOperation) -> bool:
    """Return whether an operation gives the numbers that it takes in axes of other extents."""
    floats = [x for x in one.inputs if x.dtype.kind == "f"]
    if len(floats) != 1 or len(one.outputs) != 1 or floats[0].size < FEWEST_LAID:
        return False
    x, y = floats[0], one.outputs[0]
    return x.size == y.size and _inner(x) != _inner(y) and _same_numbers(x, y)


def _has(operations: Sequence[ProgramOperation], value: NDArray[Any]) -> bool:
    """Return whether a value is among those of a program as it lies, but for axes of one place."""
    return any(
        _inner(a) == _inner(value) and np.abs(a.ravel() - value.ravel()).max() <= CLOSE * np.abs(value).max()
        for one in operations
        for a in (*one.outputs, *one.inputs)
        if a.dtype.kind == "f" and a.size == value.size
    )


def _inner(value: NDArray[Any]) -> list[int]:
    return [n for n in value.shape if n > 1]


def _same_numbers(a: NDArray[Any], b: NDArray[Any]) -> bool:
    """Return whether two values hold the same numbers in whatever order."""
    return a.size == b.size and np.array_equal(np.sort(a, None), np.sort(b, None))


def _numbers(operations: Sequence[ProgramOperation]) -> list[NDArray[np.float64]]:
    arrays = (a for one in operations for a in (*one.outputs, *one.inputs, *itertools.chain(*one.turns)))
    return [np.asarray(a, np.float64) for a in arrays if a.dtype.kind in "biuf"]
