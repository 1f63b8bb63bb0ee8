"""Which changes make one of two programs give what the other gives: one changed operation, or several together.

Both programs are changed in turn. Several changes are found one after the other: each but the last makes a value
inside the one program what a value inside the other is, the last one makes the rest equal. That all values come out
equal at the end is what proves them; which values may be the same ones is only where they are looked for.
"""

from __future__ import annotations

import dataclasses
import itertools
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from parity.checks.programs.edits import Explanation, NamedValues
from parity.checks.programs.grafts import ValueGraft, grafted
from parity.checks.programs.matching import Candidates, KnownValues, candidates_of
from parity.checks.programs.rotaries import rotary_difference
from parity.checks.programs.search import NARROW, PLAIN, STAGES, WIDE, ChangeSearch, searched
from parity.checks.programs.trials import flat_of
from parity.contract import TracedProgram

__all__ = ["ProgramDifference", "explain"]

SECONDS = 4.0
"""Of the processor, for each of the two programs and each kind of change."""

MOST_SECONDS = 18.0
"""Of the processor, for all changes of one operation."""

NEAR_SECONDS = 9.0
"""Of these, for what stands where the two part first."""

INSIDE_SECONDS = 1.0
"""Of the processor, for each kind of change that makes a value inside a program."""

PAIR_SECONDS = 10.0
"""Of the processor, for all that looks for several changes."""

GRAFT_SECONDS = 5.0
"""Of the processor, for the place at which both compute otherwise."""

COMPACT = 16
"""Operations of both programs up to which the place at which they compute otherwise, where it is one line of each, is
as good as a cause: changes are looked for there alone, none of the widest kind, and not several."""

ROTARY_SECONDS = 3.0
"""Of the processor, for what rotaries turn otherwise."""

FOCUS_SECONDS = 10.0
"""Of the processor, for all changes of one operation where that place is known."""

BY_CHANCE = frozenset(("activation", "arithmetic", "layout", "left out", "order", "value"))
"""Changes of which another one may do as well where what follows is rounded to whole numbers, such as a bucket: that
both compute the same but for a number is said before these."""

LARGEST_GRAFT = 32
"""Operations of both programs from which such a place tells nothing, where they are no formulas that can be read."""

ALIKE = 0.6
"""Correlation from which two values inside two programs may be the same one, but for what is before them."""

MOST_CHANGES = 3
"""Changes that are told together."""

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
        counts = Counter(one.phrase for one in self.changes)  # the same in several turns of a loop is one
        phrases = "; and ".join(f"{one}, {count} times" if count > 1 else one for one, count in counts.items())
        changed = {1: "that", 2: "both"}.get(len(self.changes), "all of them")
        return f"{phrases} (with {changed} changed all values are equal)"


def explain(
    first: Sequence[TracedProgram], second: Sequence[TracedProgram], orders: Sequence[tuple[int, ...]] | None = None,
    names: tuple[NamedValues, NamedValues] = ({}, {}),
) -> Sequence[ProgramDifference | ValueGraft]:  # fmt: skip
    """Return the changes that make two programs equal, the narrowest first; each is one, or several together.

    Args:
        first: A program, at one or several places of its leaves and inputs.
        second: The other at the same places.
        orders: For each output, the order of axes that takes the first's to the second's; None where they are equal.
        names: Of values that each of them is given at the first place, to be told by.
    """
    graft = grafted(first, second, orders, GRAFT_SECONDS, names)
    compact = graft is not None and max(graft.lines) <= 1 and graft.size <= COMPACT
    focus = graft.parts if graft is not None and compact else None
    most = FOCUS_SECONDS if compact else MOST_SECONDS
    began = time.process_time()
    # a change stands where they part first, or just before that: what lies behind takes as long to be tried
    near = _of_one(first, second, orders, names, NEAR_SECONDS, SECONDS, PLAIN, focus, near=True)
    left = max(most - (time.process_time() - began), SECONDS)
    if near and not _are_stated(near, first, second):
        # a number that neither has may do what another one of the other program does further on
        further = _of_one(first, second, orders, names, SECONDS, SECONDS, PLAIN, focus)
        near = [one for one in further if _are_stated([one], first, second)] or near
    if one := near or _of_one(first, second, orders, names, left, SECONDS, NARROW, focus):
        if graft is not None and graft.by_a_number and {each.topic for each in one} <= BY_CHANCE:
            return [graft]
        return [ProgramDifference((each,)) for each in one]
    if turned := rotary_difference(first, second, orders, ROTARY_SECONDS):
        return [ProgramDifference((turned,))]
    if graft is not None and compact:
        # a long line may have taken all the time for what it is given
        alone = _of_one(first, second, orders, names, SECONDS, SECONDS, PLAIN[-1:], focus, lines=False)
        return [ProgramDifference((each,)) for each in alone] or [graft]
    if one := _of_one(first, second, orders, names, SECONDS, SECONDS, WIDE):
        return [ProgramDifference((each,)) for each in one]
    ends = time.process_time() + PAIR_SECONDS
    several = _of_several(first, second, orders, names, ends, MOST_CHANGES)
    told = graft is not None and (graft.size <= LARGEST_GRAFT or all(graft.formulas))
    return [*several] or ([graft] if graft is not None and told else [])


