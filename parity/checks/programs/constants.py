"""One constant that a program uses at several places, with what is made of it: a step size, or a share and its rest.

A step h stands as h, as h / 2 and as the times of a loop, and a weight of 0.25 beside one of 0.75. So the numbers
of one program that the other has not are changed together: all by one ratio, or each into one of the other's.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator, Mapping, Sequence

from parity.checks.programs.edits import Explanation, OperationChange
from parity.checks.programs.numbers import COUNTS
from parity.checks.programs.trials import ProgramTrial
from parity.contract import OperationEdit

__all__ = ["linked_numbers"]

MOST_TRIALS = 40

MOST_NUMBERS = 12
"""Numbers that one of two programs alone has, above which none of them are tried together."""

MOST_PAIRED = 4
"""The same of numbers that are paired in any order."""

SAME = 1e-9

_Places = Mapping[float, Sequence[tuple[int, str]]]


def linked_numbers(search: ProgramTrial) -> list[Explanation]:
    """Return numbers at several places of a program that, changed together, make it give what is wanted.

    Args:
        search: Of the program.
    """
    own = _own(search)
    theirs = search.candidates.numbers
    mine = {value: places for value, places in own.items() if not _among(value, theirs)}
    others = [value for value in theirs if value and not _among(value, own)]
    if not search.limit > 0.0 or not (0 < len(mine) <= MOST_NUMBERS and 0 < len(others) <= MOST_NUMBERS):
        return []
    if sum(map(len, mine.values())) < 2:
        return []  # that is a number of one operation
    for new in itertools.islice(_ways(list(mine), others), MOST_TRIALS):
        if time.process_time() > search.end:
            break
        places = [(at, key, new[value]) for value in new for at, key in mine[value]]
        numbers: dict[int, dict[str, float]] = {}
        for at, key, value in places:
            numbers.setdefault(at, {})[key] = value
        edits = {at: OperationEdit(numbers=held) for at, held in numbers.items()}
        if len(places) > 1 and search.fits(edits):
            first = min(edits)
            told = sorted(new, key=lambda value: min(at for at, _ in mine[value]))
            mine_said, other_said = (_said(side) for side in (told, [new[value] for value in told]))
            topic = "number at several places" if len(told) == 1 else "numbers at several places"
            return [search.explanation(OperationChange(topic, mine_said, other_said, 2, edits[first]), first, edits)]
    return []


def _said(numbers: Sequence[float]) -> str:
    return " and ".join(f"{one:.10g}" for one in numbers)


def _own(search: ProgramTrial) -> dict[float, list[tuple[int, str]]]:
    """Return the numbers that operations of a program are given to compute with, and where."""
    found: dict[float, list[tuple[int, str]]] = {}
    for at, one in enumerate(search.operations):
        if one.kind in COUNTS or len(one.outputs) != 1 or one.outputs[0].dtype.kind != "f":
            continue
        for key, value in one.numbers.items():
            if value:
                found.setdefault(value, []).append((at, key))
    return found


def _among(value: float, numbers: Iterator[float] | frozenset[float] | Mapping[float, object]) -> bool:
    return any(abs(value - one) <= SAME * abs(one) for one in numbers)


def _ways(mine: Sequence[float], others: Sequence[float]) -> Iterator[dict[float, float]]:
    """Yield what numbers may be in their place: first those of which one ratio makes most numbers of the other."""
    ratios: dict[str, tuple[float, dict[float, float]]] = {}
    for a, b in itertools.product(mine, others):
        held = {value: value * b / a for value in mine if _among(value * b / a, frozenset(others))}
        ratios.setdefault(f"{b / a:.9g}", (b / a, held))
    ordered = sorted(ratios.values(), key=lambda one: -len(one[1]))
    for ratio, held in ordered:
        if len(held) == len(mine) or len(held) > 1:
            yield held
        if len(held) < len(mine):
            yield {value: value * ratio for value in mine}
    if len(mine) <= min(len(others), MOST_PAIRED) and len(others) <= MOST_PAIRED:
        for order in itertools.permutations(others, len(mine)):
            yield dict(zip(mine, order, strict=True))
