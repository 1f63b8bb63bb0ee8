"""What a value of a program is made of: the operations before it that another program has not, in words."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from parity.checks.programs.reductions import reduced_over
from parity.contract import ProgramOperation

__all__ = ["LAYOUT", "DataFlow"]

MOST_WORDS = 6
"""Operations of one line that are named."""

MOST_LINES = 4
"""Lines that are named."""

LAYOUT = frozenset(("broadcast_in_dim", "convert_element_type", "reshape", "squeeze", "copy", "view", "unsqueeze"))
LAYOUT |= {"expand", "contiguous", "to", "double", "float", "stop_gradient", "expand_as", "T", "mT", "flatten"}
"""Operations that compute nothing, named only where no others are."""


class DataFlow:
    """Operations of a program, with what each of them takes from which.

    Args:
        operations: Of the program.
        parted: Places of those whose results the other program has not.
    """

    def __init__(self, operations: Sequence[ProgramOperation], parted: Sequence[int]) -> None:
        self.operations, self.parted, self.parted_set = operations, sorted(parted), frozenset(parted)
        self._makers: list[tuple[int, ...]] = []
        self._given: list[tuple[tuple[int, int], ...]] = []
        self._parts: list[int] = []
        self._raw: list[bool] = []
        made: dict[tuple[Any, ...], int] = {}
        for at, one in enumerate(operations):
            inputs = [(made.get(_key(x), -1), place) for place, x in enumerate(one.inputs)]
            self._makers.append(tuple(source for source, _ in inputs if source in self.parted_set))
            self._given.append(tuple((at, place) for source, place in inputs if source not in self.parted_set))
            part = 1 << at if at in self.parted_set else 0
            for source in self._makers[-1] if part else ():
                part |= self._parts[source]
            self._parts.append(part)
            taken = [one.inputs[place] for source, place in inputs if source < 0]
            self._raw.append(any(x.dtype.kind == "f" and x.size > 1 for x in taken))
            for x in (*one.outputs, *(x for turn in one.turns for x in turn)):
                made[_key(x)] = at

    def part(self, at: int) -> list[int]:
        """Return the operations that make a value, back to those whose results the other program has too."""
        return [place for place in range(at + 1) if self._parts[at] >> place & 1]

    def inputs(self, at: int) -> list[tuple[int, int]]:
        """Return what goes into the part of an operation, as places of operations and of their inputs."""
        return [one for place in self.part(at) for one in self._given[place]]

    def lines(self, part: Sequence[int]) -> int:
        """Return how many lines ask for operations."""
        return len({self.operations[at].place for at in part})

    def is_raw(self, at: int) -> bool:
        """Return whether leaves or arrays go into the part of an operation that nothing has computed anything of."""
        return any(self._raw[place] for place in self.part(at))

    def words(self, part: Sequence[int]) -> str:
        """Return operations in words, line by line; empty where there are none."""
        told = [at for at in part if self.operations[at].kind not in LAYOUT] or list(part)
        lines: dict[str, list[str]] = {}
        for at in told:
            one = self.operations[at]
            lines.setdefault(one.place, []).append(f"{one.kind}{reduced_over(one)}")
        shown = [f"{_kinds(kinds)} ({place})" for place, kinds in list(lines.items())[:MOST_LINES]]
        more = len(lines) - MOST_LINES
        return " and ".join(shown) + (f" and {more} lines more" if more > 0 else "")


def _kinds(kinds: Sequence[str]) -> str:
    distinct = list(dict.fromkeys(kinds))
    more = len(distinct) - MOST_WORDS
    return ", ".join(distinct[:MOST_WORDS]) + (f" and {more} more" if more > 0 else "")


def _key(value: NDArray[Any]) -> tuple[Any, ...]:
    value = np.ascontiguousarray(value)
    return value.shape, value.dtype.kind, value.tobytes()