def _of_one(
    first: Sequence[TracedProgram], second: Sequence[TracedProgram], orders: Sequence[tuple[int, ...]] | None,
    names: tuple[NamedValues, NamedValues], most: float, each: float, stages: Sequence[str | int] = STAGES,
    focus: tuple[Sequence[int], Sequence[int]] | None = None, *, lines: bool = True, near: bool = False,
) -> list[Explanation]:  # fmt: skip
    """Return the changes of one operation that make two programs equal.

    Args:
        first: A program, at several places.
        second: The other.
        orders: Of the axes of the outputs.
        names: Of values that both are given.
        most: Seconds of the processor for all.
        each: The same for each program and kind of change.
        stages: Kinds of changes that are tried.
        focus: Operations of each program of which one is changed, or what goes into it; None for all.
        lines: Whether lines as a whole are changed too.
        near: Whether changes are tried at those operations alone at which the two part first, and before them.
    """
    searches = []
    for side, (mine, theirs) in enumerate(((first, second), (second, first))):
        if not _same_way(mine):
            continue  # an operation has another place at each draw
        wanted = [flat_of(one.outputs, orders if side == 1 else None) for one in theirs]
        candidates = candidates_of(mine[0].operations, theirs[0].operations)
        every = frozenset(candidates.parted)
        if focus is not None:
            parted = [at for at in candidates.parted if at in focus[side]]
            candidates = dataclasses.replace(candidates, parted=parted)
        if near:
            if len(candidates.entries) == len(candidates.parted):
                return []  # those are all
            candidates = dataclasses.replace(candidates, parted=[
                at for at in candidates.parted if at in candidates.entries])  # fmt: skip
        search = ChangeSearch(mine, wanted, candidates, orders if side == 0 else None, side, None, names[side])
        search.lines, search.near, search.every = lines, near, every
        searches.append(search)
    return searched(searches, most, each, stages)


def _are_stated(
    found: Sequence[Explanation], first: Sequence[TracedProgram], second: Sequence[TracedProgram]
) -> bool:
    """Return whether changes are no mere numbers, or numbers that the other program states."""
    for one in found:
        mine, theirs = (first, second) if one.side == 0 else (second, first)
        numbers = {number for edit in one.edits.values() for number in edit.numbers.values()}
        stated = candidates_of(mine[0].operations, theirs[0].operations).numbers
        if one.topic.startswith("number") and any(
            not any(abs(number - other) <= 1e-9 * abs(other) or abs(number * other - 1.0) <= 1e-9 for other in stated)
            for number in numbers
        ):
            return False
    return True


def _same_way(programs: Sequence[TracedProgram]) -> bool:
    """Return whether a program does the same operations at all draws, which the choices of a router may change."""
    return len({tuple(operation.kind for operation in one.operations) for one in programs}) == 1


def _of_several(
    first: Sequence[TracedProgram], second: Sequence[TracedProgram], orders: Sequence[tuple[int, ...]] | None,
    names: tuple[NamedValues, NamedValues], ends: float, most: int,
) -> list[ProgramDifference]:  # fmt: skip
    """Return changes that together make two programs equal: one inside, and then one or more for the rest.

    Args:
        first: A program, at several places.
        second: The other.
        orders: Of the axes of the outputs.
        names: Of values that both are given.
        ends: Time of the processor after which nothing is begun.
        most: Changes that may be needed.
    """
    if not (_same_way(first) and _same_way(second)):
        return []
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
            search = ChangeSearch(mine, wanted, candidates, None, side, at, names[side])
            for one in searched([search], min(6 * INSIDE_SECONDS, ends - time.process_time()), INSIDE_SECONDS):
                key = (side, one.place, one.phrase)
                changed = [program.changed(one.edits) for program in mine]
                if key in tried or any(program is None for program in changed):
                    continue
                tried.add(key)
                made = [program for program in changed if program is not None]
                here, there = (made, theirs) if side == 0 else (theirs, made)
                left = ends - time.process_time()
                rest = _of_one(here, there, orders, names, left, min(SECONDS, left / 4))
                if told := next((last for last in rest if not _takes_away((one, last))), None):
                    return [ProgramDifference((one, told))]
                if most > 2 and _parted(made, theirs) < _parted(mine, theirs):  # nearer: it may be one of them
                    for more in _of_several(here, there, orders, names, ends, most - 1):
                        if not _takes_away((one, *more.changes)):
                            return [ProgramDifference((one, *more.changes))]
    return []


def _takes_away(changes: Sequence[Explanation]) -> bool:
    """Return whether something is left out on both sides: that makes any two equal, and says not what differs."""
    return {one.side for one in changes if one.topic == "left out"} == {0, 1}


def _parted(mine: Sequence[TracedProgram], theirs: Sequence[TracedProgram]) -> int:
    """Return how many operations of a program make what the other has not."""
    return len(candidates_of(mine[0].operations, theirs[0].operations).parted)


def _inside(
    mine: Sequence[TracedProgram], theirs: Sequence[TracedProgram]
) -> Iterator[tuple[int, list[NDArray[np.float64]], Candidates]]:
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
            wanted = [program.operations[place].outputs[0].transpose(order).ravel() for program in theirs]
            here, before, moved = (
                [one for one in held if one <= at]
                for held in (candidates.parted, candidates.before, candidates.moved)
            )
            yield at, wanted, dataclasses.replace(candidates, parted=here, before=before, moved=moved)
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
