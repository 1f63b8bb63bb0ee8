"""The place at which two programs compute otherwise: with a value of the one put into the other all values are equal.

No table of changes is needed for it. Of all values that can be put in place of one another those are told that the
fewest operations make which the other program has not.
"""

from __future__ import annotations

import itertools
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from parity.checks.programs.edits import NamedValues, turns_of
from parity.checks.programs.formulas import formulas_of
from parity.checks.programs.masks import masks_apart
from parity.checks.programs.matching import candidates_of, chosen_apart
from parity.checks.programs.regions import DataFlow
from parity.checks.programs.trials import fits_all, flat_of, limits_of
from parity.contract import OperationArrays, OperationEdit, ProgramOperation, TracedProgram

__all__ = ["ValueGraft", "grafted"]

_NUMBER = re.compile(r"(?<![\w.])\d+(?:\.\d+)?(?:e[-+]?\d+)?")

MOST_ORDERS = 6
"""Orders of axes in which one value is put in place of another."""

CALLS = frozenset(("batch_norm", "layer_norm", "group_norm", "rms_norm", "instance_norm", "softmax", "gelu", "silu",
                   "scaled_dot_product_attention", "max_pool2d", "avg_pool2d", "interpolate", "pad"))  # fmt: skip
"""Operations of PyTorch that are functions of several operations elsewhere."""

MOST_SPOTS = 400
"""Places of a program at which values are put."""


@dataclass(frozen=True)
class ValueGraft:
    """What two programs compute otherwise, and nothing else."""

    parts: tuple[tuple[int, ...], tuple[int, ...]]
    """Of each program the operations that make the value and that the other has not."""
    sides: tuple[str, str]
    """What they are, in words; empty where nothing is computed."""
    lines: tuple[int, int]
    """How many lines of each program ask for them."""
    formulas: tuple[str, str] = ("", "")
    """What both compute there; empty where that is too long."""
    letters: Mapping[str, str] = field(default_factory=dict)
    """What the letters of the formulas are."""
    texts: tuple[str, str] = ("", "")
    """What of the lines asks for both values, as it stands there; told where there are no formulas."""
    apart: str = ""
    """Where both values are masks, at which places they differ."""

    @property
    def size(self) -> int:
        """Return how many operations are told."""
        return sum(map(len, self.parts))

    @property
    def by_a_number(self) -> bool:
        """Return whether both compute the same there but for one number."""
        if not all(self.formulas) or max(self.lines) > 1:
            return False
        here, there = (_NUMBER.findall(formula) for formula in self.formulas)
        apart = sum(a != b for a, b in zip(here, there, strict=False))
        plain = [_NUMBER.sub("#", formula) for formula in self.formulas]
        return plain[0] == plain[1] and len(here) == len(there) and apart == 1

    @property
    def text(self) -> str:
        """Return it as a phrase."""
        here, there = self.sides
        if not here or not there:
            sides = f"{here} here, not there" if here else f"not here, {there} there"
            return f"left out: {sides} (without that all values are equal)"
        equal = "with the result of the one in place of the other's all values are equal"
        if all(self.formulas) and self.formulas[0] != self.formulas[1]:
            places = [side.rpartition(" (")[2].rstrip(")") for side in self.sides]
            here, there = (f"`{made}` ({place})" for made, place in zip(self.formulas, places, strict=True))
            words = ", ".join(f"{letter} is {one}" for letter, one in self.letters.items())
            equal = f"{words}; {equal}" if words else equal
        elif all(self.texts) and self.texts[0] != self.texts[1] and max(self.lines) <= 1:
            places = [side.rpartition(" (")[2].rstrip(")") for side in self.sides]
            here, there = (f"`{text}` ({place})" for text, place in zip(self.texts, places, strict=True))
        mask = f"mask: {self.apart}; " if self.apart else ""
        return f"{mask}computed otherwise: {here} here, {there} there ({equal})"


@dataclass(frozen=True)
class _Spot:
    """A value of a program, or those of one operation in each turn of its line."""

    at: int
    """Place of the first operation that makes it."""
    places: tuple[int, ...]
    """Of all of them; of a loop that is traced once the same one."""
    shapes: tuple[tuple[int, ...], ...]
    kind: str
    """Of its numbers."""
    score: int
    """How many operations make it that the other program has not."""
    stacked: bool = False
    """Whether it is the values of all turns of a loop, one after the other."""

    def values(self, program: TracedProgram) -> list[NDArray[np.float64]]:
        made: list[NDArray[np.float64]] = []
        for place in dict.fromkeys(self.places):
            one = program.operations[place]
            made += _turns(one) if len(self.places) > 1 or self.stacked else [one.outputs[0]]
        return [np.stack(made)] if self.stacked else made


