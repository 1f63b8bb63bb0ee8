"""Lengths: whole numbers that say what the shape of an array beside them says, and decide nothing by themselves."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from parity.capture import Leaf
from parity.checks.judging.evidence import TwoStates

__all__ = ["is_a_length"]


def is_a_length(path: str, states: Sequence[TwoStates]) -> bool:
    """Return whether a whole number is the length of an array of the same object, at all marks of both runs.

    As the longest sequence that a table was made for: it says what the array's shape says, and what follows from
    that is measured.

    Args:
        path: Path of the number.
        states: What the uninterrupted run and the resumed one hold, from the resume on.
    """
    owner = path[: max(path.rfind("."), path.rfind("[")) + 1]
    sides = ([both.left.leaves for both in states], [both.right.leaves for both in states])
    beside = {
        p for p, leaf in states[-1].left.leaves.items()
        if p != path and p.startswith(owner) and leaf.kind.endswith("]") and not set(p[len(owner) :]) & {".", "["}
    }  # fmt: skip
    return any(set.intersection(*(_axes_of_length(path, array, leaves) for leaves in sides)) for array in beside)


def _axes_of_length(path: str, array: str, marks: Sequence[Mapping[str, Leaf]]) -> set[int]:
    """Return the axes of an array whose length a number is, at every mark of a run that has both; one has to.

    It is one axis at all marks: small numbers are among the lengths of many arrays.
    """
    both = [(leaves[path], leaves[array].kind) for leaves in marks if path in leaves and array in leaves]
    found: set[int] | None = None
    for number, kind in both:
        sizes = re.search(r"\[([0-9x]+)\]$", kind)
        lengths = sizes[1].split("x") if sizes and number.kind == "int" else []
        here = {axis for axis, length in enumerate(lengths) if length == number.digest}
        found = here if found is None else found & here
    return found or set()
