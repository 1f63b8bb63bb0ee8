"""What is trained: the values of a run that can be what it learns; without any, a check has seen nothing."""

from __future__ import annotations

import itertools
import re
from collections.abc import Collection, Sequence

from parity.capture import PathLeaves
from parity.checks.running import Mark

__all__ = ["NUMBERS", "count_trained"]

NUMBERS = re.compile(r"(numpy\.)?(float|complex)\d*|Fraction|Decimal")
"""Kinds of single numbers that a trainer without arrays moves."""

MOVES = 3
"""Fewest steps in which whole numbers change that are taken for what is trained."""


def count_trained(marks: Sequence[Mark], changing: Collection[str]) -> tuple[int, list[str], bool]:
    """Return how many values of a run change that can be what it trains.

    Arrays of floating numbers; where there are none, single numbers, one of which changes in most steps: weights of a
    trainer without libraries, values of a table. A loss that a step makes for itself is not one of them: it is
    written before it is read. Where no such number changes either, whole numbers of arrays and of containers, such as
    counts of words or bits of automata, are taken for it, and that is said.

    Args:
        marks: Marks of the run, at least one.
        changing: Paths whose value changes in it.

    Returns:
        How many; what is to be said of them; whether they are single floating numbers.
    """
    states = [mark.snapshot for mark in marks]
    last = states[-1]
    there = [path for path in changing if path in last.leaves]
    arrays = sum(last.leaves[p].role in ("state", "array") and "float" in last.leaves[p].kind for p in there)
    if arrays:
        return arrays, [], False
    there = [path for path in there if not last.is_dead(path)]
    known, least = [p for p in there if NUMBERS.fullmatch(last.leaves[p].kind)], len(states) / 2
    whole = not known
    if whole:
        known, least = [p for p in there if _is_whole(p, last.leaves)], MOVES
    pairs = [(a.leaves, b.leaves) for a, b in itertools.pairwise(states)]
    if sum(any(p in b and not b[p].same(a.get(p)) for p in known) for a, b in pairs) < least:
        return 0, [], False
    some = ", ".join(sorted(known)[:3])
    said = [f"no floating value changes: whole numbers are taken for what is trained, as {some}"]
    return len(known), said if whole else [], not whole


def _is_whole(path: str, leaves: PathLeaves) -> bool:
    """Return whether a value is one of many whole numbers: an array of them, or an element of a container.

    One by itself, such as a count of steps, says nothing of what is trained.
    """
    leaf, holder = leaves[path], path[: max(path.rfind("."), path.rfind("["))]
    if leaf.role == "array":
        return leaf.kind.startswith(("int", "uint", "bool"))
    return leaf.role == "scalar" and leaf.kind == "int" and f"{holder}.len" in leaves
