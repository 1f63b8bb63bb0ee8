"""Changes of one operation of a program that make it give what is wanted: computed, never guessed.

A program is changed operation by operation, until all values come out to within rounding. A change that does so is
true of the program as it is. Where several do, all are told that are not narrower ones again.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np

from parity.checks.programs.bounded import kept_from_acting
from parity.checks.programs.changes import changes_of, changes_of_line
from parity.checks.programs.columns import turned_columns
from parity.checks.programs.constants import linked_numbers
from parity.checks.programs.edits import Explanation, OperationChange, edit_of
from parity.checks.programs.masks import turned_masks
from parity.checks.programs.numbers import numbers_besides, numbers_of
from parity.checks.programs.retaken import retaken
from parity.checks.programs.rewired import rewired
from parity.checks.programs.trials import ProgramTrial
from parity.checks.programs.turned import left_turns, passed_on
from parity.checks.programs.unhidden import unhidden
from parity.contract import OperationEdit

__all__ = ["NARROW", "PLAIN", "STAGES", "WIDE", "ChangeSearch", "searched"]

PLAIN: tuple[str | int, ...] = ("turns", "seen", "linked", "masks", 0, "taken", 1, "numbers", "rewired", 2)
"""What is tried first, in this order: loops of fewer turns, of which the last could be called left out as well, then
changes whose value is seen in the other program, then numbers that it alone has and masks, then all by their rank."""

NARROW: tuple[str | int, ...] = (*PLAIN, "besides")
"""What is tried next, at all operations: the same, and a number that the program has not. What is divided after a
product is rather left out than multiplied after it, and each of these numbers must be solved for."""

WIDE: tuple[str | int, ...] = (3,)
"""What is tried last: it says least."""

STAGES = (*NARROW, *WIDE)

SHARE = 2.0
"""How many times an equal share of the time that is left a kind of change may take."""

REWIRED_SECONDS = 2.0
"""Seconds that edges which go elsewhere may take at least: each trial is one run, and there are many of them."""


def searched(
    searches: Sequence[ChangeSearch], most: float, each: float, stages: Sequence[str | int] = STAGES
) -> list[Explanation]:
    """Return what searches find, the narrowest changes first: none of a wider kind where a narrower one does as well.

    Args:
        searches: Of one program or of two.
        most: Seconds of the processor for all.
        each: Seconds of the processor for each search and kind of change.
        stages: Kinds of changes, in the order in which they are tried.
    """
    ends = time.process_time() + most
    turns = len(stages) * len(searches)
    for number, stage in enumerate(stages):
        found: list[Explanation] = []
        for at, search in enumerate(searches):
            now = time.process_time()
            # the kinds that come first must not take the time of those that come last
            share = SHARE * (ends - now) / (turns - number * len(searches) - at)
            share = max(share, REWIRED_SECONDS) if stage == "rewired" else share
            search.end = min(now + each, now + share, ends)
            if stage == "turns":
                found += search.fewer_turns()
            elif stage == "seen":
                found += search.seen()
            elif stage == "taken":
                found += search.taken()
            elif stage == "rewired":
                found += search.rewired()
            elif stage == "linked":
                # of a loop that is traced once the number itself is told, and not all its multiples
                found = sorted([*found, *linked_numbers(search)], key=lambda one: len(one.edits))
            elif stage == "masks":
                found += search.masks()
            elif stage == "numbers":
                found += numbers_of(search)
            elif stage == "besides":
                found += numbers_besides(search)
            else:
                found += search.at_rank(stage)  # type: ignore[arg-type]
        if found:  # a wider change that does as well says less
            return _told(found)
    return []


class ChangeSearch(ProgramTrial):
    """Tries the changes of a table; see `ProgramTrial`."""

    lines = True
    """Whether lines as a whole are changed too."""
    near = False
    """Whether it looks where two part first alone: what a line is given may be told better at others."""
    every: frozenset[int] = frozenset()
    """Operations whose results the other program has not, those too at which no change is tried."""

    def seen(self) -> list[Explanation]:
        """Return changes of a result that make a value which the other program has and this one has not."""
        one = self.candidates
        held: list[tuple[int, int, int, OperationChange]] = []
        for at in [*one.parted, *one.before, *one.moved] if self.limit > 0.0 else ():
            operation = self.operations[at]
            for change in changes_of(self.operations, at):
                if time.process_time() > self.end:
                    break
                after = change.edit.after
                if after is None or change.rest or change.whole:
                    continue
                sources = [(*self.operations[source].outputs, *self.operations[source].inputs)
                           for source in change.edit.sources]  # fmt: skip
                with np.errstate(all="ignore"):
                    made = after(operation.outputs, operation.inputs, sources)
                if any(
                    a.size > 1 and one.wanted.has(np.asarray(a, np.float64)) for a in made if a.dtype.kind in "bf"
                ):
                    held.append((change.rank, len(held), at, change))
        return self._first((at, change) for _, _, at, change in sorted(held, key=lambda one: one[:2]))

    def fewer_turns(self) -> list[Explanation]:
        """Return loops that have more turns than those of the other program."""
        return self._first(left_turns(self.operations) if self.limit > 0.0 else ())

    def taken(self) -> list[Explanation]:
        """Return values of the other program that are taken in place of others, or in another order of columns."""
        if not self.limit > 0.0:
            return []
        every = self.every or frozenset(self.candidates.parted)
        columns = turned_columns(self.operations, self.candidates, self.names)
        return self._first(
            itertools.chain(columns, retaken(self.operations, self.candidates), passed_on(self.operations, every))
        )

    def rewired(self) -> list[Explanation]:
        """Return operations that take an earlier value in place of the one that they take."""
        return self._first(rewired(self.operations, self.candidates, self.names) if self.limit > 0.0 else ())

    def masks(self) -> list[Explanation]:
        """Return masks that are not applied at some places, or the other way round at whatever lines take them."""
        ways = unhidden(self.operations), turned_masks(self.operations, self.names)
        return self._first(itertools.chain(*ways) if self.limit > 0.0 else ())

    def at_rank(self, rank: int) -> list[Explanation]:
        """Return the changes of a rank that make it equal, one of each topic."""
        one = self.candidates
        # behind where they part first hardly anything shows what is done otherwise
        first, later = ([at for at in one.parted if (at in one.entries) is here] for here in (True, False))
        places = [*first, *one.before, *one.moved, *later]
        return self._first(self._tried(places, rank) if self.limit > 0.0 else ())

    def _tried(self, places: Sequence[int], rank: int) -> Iterator[tuple[int, OperationChange]]:
        """Yield changes of a rank, those of a line as a whole once; of what is done in turns those of one first.

        Of the first rank a line as a whole has few, and an operation many: those of all lines come first.
        """
        ordered = self._ordered(places)
        lines = list(dict.fromkeys(self.operations[at].place for at in ordered)) if self.lines else []
        for place in lines if rank == 1 else ():
            yield from self._of_line(place, rank)
        for at in ordered:
            yield from ((at, change) for change in changes_of(self.operations, at) if change.rank == rank)
            if rank == 2 and not self.near and (place := self.operations[at].place) in lines:
                lines.remove(place)
                yield from self._of_line(place, rank)

    def _of_line(self, place: str, rank: int) -> Iterator[tuple[int, OperationChange]]:
        line = [at for at, one in enumerate(self.operations) if one.place == place]
        for first, change in changes_of_line(self.operations, line, self.names):
            if change.rank == rank:
                yield first, change

    def _ordered(self, places: Sequence[int]) -> list[int]:
        """Return operations, of those in turns of one line the first that parts, and last the others of them."""
        first: list[int] = []
        later: list[int] = []
        seen: set[tuple[int, ...]] = set()
        for at in places:
            turned = tuple(self.turned(at))
            (later if turned in seen else first).append(at)
            seen |= {turned} if len(turned) > 1 else set()
        return [*first, *later]

    def _first(self, tried: Iterable[tuple[int, OperationChange]]) -> list[Explanation]:
        """Return the first change of each topic that makes it equal; wider ones than the first are left."""
        found: dict[str, Explanation] = {}
        for at, change in tried:
            if time.process_time() > self.end:
                break
            if change.topic in found or any(change.rank > other.rank for other in found.values()):
                continue
            for group in [[at]] if change.rest or change.whole else self._groups(at, change):
                edits = {**{place: self._edit(change, place, at) for place in group}, **change.rest}
                if self.fits(edits) and not self._vanishes(change, edits):
                    told = self._bound_left_out(change, edits) or self.explanation(change, at, edits)
                    found.setdefault(told.topic, told)
                    break
        return list(found.values())

    def _bound_left_out(self, change: OperationChange, edits: Mapping[int, OperationEdit]) -> Explanation | None:
        """Return that a bound or a condition is left out where a change does no more than to keep it from acting."""
        if change.topic in ("left out", "mask"):
            return None
        # of a limit that the other program states, that is said, though it may be beyond all that there is
        stated = {number for edit in edits.values() for number in edit.numbers.values()}
        conditions = not stated or not stated <= self.candidates.numbers
        for at, left in kept_from_acting(self.mine, edits, conditions=conditions):
            if self.fits(all_of := {at: left.edit, **left.rest}):
                return self.explanation(left, at, all_of)
        return None

    def _vanishes(self, change: OperationChange, edits: Mapping[int, OperationEdit]) -> bool:
        """Return whether a change does no more than zeros would: the sum of what is taken less its mean is none.

        What makes a value vanish by its form tells of the form; that the value is left out is told otherwise.
        """
        if change.topic not in ("norm", "value", "activation", "arithmetic"):
            return False
        return self.fits({at: edit_of(np.zeros_like) for at in edits})

    def _groups(self, at: int, change: OperationChange) -> list[list[int]]:
        """Return the operations that are changed together; with those that have its words too."""
        groups = self.groups(at, whole=change.rank < 2)
        if change.words:
            kind = self.operations[at].kind
            alike = [
                other for other, two in enumerate(self.operations)
                if two.kind == kind and any(words == change.words for words, _ in two.others)
            ]  # fmt: skip
            if len(alike) > 1 and alike not in groups:
                groups.append(alike)
        return groups

    def _edit(self, change: OperationChange, place: int, at: int) -> OperationEdit:
        """Return the edit of a change at an operation of a group, which may have settings of its own for it.

        Args:
            change: Of the operation at `at`.
            place: Of the one that is changed alike; in another turn of its line it takes what is made in that turn.
            at: Place of the first.
        """
        own = dict(self.operations[place].others).get(change.words)
        if own is not None:
            return OperationEdit(settings=own)
        if place == at or not change.edit.sources:
            return change.edit
        sources = tuple(self._same_turn(source, at, place) for source in change.edit.sources)
        return replace(change.edit, sources=sources)

    def _same_turn(self, source: int, at: int, place: int) -> int:
        """Return the operation that is to another one what a source is to the first: that of the same turn."""
        mine, theirs = self.turned(at), self.turned(source)
        if place not in mine or len(theirs) != len(mine):
            return source
        moved = theirs[mine.index(place)] if theirs[mine.index(at)] == source else source
        return moved if moved in self.operations[place].before else source


def _told(found: Sequence[Explanation]) -> list[Explanation]:
    """Return one explanation of each topic, the narrowest first, operations before what a line is given."""
    kept: dict[str, Explanation] = {}
    left = any(one.topic == "left out" for one in found)
    # what is left out by the one is said before another reduction, which may be the same number by chance
    late = {"values exchanged": 2, "reduction": int(left)}
    # of few draws the first row may be set nowhere, and what is set nowhere is one row for all no more often
    late |= {"mask": int(any(one.topic == "rows" for one in found))}
    for one in sorted(found, key=lambda one: (one.rank, late.get(one.topic, 0))):
        kept.setdefault(one.topic, one)
    return list(kept.values())
