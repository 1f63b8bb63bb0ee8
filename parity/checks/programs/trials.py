"""A program computed with operations changed, at several places of its leaves and inputs, against what is wanted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from parity.checks.programs.edits import Explanation, NamedValues, OperationChange
from parity.checks.programs.matching import Candidates
from parity.contract import OperationEdit, TracedProgram

__all__ = ["ProgramTrial", "flat_of"]

CLOSE = 1e-10
"""Largest distance, relative to the largest value, that counts as equal."""


def flat_of(outputs: Sequence[NDArray[np.float64]], orders: Sequence[tuple[int, ...]] | None) -> NDArray[np.float64]:
    """Return all outputs as one line of numbers, in the axes of the second program."""
    turned = outputs if orders is None else [one.transpose(order) for one, order in zip(outputs, orders, strict=True)]
    return np.concatenate([np.asarray(one, np.float64).ravel() for one in turned] or [np.zeros(0)])


class ProgramTrial:
    """A program that is tried with changes.

    Args:
        mine: The program, at one or several places of its leaves and inputs.
        wanted: What it shall give at all of them, flat.
        candidates: Operations at which changes are tried.
        orders: Of the axes of each output; None where they are those of what is wanted.
        side: Whether it is the first (0) or the second (1) of two.
        at: Place of the operation whose output shall be it; None for what the program gives.
        names: Of values that the program is given at the first place.
    """

    def __init__(
        self, mine: Sequence[TracedProgram], wanted: NDArray[np.float64], candidates: Candidates,
        orders: Sequence[tuple[int, ...]] | None, side: int, at: int | None = None, names: NamedValues | None = None,
    ) -> None:  # fmt: skip
        self.mine, self.wanted, self.orders, self.side, self.at = mine, wanted, orders, side, at
        self.names = names or {}
        self.operations = mine[0].operations
        self.candidates = candidates
        self.parted = candidates.parted
        given = [one.outputs if at is None else one.operations[at].outputs[:1] for one in mine]
        own = np.concatenate([flat_of(one, orders) for one in given])
        largest = float(np.abs(wanted).max(initial=0.0))
        apart = float(np.abs(own - wanted).max(initial=0.0)) if own.shape == wanted.shape else 0.0
        # what parts by rounding alone is equal, and any change that adds no more would explain it
        self.limit = min(CLOSE * largest, 1e-3 * apart) if apart > 1e-13 * largest else 0.0
        self.end = 0.0

    def groups(self, at: int, *, whole: bool = True) -> list[list[int]]:
        """Return an operation alone, and with those of its kind: that take the same in its line, of it, of all."""
        one = self.operations[at]
        same = [
            other for other, two in enumerate(self.operations)
            if two.kind == one.kind and len(two.inputs) == len(one.inputs) and dict(two.numbers) == dict(one.numbers)
        ]  # fmt: skip
        line = [other for other in same if self.operations[other].place == one.place]
        taking = [other for other in line if _share(self.operations[other].inputs[:1], one.inputs[:1])]
        groups = [[at]]
        for more in (taking, line, same) if whole else (taking, line):
            if len(more) > len(groups[-1]):
                groups.append(more)
        return groups

    def run_with(self, edits: dict[int, OperationEdit]) -> NDArray[np.float64] | None:
        made = []
        for one in self.mine:
            with np.errstate(all="ignore"):
                outputs = one.run(edits, self.at)
            if outputs is None:
                return None
            made.append(flat_of(outputs, self.orders))
        whole = np.concatenate(made)
        return whole if whole.shape == self.wanted.shape and np.isfinite(whole).all() else None

    def fits(self, edits: dict[int, OperationEdit]) -> bool:
        begin = 0
        for one in self.mine:
            with np.errstate(all="ignore"):  # anything may follow from a change
                made = one.run(edits, self.at)
            if made is None:
                return False
            flat = flat_of(made, self.orders)
            wanted = self.wanted[begin : begin + flat.size]
            begin += flat.size
            if flat.shape != wanted.shape or not float(np.abs(flat - wanted).max(initial=0.0)) <= self.limit:
                return False
        return begin == self.wanted.size

    def explanation(self, change: OperationChange, at: int, edits: Mapping[int, OperationEdit]) -> Explanation:
        sides = (change.own, change.other) if self.side == 0 else (change.other, change.own)
        return Explanation(change.topic, *sides, self.operations[at].place, self.side, change.rank, edits)


def _share(first: Sequence[NDArray[Any]], second: Sequence[NDArray[Any]]) -> bool:
    """Return whether two operations begin with the same value, as both ends of a difference do."""
    return all(
        one.shape == other.shape and np.array_equal(one, other) for one, other in zip(first, second, strict=True)
    )
