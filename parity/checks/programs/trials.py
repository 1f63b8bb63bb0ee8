"""A program computed with operations changed, at several places of its leaves and inputs, against what is wanted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from parity.checks.programs.edits import Explanation, NamedValues, OperationChange, part_of_line, turns_of
from parity.checks.programs.matching import Candidates
from parity.contract import OperationEdit, TracedProgram

__all__ = ["ProgramTrial", "fits_all", "flat_of", "limits_of"]

CLOSE = 1e-10
"""Largest distance, relative to the largest value, that counts as equal."""


def flat_of(outputs: Sequence[NDArray[np.float64]], orders: Sequence[tuple[int, ...]] | None) -> NDArray[np.float64]:
    """Return all outputs as one line of numbers, in the axes of the second program."""
    turned = outputs if orders is None else [one.transpose(order) for one, order in zip(outputs, orders, strict=True)]
    return np.concatenate([np.asarray(one, np.float64).ravel() for one in turned] or [np.zeros(0)])


def limits_of(own: Sequence[NDArray[np.float64]], wanted: Sequence[NDArray[np.float64]]) -> list[float]:
    """Return the largest distances from what is wanted that count as equal, one of each draw; none where all are.

    Args:
        own: What a program gives at each draw of leaves and inputs.
        wanted: What it shall give.
    """
    found, parts = [], False
    for mine, other in zip(own, wanted, strict=True):
        largest = float(np.abs(other).max(initial=0.0))
        apart = float(np.abs(mine - other).max(initial=0.0)) if mine.shape == other.shape else 0.0
        # what parts by rounding alone is equal, and any change that adds no more would explain it
        parts = parts or apart > 1e-13 * largest
        near = CLOSE * largest or np.finfo(np.float64).tiny
        found.append(min(near, 1e-3 * apart) if apart > 1e-13 * largest else near)
    return found if parts else []


def fits_all(
    programs: Sequence[TracedProgram], edits: Sequence[Mapping[int, OperationEdit]],
    wanted: Sequence[NDArray[np.float64]], limits: Sequence[float], orders: Sequence[tuple[int, ...]] | None,
    at: int | None = None,
) -> bool:  # fmt: skip
    """Return whether programs give what is wanted with operations changed.

    Args:
        programs: One at each draw of leaves and inputs.
        edits: Of each, what is done otherwise.
        wanted: What each shall give, flat, in units of its limit.
        limits: Of each the largest distance that counts as equal.
        orders: Of the axes of each output; None where they are those of what is wanted.
        at: Place of the operation whose output shall be it; None for what the program gives.
    """
    for program, changes, other, limit in zip(programs, edits, wanted, limits, strict=True):
        with np.errstate(all="ignore"):  # anything may follow from a change
            made = program.run(changes, at)
            if made is None:
                return False
            flat = flat_of(made, orders) / limit
            if flat.shape != other.shape or not float(np.abs(flat - other).max(initial=0.0)) <= 1.0:
                return False
    return True


class ProgramTrial:
    """A program that is tried with changes.

    Args:
        mine: The program, at one or several places of its leaves and inputs.
        wanted: What it shall give at each of them, flat.
        candidates: Operations at which changes are tried.
        orders: Of the axes of each output; None where they are those of what is wanted.
        side: Whether it is the first (0) or the second (1) of two.
        at: Place of the operation whose output shall be it; None for what the program gives.
        names: Of values that the program is given at the first place.
    """

    def __init__(
        self, mine: Sequence[TracedProgram], wanted: Sequence[NDArray[np.float64]], candidates: Candidates,
        orders: Sequence[tuple[int, ...]] | None, side: int, at: int | None = None, names: NamedValues | None = None,
    ) -> None:  # fmt: skip
        self.mine, self.orders, self.side, self.at = mine, orders, side, at
        self.names = names or {}
        self.operations = mine[0].operations
        self.candidates = candidates
        self.parted = candidates.parted
        given = [one.outputs if at is None else one.operations[at].outputs[:1] for one in mine]
        limits = limits_of([flat_of(one, orders) for one in given], wanted)
        self.limit = 1.0 if limits else 0.0
        """Largest distance that counts as equal, of what is wanted and given in units of each draw; 0 for none."""
        self.limits = limits or [1.0] * len(wanted)
        self._wanted = [one / limit for one, limit in zip(wanted, self.limits, strict=True)]
        self.wanted = np.concatenate(self._wanted)
        """What it shall give at all draws, each in its unit."""
        self.end = 0.0
        self._turns: dict[str, list[list[int]]] = {}

    def groups(self, at: int, *, whole: bool = True) -> list[list[int]]:
        """Return an operation alone, and with others of its kind.

        Those that take the same in its line, the same one in each turn of it, those of its line, and of all.
        """
        one = self.operations[at]
        same = [
            other for other, two in enumerate(self.operations)
            if two.kind == one.kind and len(two.inputs) == len(one.inputs) and dict(two.numbers) == dict(one.numbers)
        ]  # fmt: skip
        line = [other for other in same if self.operations[other].place == one.place]
        taking = [other for other in line if _share(self.operations[other].inputs[:1], one.inputs[:1])]
        groups = [[at]]
        turned = self.turned(at)
        for more in (taking, turned, line, same) if whole else (taking, turned, line):
            if len(more) > len(groups[-1]) or (more is turned and len(more) > 1 and more not in groups):
                groups.append(more)
        return groups

    def turned(self, at: int) -> list[int]:
        """Return an operation of a line in each turn of it: a loop, or a function that is called several times."""
        place = self.operations[at].place
        if place not in self._turns:
            line = [other for other, two in enumerate(self.operations) if two.place == place]
            self._turns[place] = turns_of(self.operations, line)
        return next(([*each] for each in zip(*self._turns[place], strict=True) if at in each), [at])

    def run_with(self, edits: dict[int, OperationEdit]) -> NDArray[np.float64] | None:
        """Return what it gives with some operations changed at all draws, each in its unit; None where it fails."""
        made = []
        for one, limit in zip(self.mine, self.limits, strict=True):
            with np.errstate(all="ignore"):
                outputs = one.run(edits, self.at)
            if outputs is None:
                return None
            made.append(flat_of(outputs, self.orders) / limit)
        whole = np.concatenate(made)
        return whole if whole.shape == self.wanted.shape and np.isfinite(whole).all() else None

    @property
    def first(self) -> NDArray[np.float64]:
        """What it shall give at the first draw, in its unit."""
        return self._wanted[0]

    def run_first(self, edits: dict[int, OperationEdit]) -> NDArray[np.float64] | None:
        """Return what it gives at the first draw, as `run_with` does at all."""
        with np.errstate(all="ignore"):
            outputs = self.mine[0].run(edits, self.at)
        made = None if outputs is None else flat_of(outputs, self.orders) / self.limits[0]
        return made if made is not None and made.shape == self.first.shape and np.isfinite(made).all() else None

    def fits(self, edits: dict[int, OperationEdit]) -> bool:
        """Return whether it gives what is wanted with some operations changed, at all draws."""
        return fits_all(self.mine, [edits] * len(self.mine), self._wanted, self.limits, self.orders, self.at)

    def explanation(self, change: OperationChange, at: int, edits: Mapping[int, OperationEdit]) -> Explanation:
        sides = (change.own, change.other) if self.side == 0 else (change.other, change.own)
        # what a line as a whole does otherwise is told by the values that it takes
        part = "" if change.whole else part_of_line(self.operations, [at, *edits])
        place = self.operations[at].place
        return Explanation(change.topic, *sides, place, self.side, change.rank, edits, part)


def _share(first: Sequence[NDArray[Any]], second: Sequence[NDArray[Any]]) -> bool:
    """Return whether two operations begin with the same value, as both ends of a difference do."""
    return all(
        one.shape == other.shape and np.array_equal(one, other) for one, other in zip(first, second, strict=True)
    )
