"""What a part of a program computes, as a formula of the values that both programs have, such as `sum(a * b) / 3`.

Every sign in it is told by values: what stands as `a + b` is the sum of what it is given. A chain of operations that
makes one known function of a value, such as the pieces of a softplus, stands as that function. Letters are values
that are put into the part; one that both programs have has one letter.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from parity.checks.programs.edits import FloatNumbers, NamedValues, computed, equal
from parity.checks.programs.functions import ACTIVATIONS
from parity.checks.programs.matching import KnownValues
from parity.checks.programs.reductions import reduced_over
from parity.checks.programs.regions import LAYOUT, DataFlow
from parity.checks.programs.slices import block_taken
from parity.checks.programs.tables import is_table, table_relation, table_text
from parity.contract import ProgramOperation, TracedProgram

__all__ = ["formulas_of"]

MOST_OPERATIONS = 14
"""Operations of one formula above which it tells less than the names of its operations do."""

MOST_LETTERS = 6

ROUNDS = 3
"""In which values that one formula alone has are written out."""

FEWEST = 4
"""Different numbers of a value from which a function of it shows."""

_SIGNS: Mapping[str, Callable[[Any, Any], Any]] = {
    "+": np.add, "-": np.subtract, "*": np.multiply, "/": np.divide,
}  # fmt: skip


class FormulaLetters:
    """Letters of values, the same for a value of either program, with what each of them is.

    Args:
        names: Of values that each of the two programs is given.
        flows: What both programs do.
        both: They, at several places of their leaves and inputs.
    """

    def __init__(
        self, names: tuple[NamedValues, NamedValues], flows: Sequence[DataFlow],
        both: Sequence[Sequence[TracedProgram]],
    ) -> None:  # fmt: skip
        self.names, self.flows, self.both = names, flows, both
        self._held: list[tuple[KnownValues, str]] = []
        self._tables: dict[str, NDArray[Any]] = {}
        self.words: dict[str, str] = {}
        self.taken: dict[str, dict[int, list[tuple[int, int]]]] = {}
        """Letter to program to the operations, and their inputs, that take it."""

    @property
    def single(self) -> list[str]:
        """Return the letters of values that the formula of one program alone has."""
        return [letter for letter, sides in self.taken.items() if len(sides) == 1]

    def of(self, value: NDArray[Any], side: int, at: int, place: int) -> str:
        """Return the letter of a value, a new one where it has none.

        Args:
            value: As it is taken.
            side: Of the program that takes it.
            at: The operation that does.
            place: Of its inputs.
        """
        flat = np.asarray(value, np.float64)
        whole = value.dtype.kind in "iu"  # places and labels of which some are moved are others
        letter = next((one for known, one in self._held if _is_it(known, whole)(flat)), "")
        if not letter:
            letter = "abcdefghijklmnopqrstuvwxyz"[len(self._held) % 26]
            self._held.append((KnownValues([flat]), letter))
            self.words[letter] = self._said(_is_it(self._held[-1][0], whole), flat)
            named = any(self.words[letter] == name for names in self.names for name in names)
            if (
                not named
                and is_table(value)
                and all(
                    _same(value, (one.operations[at].inputs or one.operations[at].outputs)[place])
                    for one in self.both[side]
                )
            ):
                self._tables[letter] = value
        self.taken.setdefault(letter, {}).setdefault(side, []).append((at, place))
        return letter

    def told(self) -> dict[str, str]:
        """Return what each letter is; of numbers that are no leaves and no batch, some of them, and how they lie."""
        words = dict(self.words)
        for letter, table in self._tables.items():
            words[letter] += f", {table_text(table)}"
            for other, earlier in self._tables.items():
                if other == letter:
                    break
                if (lies := table_relation(earlier, table)) and other in self.single and letter in self.single:
                    words[letter] += f": those of {other} {lies}"
        return words

    def _said(self, has: Callable[[FloatNumbers], bool], value: FloatNumbers) -> str:
        """Return what a value is: its name, or what makes it in the first program that has it."""
        for names in self.names:
            for name, held in names.items():
                if held.size == value.size and has(np.asarray(held, np.float64)):
                    return name
        for flow in self.flows:
            for one in flow.operations:
                if one.kind in LAYOUT:
                    continue
                for turn in (one.outputs, *one.turns):
                    for part, y in enumerate(turn):
                        alike = y.size == value.size and y.dtype.kind in "bif"
                        if alike and has(np.asarray(y, np.float64)):
                            which = f"part {part} of " if len(turn) > 1 else ""
                            return f"{which}what {one.kind.strip('_')} makes at {one.place}"
        return "a given value"


def _is_it(known: KnownValues, whole: bool) -> Callable[[FloatNumbers], bool]:
    """Return what tells whether a value is one: of floats in whatever order, unless all its axes are as long."""
    if whole:
        return known.has_in_order
    return lambda value: known.has(value) and not known.has_reordered(value)


def formulas_of(
    flows: Sequence[DataFlow], both: Sequence[Sequence[TracedProgram]], parts: Sequence[Sequence[int]],
    names: tuple[NamedValues, NamedValues],
) -> tuple[str, str, Mapping[str, str]]:  # fmt: skip
    """Return what a part of each program computes, and what the letters are; empty where that is too long to be read.

    Args:
        flows: Of both programs.
        both: They, at several places of their leaves and inputs.
        parts: Places of the operations of each, of which the last makes the value.
        names: Of values that they are given.
    """
    best: tuple[str, str, Mapping[str, str]] = ("", "", {})
    fewest, wider = 10**6, [frozenset(part) for part in parts]
    ends = [part[-1] for part in parts]
    for _ in range(ROUNDS):
        letters = FormulaLetters(names, flows, both)
        here, there = (
            _written(flows[side], both[side], wider[side], ends[side], letters, side) for side in (0, 1)
        )  # fmt: skip
        if not (here and there):
            break
        alike = _is_one(here, there)
        if len(letters.single) + 10 * alike < fewest:
            best, fewest = (here, there, letters.told()), len(letters.single) + 10 * alike
        if not letters.single:
            break
        # a value that one side alone has is told by what it is made of
        for letter in letters.single:
            for side, taken in letters.taken[letter].items():
                wider[side] |= {source for one in taken for source in _makers(flows[side], *one)}
    if not _is_one(*best[:2]):
        return best
    letters = FormulaLetters(names, flows, both)
    here, there = (
        _written(flows[side], both[side], frozenset(parts[side]), ends[side], letters, side, shapes=True)
        for side in (0, 1)
    )
    return (here, there, letters.told()) if here and there and not _is_one(here, there) else ("", "", {})


def _is_one(here: str, there: str) -> bool:
    """Return whether two formulas say the same, but for the names of one function in both frameworks.

    A value is known by one of several places: one that is changed at another alone, as by a bound that holds at the
    first, has the letter of what it was before.
    """
    return here.replace("reduce_", "") == there.replace("reduce_", "")


def _written(
    flow: DataFlow, programs: Sequence[TracedProgram], part: frozenset[int], end: int, letters: FormulaLetters,
    side: int, *, shapes: bool = False,
) -> str:  # fmt: skip
    writer = _FormulaWriter(flow, programs, part, letters, side, shapes)
    text = writer.value(end, 0)
    return text if writer.count <= MOST_OPERATIONS and len(letters.words) <= MOST_LETTERS else ""


def _makers(flow: DataFlow, at: int, place: int) -> list[int]:
    """Return the operation that makes what another takes, and those before it that lay it otherwise alone."""
    found: list[int] = []
    if place >= len(flow.operations[at].inputs):
        return found
    x = flow.operations[at].inputs[place]
    while True:
        source = next((n for n in range(at - 1, -1, -1) if _gives(flow.operations[n], x)), -1)
        if source < 0:
            return found
        found.append(source)
        one = flow.operations[source]
        if one.kind not in LAYOUT or not one.inputs:
            return found
        at, x = source, one.inputs[0]


class _FormulaWriter:
    def __init__(
        self, flow: DataFlow, programs: Sequence[TracedProgram], part: frozenset[int], letters: FormulaLetters,
        side: int, shapes: bool,
    ) -> None:  # fmt: skip
        self.flow, self.programs, self.part, self.letters = flow, programs, part, letters
        self.side, self.shapes = side, shapes
        self.count = 0
        self._makers: dict[tuple[int, int], int] = {}
        for at in part:
            for place, x in enumerate(flow.operations[at].inputs):
                source = next((n for n in sorted(part, reverse=True) if n < at and _gives(flow.operations[n], x)), -1)
                self._makers[at, place] = source

    def value(self, at: int, binds: int) -> str:
        """Return the formula of what an operation makes, in brackets where what is around it binds more.

        Args:
            at: Place of the operation.
            binds: 0 for nothing around it, 1 beside a sum, 2 beside a product, 3 behind a division, 4 for a power.
        """
        one = self.flow.operations[at]
        self.count += 1
        if self.count > MOST_OPERATIONS:
            return "..."
        if not one.inputs and one.outputs[0].size > 1:  # a batch that is made a tensor
            return self.letters.of(one.outputs[0], self.side, at, 0)
        if known := self._function(at):
            return known
        floats = [n for n, x in enumerate(one.inputs) if x.dtype.kind in "bif"]
        if len(floats) == 1 and (one.kind in LAYOUT or self._lays(at, floats[0])):
            self.count -= 1
            return self._taken(at, floats[0], binds)
        if (place := self._index(at)) >= 0:
            return self._taken(at, place, binds)
        if sign := self._sign(one):
            word, i, j = sign
            left, right = (self._operand(at, n, binding) for n, binding in
                           ((i, _LEFT[word]), (j, _RIGHT[word])))  # fmt: skip
            text = f"{left} {word} {right}"
            return f"({text})" if binds > _BINDS[word] else text
        if power := self._power(one):
            return f"{self._taken(at, 0, 4)}^{power}"
        floats = [place for place, x in enumerate(one.inputs) if x.dtype.kind in "fi"]
        if len(floats) == 1 and (block := block_taken(one.inputs[floats[0]], one.outputs[0])):
            return f"{self._taken(at, floats[0], 4)}[{block}]"
        given = [self._taken(at, place, 0) for place in range(len(one.inputs))]
        plain = [f"{key}={number:.6g}" if not key.isdigit() else f"{number:.6g}"
                 for key, number in one.numbers.items() if f"{number:.6g}" not in given]  # fmt: skip
        over = reduced_over(one).strip()
        return f"{one.kind.strip('_')}({', '.join([*given, *plain, *([over] if over else [])])})"

    def _lays(self, at: int, place: int) -> bool:
        """Return whether an operation gives the numbers that it takes, in their order, in other axes."""
        pairs = [(one.operations[at].inputs[place], one.operations[at].outputs) for one in self.programs]
        return all(len(made) == 1 and x.size == made[0].size > 1 and np.array_equal(x.ravel(), made[0].ravel())
                   for x, made in pairs)  # fmt: skip

    def _index(self, at: int) -> int:
        """Return which whole numbers an operation gives as they are, as one that counts from the end; -1 for none."""
        one = self.flow.operations[at]
        for place, x in enumerate(one.inputs if one.outputs[0].dtype.kind in "iu" and len(one.inputs) > 1 else ()):
            if x.dtype.kind in "iu" and x.size > 1 and self._lays(at, place):
                return place
        return -1

    def _function(self, at: int) -> str:
        """Return what an operation makes as one function of a value in its part, where several operations make it."""
        y = self.flow.operations[at].outputs[0]
        own = self.flow.operations[at].inputs
        for place in sorted(self.part):
            for index, x in enumerate(self.flow.operations[place].inputs if place < at else ()):
                if x.shape != y.shape or x.dtype.kind != "f" or any(_same(x, z) for z in own):
                    continue
                if np.unique(x).size < FEWEST or equal(x, y):
                    continue
                name = next((name for name, f in ACTIVATIONS.items() if equal(computed(f, x), y)), "")
                if name:
                    return f"{name}({self._taken(place, index, 0)})"
        return ""

    def _power(self, one: ProgramOperation) -> str:
        """Return the whole power of its input that an operation is without a number for it; empty for others."""
        if one.kind == "integer_pow" and len(one.inputs) == 1:
            for power in (2, 3, 4, -1, -2):
                if equal(computed(np.power, one.inputs[0], np.asarray(float(power))), one.outputs[0]):
                    return str(power)
        return ""

    def _sign(self, one: ProgramOperation) -> tuple[str, int, int] | None:
        """Return which arithmetic of two of its operands makes an operation's output, told by values."""
        y = one.outputs[0]
        operands = [*one.inputs, *(np.asarray(number) for number in one.numbers.values())]
        operands = [
            x for n, x in enumerate(operands) if n < len(one.inputs) or not any(_same(x, z) for z in one.inputs)
        ]
        if len(operands) != 2 or y.dtype.kind != "f":
            return None
        for word, function in _SIGNS.items():
            for i, j in ((0, 1), (1, 0)):
                try:
                    made = computed(function, operands[i], operands[j])
                except (ValueError, TypeError):
                    continue
                if equal(np.asarray(made, np.float64), y):
                    return word, i, j
        return None

    def _operand(self, at: int, place: int, binds: int) -> str:
        one = self.flow.operations[at]
        if place < len(one.inputs):
            return self._taken(at, place, binds)
        return f"{next(iter(one.numbers.values())):.6g}"

    def _taken(self, at: int, place: int, binds: int) -> str:
        """Return what an operation takes: a number, a formula, or a letter."""
        x = self.flow.operations[at].inputs[place]
        if (number := self._number(at, place)) is not None:
            return number
        source = self._makers[at, place]
        if source >= 0 and len(self.flow.operations[source].outputs) > 1:
            if (part := self._part(source, x)) is not None:
                return part
        elif source >= 0:
            return self.value(source, binds)
        letter = self.letters.of(x, self.side, at, place)
        return f"{letter}{list(x.shape)}" if self.shapes else letter

    def _part(self, at: int, x: NDArray[Any]) -> str | None:
        """Return the formula of one of the values that an operation gives; None where it is no block of one."""
        one = self.flow.operations[at]
        floats = [place for place, y in enumerate(one.inputs) if y.dtype.kind in "fi" and y.size > 1]
        block = block_taken(one.inputs[floats[0]], x) if len(floats) == 1 else ""
        return f"{self._taken(at, floats[0], 4)}[{block}]" if block else None

    def _number(self, at: int, place: int) -> str | None:
        """Return a number that is the same at all draws; None for any other value."""
        found = [one.operations[at].inputs[place] for one in self.programs]
        first = found[0].ravel()
        if not first.size or found[0].dtype.kind not in "bif" or (first != first[0]).any():
            return None
        maker = self._makers[at, place]
        if maker >= 0 and any(x.size > 1 for x in self.flow.operations[maker].inputs):
            return None  # of more than one number something is made, if the same at all draws
        alike = all(x.size and (x == first[0]).all() for x in found)
        return f"{float(first[0]):.6g}" if alike else None


_BINDS = {"+": 1, "-": 1, "*": 2, "/": 2}
_LEFT = {"+": 1, "-": 1, "*": 2, "/": 2}
_RIGHT = {"+": 1, "-": 2, "*": 2, "/": 3}


def _gives(one: ProgramOperation, x: NDArray[Any]) -> bool:
    return any(_same(y, x) for y in itertools.chain(one.outputs, *one.turns))


def _same(a: FloatNumbers, b: FloatNumbers) -> bool:
    return a.shape == b.shape and a.dtype.kind == b.dtype.kind and np.array_equal(a, b)