def grafted(
    first: Sequence[TracedProgram], second: Sequence[TracedProgram], orders: Sequence[tuple[int, ...]] | None,
    seconds: float, names: tuple[NamedValues, NamedValues] = ({}, {}),
) -> ValueGraft | None:  # fmt: skip
    """Return the narrowest place at which two programs compute otherwise; None where none was found.

    Args:
        first: A program, at several places of its leaves and inputs.
        second: The other at the same places.
        orders: For each output, the order of axes that takes the first's to the second's; None where they are equal.
        seconds: Of the processor.
        names: Of values that each of them is given, to be told by.
    """
    both = (first, second)
    if any(len({tuple(two.kind for two in one.operations) for one in side}) != 1 for side in both):
        return None  # an operation has another place at each draw
    flows = []
    for mine, theirs in (both, both[::-1]):
        found = candidates_of(mine[0].operations, theirs[0].operations)
        chosen = chosen_apart([one.operations for one in mine], [one.operations for one in theirs])
        flows.append(DataFlow(mine[0].operations, sorted({*found.parted, *found.reordered, *chosen})))
    best: ValueGraft | None = None
    for side in (0, 1):
        mine, theirs = both[side], both[1 - side]
        wanted = [flat_of(one.outputs, orders if side == 1 else None) for one in theirs]
        trial = _Trial(mine, theirs, wanted, orders if side == 0 else None, time.process_time() + seconds / 2)
        narrowest = trial.narrowest(flows[side], flows[1 - side], best.size if best else 10**6)
        if narrowest is not None:
            parts = narrowest if side == 0 else narrowest[::-1]
            words = [flow.words(part) for flow, part in zip(flows, parts, strict=True)]
            lines = [flow.lines(part) for flow, part in zip(flows, parts, strict=True)]
            best = ValueGraft((tuple(parts[0]), tuple(parts[1])), (words[0], words[1]), (lines[0], lines[1]))
    return best if best is None or not all(best.parts) else _written(best, flows, both, names)


def _written(
    graft: ValueGraft, flows: Sequence[DataFlow], both: tuple[Sequence[TracedProgram], Sequence[TracedProgram]],
    names: tuple[NamedValues, NamedValues],
) -> ValueGraft:  # fmt: skip
    """Return a place with what is computed there as formulas."""
    ends = [flow.operations[part[-1]] for flow, part in zip(flows, graft.parts, strict=True)]
    parts = [
        _second_turn(flow, part) if other.turns and not own.turns else part
        for flow, part, own, other in zip(flows, graft.parts, ends, ends[::-1], strict=True)
    ]
    here, there, letters = formulas_of(flows, both, parts, names)
    masks = [_mask_taken(flow, part[-1]) for flow, part in zip(flows, graft.parts, strict=True)]
    apart = masks_apart(*masks) if ends[0].outputs[0].dtype.kind in "bi" else ""  # of levels masks are made
    return replace(graft, formulas=(here, there), letters=letters, texts=(ends[0].text, ends[1].text), apart=apart)


def _mask_taken(flow: DataFlow, end: int) -> NDArray[Any]:
    """Return the truths by which numbers are first chosen that follow from an operation's; none where none are."""
    for at in flow.parted:
        one = flow.operations[at]
        if at > end and one.outputs[0].dtype.kind == "f" and end in flow.part(at):
            return next((x for x in one.inputs if x.dtype.kind == "b" and x.size > 1), np.zeros(0, bool))
    return np.zeros(0, bool)


def _second_turn(flow: DataFlow, part: Sequence[int]) -> Sequence[int]:
    """Return what makes the same in the second turn of its line, of which the values of a loop are that is traced."""
    place = flow.operations[part[-1]].place
    turns = turns_of(flow.operations, [at for at, one in enumerate(flow.operations) if one.place == place])
    if len(turns) < 2 or part[-1] not in turns[0]:
        return part
    end = turns[1][turns[0].index(part[-1])]
    return [at for at in turns[1] if at in flow.parted_set and at < end] + [end]


