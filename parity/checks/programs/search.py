"""Changes of one operation of a program that make it give what is wanted: computed, never guessed.

A program is changed operation by operation, until all values come out to within rounding. A change that does so is
true of the program as it is. Where several do, all are told that are not narrower ones again.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

import numpy as np
from numpy.typing import NDArray

from parity.checks.programs.changes import changes_of
from parity.checks.programs.edits import OperationChange, edit_of
from parity.checks.programs.matching import Candidates
from parity.checks.programs.solving import solve_number
from parity.contract import OperationArrays, OperationEdit, TracedProgram

__all__ = ["ChangeSearch", "Explanation", "flat_of", "searched"]

CLOSE = 1e-10
"""Largest distance, relative to the largest value, that counts as equal."""

_COUNTS = frozenset(("zeros", "ones", "view", "reshape", "permute", "transpose", "chunk", "split", "embedding"))
_COUNTS |= {"expand", "arange", "unsqueeze", "squeeze", "flatten", "tril", "triu", "one_hot", "size", "repeat"}
_COUNTS |= {"broadcast_in_dim", "iota", "select", "movedim", "unfold", "cat", "stack", "eye", "full"}
"""Operations whose numbers are extents and places, and no numbers to compute with."""


@dataclass(frozen=True)
class Explanation:
    """A change that makes two programs equal, or one of several that do."""

    topic: str
    first: str
    """What the first does."""
    second: str
    """What the second does."""
    place: str
    """Line of the program that was changed."""
    side: int
    """Which program was changed."""
    rank: int
    edits: Mapping[int, OperationEdit] = field(default_factory=dict, compare=False, repr=False)
    """Place of an operation to what was done there."""

    @property
    def phrase(self) -> str:
        """Return what differs, and in which line."""
        places = [f" ({self.place})" if at == self.side else "" for at in (0, 1)]
        return f"{self.topic}: {self.first} here{places[0]}, {self.second} there{places[1]}"


def searched(searches: Sequence[ChangeSearch], most: float, each: float) -> list[Explanation]:
    """Return what searches find, the narrowest changes first: none of a wider kind where a narrower one does as well.

    Args:
        searches: Of one program or of two.
        most: Seconds of the processor for all.
        each: Seconds of the processor for each search and kind of change.
    """
    ends = time.process_time() + most
    for stage in ("seen", 0, 1, "numbers", 2, 3):
        found: list[Explanation] = []
        for search in searches:
            search.end = min(time.process_time() + each, ends)
            if stage == "seen":
                found += search.seen()
            else:
                found += search.numbers() if stage == "numbers" else search.at_rank(stage)  # type: ignore[arg-type]
        if found:  # a wider change that does as well says less
            return _told(found)
    return []


def flat_of(outputs: Sequence[NDArray[np.float64]], orders: Sequence[tuple[int, ...]] | None) -> NDArray[np.float64]:
    """Return all outputs as one line of numbers, in the axes of the second program."""
    turned = outputs if orders is None else [one.transpose(order) for one, order in zip(outputs, orders, strict=True)]
    return np.concatenate([np.asarray(one, np.float64).ravel() for one in turned] or [np.zeros(0)])


class ChangeSearch:
    """Tries changes of one program.

    Args:
        mine: The program, at one or several places of its leaves and inputs.
        wanted: What it shall give at all of them, flat.
        candidates: Operations at which changes are tried.
        orders: Of the axes of each output; None where they are those of what is wanted.
        side: Whether it is the first (0) or the second (1) of two.
        at: Place of the operation whose output shall be it; None for what the program gives.
    """

    def __init__(
        self, mine: Sequence[TracedProgram], wanted: NDArray[np.float64], candidates: Candidates,
        orders: Sequence[tuple[int, ...]] | None, side: int, at: int | None = None,
    ) -> None:  # fmt: skip
        self.mine, self.wanted, self.orders, self.side, self.at = mine, wanted, orders, side, at
        self.operations = mine[0].operations
        self.candidates = candidates
        self.parted = candidates.parted
        given = [one.outputs if at is None else one.operations[at].outputs[:1] for one in mine]
        own = np.concatenate([flat_of(one, orders) for one in given])
        largest = float(np.abs(wanted).max(initial=0.0))
        apart = float(np.abs(own - wanted).max(initial=0.0)) if own.shape == wanted.shape else 0.0
        self.limit = min(CLOSE * largest, 1e-3 * apart)
        self.end = 0.0

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
                if after is None or change.rest:
                    continue
                sources = [self.operations[source].outputs for source in change.edit.sources]
                with np.errstate(all="ignore"):
                    made = after(operation.outputs, operation.inputs, sources)
                if any(
                    a.size > 1 and one.wanted.has(np.asarray(a, np.float64)) for a in made if a.dtype.kind in "bf"
                ):
                    held.append((change.rank, len(held), at, change))
        return self._first((at, change) for _, _, at, change in sorted(held, key=lambda one: one[:2]))

    def at_rank(self, rank: int) -> list[Explanation]:
        """Return the changes of a rank that make it equal, one of each topic."""
        one = self.candidates
        places = [*one.parted, *one.before, *one.moved]
        tried = ((at, change) for at in places for change in changes_of(self.operations, at) if change.rank == rank)
        return self._first(tried if self.limit > 0.0 else ())

    def _first(self, tried: Iterable[tuple[int, OperationChange]]) -> list[Explanation]:
        """Return the first change of each topic that makes it equal; wider ones than the first are left."""
        found: dict[str, Explanation] = {}
        for at, change in tried:
            if time.process_time() > self.end:
                break
            if change.topic in found or any(change.rank > other.rank for other in found.values()):
                continue
            for group in [[at]] if change.rest else self._groups(at, whole=change.rank < 2):
                edits = {**dict.fromkeys(group, change.edit), **change.rest}
                if self._fits(edits):
                    found[change.topic] = self._explanation(change, at, edits)
                    break
        return list(found.values())

    def _groups(self, at: int, *, whole: bool = True) -> list[list[int]]:
        """Return an operation alone, and with those of its kind: of its line, and of the whole program too."""
        one = self.operations[at]
        same = [
            other for other, two in enumerate(self.operations)
            if two.kind == one.kind and len(two.inputs) == len(one.inputs) and dict(two.numbers) == dict(one.numbers)
        ]  # fmt: skip
        line = [other for other in same if self.operations[other].place == one.place]
        groups = [[at]]
        for more in (line, same) if whole else (line,):
            if len(more) > len(groups[-1]):
                groups.append(more)
        return groups

    def _run(self, edits: dict[int, OperationEdit]) -> NDArray[np.float64] | None:
        made = []
        for one in self.mine:
            with np.errstate(all="ignore"):
                outputs = one.run(edits, self.at)
            if outputs is None:
                return None
            made.append(flat_of(outputs, self.orders))
        whole = np.concatenate(made)
        return whole if whole.shape == self.wanted.shape and np.isfinite(whole).all() else None

    def _fits(self, edits: dict[int, OperationEdit]) -> bool:
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

    def _explanation(self, change: OperationChange, at: int, edits: Mapping[int, OperationEdit]) -> Explanation:
        sides = (change.own, change.other) if self.side == 0 else (change.other, change.own)
        return Explanation(change.topic, *sides, self.operations[at].place, self.side, change.rank, edits)

    def numbers(self) -> list[Explanation]:
        """Return numbers that make it equal: those of the program, then a factor or a summand after an operation."""
        found: list[Explanation] = []
        for at in self.parted if self.limit > 0.0 else ():
            one = self.operations[at]
            if one.kind in _COUNTS or one.outputs[0].dtype.kind != "f":
                continue
            for key, start in one.numbers.items():
                for group in self._groups(at):
                    if time.process_time() > self.end:
                        return found
                    value = self._solved(partial(_with_number, group, key), start)
                    if value is not None:
                        sides = [f"{one:.10g}" for one in (start, value)]
                        name = f" {key}" if not key.isdigit() else ""
                        topic = f"number{name} of {one.kind}"
                        change = OperationChange(topic, sides[0], sides[1], 2, OperationEdit())
                        return [self._explanation(change, at, _with_number(group, key, value))]
        for at in self.parted if self.limit > 0.0 else ():
            if filled := self._filled(at):
                return [filled]
        for at in self.parted:
            if self.operations[at].outputs[0].dtype.kind != "f" or len(self.operations[at].outputs) != 1:
                continue
            for topic, start, make in _WHOLE:
                for group in self._groups(at)[:2]:
                    if time.process_time() > self.end:
                        return found
                    value = self._solved(partial(_with_scale, group, make), start)
                    if value is not None and abs(value - start) > 1e-12:
                        shown = f"{topic} {value:.10g}{self._meaning(at, value)} after {self.operations[at].kind}"
                        change = OperationChange(topic, "none", shown.removeprefix(f"{topic} "), 3, OperationEdit())
                        return [self._explanation(change, at, _with_scale(group, make, value))]
        return found

    def _filled(self, at: int) -> Explanation | None:
        """Return another number in place of one that a value is filled with, or that stands where a mask is not set.

        What is infinite, or as good as that, can be no start from which another number is solved for.
        """
        one = self.operations[at]
        own = {key: start for key, start in one.numbers.items() if not abs(start) < _HUGE}
        alike = len(one.outputs) == 1 and one.outputs[0].dtype.kind == "f" and one.outputs[0].size > 1
        value = float(one.outputs[0].flat[0]) if alike else 0.0
        ways = [(start, partial(_with_filled, key)) for key, start in own.items()]
        if alike and all(x.size <= 1 for x in one.inputs) and (one.outputs[0] == value).all():
            ways.append((value, partial(_with_filled, None)))
        for start, make in ways:
            for number in _FILLED:
                for group in self._groups(at) if number != start and time.process_time() <= self.end else ():
                    edits = dict.fromkeys(group, make(number))
                    if self._fits(edits):
                        change = OperationChange(
                            f"number that {one.kind} fills in", f"{start:.4g}", f"{number:.4g}", 2, OperationEdit()
                        )
                        return self._explanation(change, at, edits)
        return None

    def _solved(self, edits: Callable[[float], dict[int, OperationEdit]], start: float) -> float | None:
        return solve_number(lambda value: self._run(edits(value)), start, self.wanted, self.limit)

    def _meaning(self, at: int, value: float) -> str:
        """Return what a factor is of the extents that the operation sees."""
        sizes = {n for a in (*self.operations[at].inputs, *self.operations[at].outputs) for n in a.shape if n > 1}
        for size in sorted(sizes):
            for words, number in ((f"{size}", size), (f"1/{size}", 1 / size), (f"root of {size}", size**0.5),
                                  (f"1/root of {size}", size**-0.5)):  # fmt: skip
                if abs(value - number) <= 1e-9 * abs(number) and words != f"{value:.10g}":
                    return f", the {words}" if words.startswith("root") else f", {words}"
        return ""


_HUGE = 1e4
"""Size from which a number stands for an infinite one."""

_FILLED = (0.0, -np.inf, -1.0, 1.0, -1e9, -1e4, -100.0, -10.0, np.inf)
"""Numbers that are filled in, such as where a mask is not set; below -1000 all are one to a softmax."""

_WHOLE = (("factor", 1.0, np.multiply), ("summand", 0.0, np.add), ("power", 1.0, np.power))


def _with_filled(key: str | None, number: float) -> OperationEdit:
    """Return an edit that fills in a number: the one of a key, or that which the whole output is."""
    return edit_of(lambda y: np.full_like(y, number)) if key is None else OperationEdit(numbers={key: number})


def _with_number(group: Sequence[int], key: str, value: float) -> dict[int, OperationEdit]:
    return {place: OperationEdit(numbers={key: value}) for place in group}


def _with_scale(group: Sequence[int], function: np.ufunc, value: float) -> dict[int, OperationEdit]:
    return dict.fromkeys(group, _scaled(function, value))


def _scaled(function: np.ufunc, value: float) -> OperationEdit:
    def after(
        outputs: OperationArrays, inputs: OperationArrays, sources: Sequence[OperationArrays]
    ) -> OperationArrays:
        with np.errstate(all="ignore"):
            return (function(outputs[0], value),)

    return OperationEdit(after=after)


def _told(found: Sequence[Explanation]) -> list[Explanation]:
    """Return one explanation of each topic, the narrowest first."""
    kept: dict[str, Explanation] = {}
    for one in sorted(found, key=lambda one: one.rank):
        kept.setdefault(one.topic, one)
    return list(kept.values())
