"""Which changes make one of two programs give what the other gives: one changed operation, or two together.

Both programs are changed in turn. Two changes are found one after the other: the first makes a value inside the one
program what a value inside the other is, the second makes the rest equal. That all values come out equal at the end
is what proves both; which values may be the same ones is only where they are looked for.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from parity.checks.programs.matching import Candidates, KnownValues, candidates_of
from parity.checks.programs.search import ChangeSearch, Explanation, flat_of, searched
from parity.contract import TracedProgram

__all__ = ["ProgramDifference", "explain"]

SECONDS = 4.0
"""Of the processor, for each of the two programs and each kind of change."""

MOST_SECONDS = 20.0
"""Of the processor, for all changes of one operation."""

INSIDE_SECONDS = 1.0
"""Of the processor, for each kind of change that makes a value inside a program."""

PAIR_SECONDS = 12.0
"""Of the processor, for all that looks for two changes."""

ALIKE = 0.6
"""Correlation from which two values inside two programs may be the same one, but for what is before them."""

MOST_PAIRS = 16
"""Values inside a program that are looked at."""

FEWEST = 8
"""Numbers of a value from which it is looked at: of few, any change makes many."""


@dataclass(frozen=True)
class ProgramDifference:
    """Changes that together make two programs equal."""

    changes: tuple[Explanation, ...]

    @property
    def text(self) -> str:
        """Return it as a phrase."""
        phrases = "; and ".join(one.phrase for one in self.changes)
        changed = "that" if len(self.changes) == 1 else "both"
        return f"{phrases} (with {changed} changed all values are equal)"


def explain(
    first: Sequence[TracedProgram], second: Sequence[TracedProgram], orders: Sequence[tuple[int, ...]] | None = None
) -> list[ProgramDifference]:
    """Return the changes that make two programs equal, the narrowest first; each is one, or two together.

    Args:
        first: A program, at one or several places of its leaves and inputs.
        second: The other at the same places.
        orders: For each output, the order of axes that takes the first's to the second's; None where they are equal.
    """
    if one := _of_one(first, second, orders, MOST_SECONDS, SECONDS):
        return [ProgramDifference((each,)) for each in one]
    return _of_two(first, second, orders)


def _of_one(
    first: Sequence[TracedProgram], second: Sequence[TracedProgram], orders: Sequence[tuple[int, ...]] | None,
    most: float, each: float,
) -> list[Explanation]:  # fmt: skip
    searches = []
    for side, (mine, theirs) in enumerate(((first, second), (second, first))):
        if not _same_way(mine):
            continue  # an operation has another place at each draw
        wanted = np.concatenate([flat_of(one.outputs, orders if side == 1 else None) for one in theirs])
        candidates = candidates_of(mine[0].operations, theirs[0].operations)
        searches.append(ChangeSearch(mine, wanted, candidates, orders if side == 0 else None, side))
    return searched(searches, most, each)


def _same_way(programs: Sequence[TracedProgram]) -> bool:
    """Return whether a program does the same operations at all draws, which the choices of a router may change."""
    return len({tuple(operation.kind for operation in one.operations) for one in programs}) == 1


def _of_two(
    first: Sequence[TracedProgram], second: Sequence[TracedProgram], orders: Sequence[tuple[int, ...]] | None
) -> list[ProgramDifference]:
    """Return two changes that together make two programs equal."""
    if not (_same_way(first) and _same_way(second)):
        return []
    ends = time.process_time() + PAIR_SECONDS
    both = [list(_inside(mine, theirs)) for mine, theirs in ((first, second), (second, first))]
    tried: set[tuple[int, str, str]] = set()
    for turn in itertools.zip_longest(*both):
        for side, inside in enumerate(turn):
            if inside is None:
                continue
            mine, theirs = (first, second) if side == 0 else (second, first)
            at, wanted, candidates = inside
            if time.process_time() > ends:
                return []
            search = ChangeSearch(mine, wanted, candidates, None, side, at)
            for one in searched([search], min(6 * INSIDE_SECONDS, ends - time.process_time()), INSIDE_SECONDS):
                key = (side, one.place, one.phrase)
                changed = [program.changed(one.edits) for program in mine]
                if key in tried or any(program is None for program in changed):
                    continue
                tried.add(key)
                made = [program for program in changed if program is not None]
                here, there = (made, theirs) if side == 0 else (theirs, made)
                left = ends - time.process_time()
                if rest := _of_one(here, there, orders, left, min(SECONDS, left / 4)):
                    return [ProgramDifference((one, rest[0]))]
    return []


def _inside(
    mine: Sequence[TracedProgram], theirs: Sequence[TracedProgram]
) -> Iterator[tuple[int, NDArray[np.float64], Candidates]]:
    """Yield values inside a program that one inside the other may be, the first ones first.

    Yields:
        Place of the operation, what it shall give at all draws, and where changes are tried.
    """
    mines, others = mine[0].operations, theirs[0].operations
    candidates = candidates_of(mines, others)
    parted = set(candidates.parted)
    known = KnownValues([np.asarray(a, np.float64) for one in mines for a in one.outputs if a.dtype.kind == "f"])
    count = 0
    for place, other in enumerate(others):
        value = other.outputs[0]
        if value.dtype.kind != "f" or value.size < FEWEST or known.has(np.asarray(value, np.float64)):
            continue
        found: list[tuple[float, int, tuple[int, ...]]] = []
        for at in parted:
            one = mines[at].outputs[0]
            if one.dtype.kind != "f" or sorted(one.shape) != sorted(value.shape):
                continue
            close, order = _likeness(one, value)
            if close >= ALIKE:
                found.append((close, at, order))
        # of values that are nearly the same one, as before and after a sum, the one that is nearest
        for _, at, order in sorted(found, reverse=True)[:1]:
            wanted = np.concatenate([program.operations[place].outputs[0].transpose(order).ravel()
                                     for program in theirs])  # fmt: skip
            here, before, moved = (
                [one for one in held if one <= at]
                for held in (candidates.parted, candidates.before, candidates.moved)
            )
            yield at, wanted, Candidates(here, before, moved, candidates.wanted)
            count += 1
        if count >= MOST_PAIRS:
            return


def _likeness(mine: NDArray[np.float64], other: NDArray[np.float64]) -> tuple[float, tuple[int, ...]]:
    """Return how much two values correlate, and the order of axes of the other in which they do so most."""
    best = 0.0, tuple(range(other.ndim))
    if not (np.isfinite(mine).all() and np.isfinite(other).all()) or not (np.ptp(mine) and np.ptp(other)):
        return best
    for order in itertools.permutations(range(other.ndim)) if other.ndim <= 4 else ():
        turned = other.transpose(order)
        if turned.shape == mine.shape:
            best = max(best, (abs(float(np.corrcoef(mine.ravel(), turned.ravel())[0, 1])), order))
    return best