class _Trial:
    """One program into which values of another are put."""

    def __init__(
        self, mine: Sequence[TracedProgram], theirs: Sequence[TracedProgram], wanted: Sequence[NDArray[np.float64]],
        orders: Sequence[tuple[int, ...]] | None, end: float,
    ) -> None:  # fmt: skip
        self.mine, self.theirs, self.orders, self.end = mine, theirs, orders, end
        self.limits = limits_of([flat_of(one.outputs, orders) for one in mine], wanted)
        self.wanted = [one / limit for one, limit in zip(wanted, self.limits or [1.0] * len(wanted), strict=True)]

    def narrowest(self, here: DataFlow, there: DataFlow, most: int) -> tuple[list[int], list[int]] | None:
        """Return the operations on both sides that make the values of which one can be put in place of the other.

        Args:
            here: Of the program into which they are put.
            there: Of the other.
            most: Operations from which nothing is narrower than what is known.
        """
        if not self.limits:
            return None
        spots, others = (_spots(one)[:MOST_SPOTS] for one in (here, there))
        ways: list[tuple[int, int, int, _Spot, _Spot | None]] = []
        for number, one in enumerate(spots):
            ways.append((one.score, number, -1, one, None))
            ways += [(one.score + two.score, number, at, one, two) for at, two in enumerate(others) if _fit(one, two)]
        for score, _, _, one, two in sorted(ways, key=lambda way: way[:3]):
            if score >= most or time.process_time() > self.end:
                return None
            if two is None:
                if self._left_out(here, one):
                    return here.part(one.at), []
            elif self._is_result(one) and (here.is_raw(one.at) or there.is_raw(two.at)):
                continue  # of any two programs the results can be exchanged
            elif any(self._fits(one, laid) for laid in _laid(one, two, self.theirs)):
                return _parts_of_one_turn((here, one), (there, two))
        return None

    def _is_result(self, one: _Spot) -> bool:
        """Return whether a value is all that the program gives: nothing of what follows it is known to agree."""
        made, given = self.mine[0].outputs, one.values(self.mine[0])
        return len(made) == len(given) == 1 and np.array_equal(made[0].ravel(), given[0].ravel())

    def _left_out(self, here: DataFlow, one: _Spot) -> bool:
        """Return whether all that makes a value can be left out: something that goes in is put in its place."""
        if one.stacked or len(set(one.places)) != len(one.places):
            return False
        turns = [here.inputs(place) for place in one.places]
        if any(len(inputs) != len(turns[0]) for inputs in turns):
            return False
        for slots in zip(*turns, strict=True):
            given = [self.mine[0].operations[place].inputs[index] for place, index in slots]
            if all(x.shape == shape and x.dtype.kind == one.kind and x.size > 1
                   for x, shape in zip(given, one.shapes, strict=True)):  # fmt: skip
                values = [
                    [program.operations[place].inputs[index] for place, index in slots] for program in self.mine
                ]
                if self._fits(one, values):
                    return True
        return False

    def _fits(self, one: _Spot, values: Sequence[Sequence[NDArray[np.float64]]]) -> bool:
        edits = [{place: _putting(value) for place, value in zip(one.places, made, strict=True)} for made in values]
        return fits_all(self.mine, edits, self.wanted, self.limits, self.orders)


def _parts_of_one_turn(
    first: tuple[DataFlow, _Spot], second: tuple[DataFlow, _Spot]
) -> tuple[list[int], list[int]]:  # fmt: skip
    """Return what makes two values, of several turns in the first one in which both programs part.

    What one of them does in more pieces parts in every turn, as a softmax written out beside one that is a call.
    """
    sides = (first, second)
    turn = max(spot.places.index(spot.at) if spot.at in spot.places else 0 for _, spot in sides)
    ends = [spot.places[turn] for _, spot in sides]
    if any(end not in flow.parted_set for (flow, _), end in zip(sides, ends, strict=True)):
        ends = [spot.at for _, spot in sides]
    return first[0].part(ends[0]), second[0].part(ends[1])


def _putting(value: NDArray[np.float64]) -> OperationEdit:
    def after(outputs: OperationArrays, inputs: OperationArrays, sources: object) -> OperationArrays:
        return (value,)

    return OperationEdit(after=after)


def _turns(one: ProgramOperation) -> list[NDArray[np.float64]]:
    """Return what an operation makes in each turn of the loop that it is in, in order; the second is kept apart."""
    return [one.outputs[0]] if not one.turns else [
        one.turns[0][0], one.outputs[0], *(turn[0] for turn in one.turns[1:])
    ]  # fmt: skip


