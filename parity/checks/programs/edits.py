"""One thing that may be otherwise at an operation, and what is needed to say and to try it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from parity.contract import OperationEdit, ProgramOperation

__all__ = [
    "FEWEST_NUMBERS",
    "NEAREST",
    "Explanation",
    "FloatNumbers",
    "NamedValues",
    "OperationChange",
    "computed",
    "edit_of",
    "equal",
    "made_by",
    "nearest",
    "part_of_line",
    "shows",
    "told_apart",
    "turns_of",
]

FloatNumbers: TypeAlias = NDArray[np.float64]

NamedValues: TypeAlias = Mapping[str, NDArray[Any]]
"""Values that a program is given, such as leaves and arrays of the batch, by their names."""

FEWEST_NUMBERS = 5
"""Different numbers from which a function of each shows: of a mask of two numbers many make the same."""

NEAREST = 8
"""Earlier operations whose values may be taken in place of one, or added to it."""


@dataclass(frozen=True)
class OperationChange:
    """One thing that may be otherwise at an operation."""

    topic: str
    """What it is about, such as `activation`."""
    own: str
    """What the operation does."""
    other: str
    """What it does with the change."""
    rank: int
    """How narrow it is, the narrowest 0."""
    edit: OperationEdit
    rest: Mapping[int, OperationEdit] = field(default_factory=dict)
    """What is done at further operations with it."""
    whole: bool = False
    """Whether that is all: it is not tried at operations of the same kind too."""
    words: str = ""
    """Under which an operation of its kind has other settings, where it changes those."""


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
    part: str = ""
    """What of the line it is, where the line has several of its kind."""

    @property
    def phrase(self) -> str:
        """Return what differs, and in which line."""
        place = f"{self.place}, {self.part}" if self.part else self.place
        places = [f" ({place})" if at == self.side else "" for at in (0, 1)]
        return f"{self.topic}: {self.first} here{places[0]}, {self.second} there{places[1]}"


def turns_of(
    operations: Sequence[ProgramOperation], line: Sequence[int], *, apart: bool = True
) -> list[list[int]]:  # fmt: skip
    """Return the operations of a line for each time that it is computed: those that repeat, with others between.

    Args:
        operations: Of a program.
        line: Places of those that one line of it asks for, in order.
        apart: Whether there must be others between; a loop of one line has none.
    """
    shapes = [tuple(x.shape for x in operations[at].inputs) for at in line]
    axes = [tuple(len(shape) for shape in each) for each in shapes]
    # each turn may take fewer places than the one before, as steps ahead of a series do
    for each in (shapes, axes):
        kinds = [(operations[at].kind, one) for at, one in zip(line, each, strict=True)]
        if (turns := _turns(line, kinds, apart)) is not None:
            return turns
    return [list(line)]


def _turns(line: Sequence[int], kinds: list[Any], apart: bool) -> list[list[int]] | None:
    """Return a line in the shortest turns that repeat; None where none do."""
    for period in range(1, len(line) // 2 + 1):
        if len(line) % period or kinds != kinds[:period] * (len(line) // period):
            continue
        if not apart or all(line[at] - line[at - 1] > 1 for at in range(period, len(line), period)):
            return [list(line[at : at + period]) for at in range(0, len(line), period)]
    return None


def told_apart(
    operations: Sequence[ProgramOperation], names: tuple[str, str], values: tuple[NDArray[Any], NDArray[Any]]
) -> tuple[str, str]:
    """Return what two values are called; with which time they were made where a line made both by one function.

    Args:
        operations: Of a program.
        names: What they are called by their lines.
        values: They.
    """
    if names[0] != names[1]:
        return names
    told = []
    for name, value in zip(names, values, strict=True):
        at = next((n for n, one in enumerate(operations) if any(
            y.shape == value.shape and np.array_equal(y, value) for y in one.outputs)), None)  # fmt: skip
        if at is None:
            return names
        one = operations[at]
        if len(one.outputs) > 1:
            part = next(n for n, y in enumerate(one.outputs) if y.shape == value.shape and np.array_equal(y, value))
            told.append(f"part {part} of {name}")
            continue
        count = sum(two.kind == one.kind and two.place == one.place for two in operations[: at + 1])
        told.append(f"{name} (number {count} of that line)")
    return told[0], told[1]


def made_by(operations: Sequence[ProgramOperation], at: int) -> str:
    """Return what an operation makes, in words; with what of its line it is where the line has others of its kind.

    Args:
        operations: Of a program.
        at: Place of the operation.
    """
    one, part = operations[at], part_of_line(operations, [at])
    return f"what {one.kind} makes at {one.place}" + (f", {part}" if part else "")


def part_of_line(operations: Sequence[ProgramOperation], places: Sequence[int]) -> str:
    """Return what of its line the first of some operations is, where the line has others of its kind; else nothing.

    Args:
        operations: Of a program.
        places: Of those that are meant.
    """
    one = operations[places[0]]
    meant = {operations[place].text for place in places}
    others = [two.text for two in operations if two.kind == one.kind and two.place == one.place]
    return f"`{one.text}`" if one.text and any(text not in meant for text in others) else ""


def edit_of(make: Any) -> OperationEdit:
    """Return an edit that takes the one output to another.

    Args:
        make: Takes an array to an array.
    """
    return OperationEdit(after=lambda outputs, inputs, sources: (make(outputs[0]),))


def nearest(operations: Sequence[ProgramOperation], at: int, shape: tuple[int, ...]) -> list[int]:
    """Return the nearest operations before one with an output of a shape, each value once.

    Args:
        operations: All of a program, in order.
        at: Number of the one before which they lie.
        shape: Of their only output, which is floating.
    """
    found: list[int] = []
    for source in sorted(operations[at].before, reverse=True):
        outputs = operations[source].outputs
        if len(outputs) != 1 or outputs[0].shape != shape or outputs[0].dtype.kind != "f":
            continue
        if any(np.array_equal(outputs[0], operations[other].outputs[0]) for other in found):
            continue
        found.append(source)
        if len(found) == NEAREST:
            break
    return found


def computed(function: Callable[..., Any], *args: FloatNumbers) -> FloatNumbers:
    """Return what a function makes of arrays, without a warning of what is not finite."""
    with np.errstate(all="ignore"):
        return np.asarray(function(*args))


def shows(function: Callable[..., Any], x: FloatNumbers) -> bool:
    """Return whether what a function makes of a value tells it from others.

    Args:
        function: Of single numbers.
        x: The value. Of numbers of one sign ReLU and the absolute value make zeros, themselves or their negatives, as
            others do; of a mask of two numbers any function makes one of two.
    """
    made = computed(function, x)
    fewest = min(FEWEST_NUMBERS, x.size)
    plain = made.shape == x.shape and (np.array_equal(made, x) or (np.array_equal(made, -x) and (x <= 0.0).all()))
    told = np.unique(x).size >= fewest and np.unique(made).size >= fewest and bool(made.any())
    return told and (not plain or function is np.negative)


def equal(a: FloatNumbers, b: FloatNumbers) -> bool:
    """Return whether two arrays are one but for rounding; never where one is not finite.

    Args:
        a: One array.
        b: The other, whose largest element gives the scale: 1e-11 of it passes.
    """
    if a.shape != b.shape or not np.isfinite(b).all():
        return False
    with np.errstate(all="ignore"):  # a mask may be filled with the smallest number there is
        return bool(np.abs(a - b).max(initial=0.0) <= 1e-11 * float(np.abs(b).max(initial=0.0)))
