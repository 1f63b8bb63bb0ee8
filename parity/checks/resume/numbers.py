"""Trainers of single numbers: which of them are state, told by what the trainer saves.

Where there is an array, what takes part in training is one. Weights in plain lists look like any other numbers: a
loss, a mean for people. The trainer says which are state, as it writes them into its checkpoint: there such a number
is found digit by digit. One that is another at the end of a resumed run is what the next save would have lost.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from parity.capture import Leaf
from parity.checks.judging import Evidence, text_of
from parity.checks.resume.trained import NUMBERS
from parity.checks.running import Mark, Trace

__all__ = ["lost_numbers"]

DIGITS = 6
"""Fewest digits of a number that is known again by them: 0.5 and 1.0 are in many files."""


def lost_numbers(
    reference: Trace, resumed: Trace, files: Mapping[str, Leaf], noise: Collection[str]
) -> list[Evidence]:
    """Return the numbers that a checkpoint holds and that a resumed run ends with otherwise.

    Args:
        reference: The uninterrupted run.
        resumed: The run of the process that resumed.
        files: What the folder held at the kill, decoded.
        noise: Paths that differ between equal runs.
    """
    ends = (reference.marks[-1].snapshot, resumed.marks[-1].snapshot) if resumed.marks else None
    if ends is None or reference.steps[-1] != resumed.steps[-1]:
        return []
    written = {_digits(leaf.digest) for leaf in files.values()}
    step = reference.steps[-1]
    found = []
    for path, leaf in ends[0].leaves.items():
        other = ends[1].leaves.get(path)
        differs = other is not None and other.digest != leaf.digest
        if not differs or path in noise or ends[0].is_dead(path) or not NUMBERS.fullmatch(leaf.kind):
            continue
        if _was_saved(path, reference.marks, written):
            found.append(Evidence(leaf.component, path, step, leaf.text, text_of(other), "at the end"))
    return found


def _was_saved(path: str, marks: Sequence[Mark], written: Collection[str]) -> bool:
    """Return whether one of the values that a number has had is in what was written."""
    leaves = (mark.snapshot.leaves.get(path) for mark in marks)
    values = {_digits(leaf.digest) for leaf in leaves if leaf is not None}
    return any(value in written for value in values if sum(letter.isdigit() for letter in value) >= DIGITS)


def _digits(text: str) -> str:
    """Return a number as Python writes it, without what a kind adds: quotes, or the name of a class."""
    return text.removeprefix("Decimal(").removeprefix("Fraction(").rstrip(")").strip("'\"")