def _spots(flow: DataFlow) -> list[_Spot]:
    """Return the values of a program that may be put in place of others, or have others put in theirs."""
    found: list[_Spot] = []
    lines: dict[str, list[int]] = {}
    for at, one in enumerate(flow.operations):
        lines.setdefault(one.place, []).append(at)
    for at in flow.parted:
        one = flow.operations[at]
        if len(one.outputs) != 1 or one.outputs[0].dtype.kind not in "bif":
            continue
        score, kind, shape = len(flow.part(at)), one.outputs[0].dtype.kind, one.outputs[0].shape
        count = len(one.turns) + 1
        if count == 1:
            found.append(_Spot(at, (at,), (shape,), kind, score))
        else:
            found.append(_Spot(at, (at,) * count, (shape,) * count, kind, score))
            found.append(_Spot(at, (at,), ((count, *shape),), kind, score, stacked=True))
    for line in lines.values():
        turns = turns_of(flow.operations, line)
        for places in zip(*turns, strict=True) if len(turns) > 1 else ():
            one = flow.operations[places[0]]
            parted = [place for place in places if place in flow.parted_set]
            if not parted or len(one.outputs) != 1 or one.outputs[0].dtype.kind not in "bif":
                continue
            # of a function that several lines call, such as a norm, some calls are made of what both have, and part
            score = len(flow.part(parted[0]))
            alike = tuple(place for place in parted if len(flow.part(place)) == score)
            for some in dict.fromkeys((tuple(places), alike)):
                each = tuple(place for place in some for _ in range(len(flow.operations[place].turns) + 1))
                shapes = tuple(flow.operations[place].outputs[0].shape for place in each)
                if len(some) > 1:
                    found.append(_Spot(parted[0], each, shapes, one.outputs[0].dtype.kind, score))
    return sorted([*found, *_spots_of_calls(flow)], key=lambda one: (one.score, one.at, len(one.places)))


def _spots_of_calls(flow: DataFlow) -> list[_Spot]:
    """Return the values of all calls of one kind that several lines ask for, as layers with one function in a helper.

    The other program has them at the lines of its helper, in as many turns.
    """
    calls: dict[str, list[int]] = {}
    for at, one in enumerate(flow.operations):
        if one.kind in CALLS and not one.turns and len(one.outputs) == 1:
            calls.setdefault(one.kind, []).append(at)
    found = []
    for places in calls.values():
        parted = [at for at in places if at in flow.parted_set]
        if parted and len({flow.operations[at].place for at in places}) > 1:
            shapes = tuple(flow.operations[at].outputs[0].shape for at in places)
            kind = flow.operations[places[0]].outputs[0].dtype.kind
            found.append(_Spot(parted[0], tuple(places), shapes, kind, len(flow.part(parted[0]))))
    return found


def _fit(one: _Spot, two: _Spot) -> bool:
    same = len(one.places) == len(two.places) and one.kind == two.kind
    if one.stacked or (len(set(one.places)) != len(one.places)):
        return False  # each turn of a loop would be given the same
    return same and all(np.prod(a) == np.prod(b) for a, b in zip(one.shapes, two.shapes, strict=True))


def _laid(one: _Spot, two: _Spot, theirs: Sequence[TracedProgram]) -> Iterator[list[list[NDArray[np.float64]]]]:
    """Yield the values of a spot at all draws in the shape of another's, in each order of axes that gives it."""
    values = [two.values(program) for program in theirs]
    if any(len(made) != len(one.places) for made in values):
        return
    for order in itertools.islice(_orders(two.shapes[0], one.shapes[0]), MOST_ORDERS):
        try:
            yield [
                [value.transpose(order).reshape(shape) for value, shape in zip(made, one.shapes, strict=True)]
                for made in values
            ]
        except ValueError:
            return


def _orders(given: tuple[int, ...], wanted: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
    """Yield orders of axes that give a shape, but for axes of one place; as it is where only all numbers fit."""
    plain = tuple(range(len(given)))
    inner = [n for n in wanted if n != 1]
    found: dict[tuple[int, ...], tuple[int, ...]] = {}
    for order in itertools.permutations(plain) if len(given) <= 5 else ():
        moved = tuple(at for at in order if given[at] != 1)
        if [given[at] for at in moved] == inner:
            found.setdefault(moved, order)
    yield from found.values() or (plain,)
