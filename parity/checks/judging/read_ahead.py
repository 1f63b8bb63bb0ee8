"""Blocks that are read ahead: a list of values and a place in it, which two processes have otherwise and give alike.

A reader takes six lines at once and hands them out one by one; a resumed one reads its first six from where training
is. The block and the place in it differ from then on, and what is handed out does not: that is looked at value by
value, from the place on, at every mark, and beyond the end of a block in both runs.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from typing import Any

from parity.capture import Leaf, PathLeaves
from parity.checks.judging.evidence import TwoStates

__all__ = ["blocks_beside", "gives_alike", "is_of_rows", "is_read_ahead"]

_LEAST = 3
"""Fewest marks at which the places differ and both blocks have values to come."""


def is_read_ahead(path: str, states: Sequence[TwoStates]) -> bool:
    """Return whether a path is of such a block, or is the place in one.

    Args:
        path: A path that differs.
        states: What the uninterrupted run and the resumed one hold, from the resume on.
    """
    leaves = states[0].left.leaves
    ends = [path[:at] for at, letter in enumerate(path) if letter == "["] + [path.removesuffix(".len")]
    block = next((one for one in ends if f"{one}.len" in leaves), "")
    owner = (block or path)[: (block or path).rfind(".") + 1]
    beside = [
        one for one in leaves if one.startswith(owner) and one[len(owner) :].removesuffix(".len").isidentifier()
    ]
    if block:
        return any(_gives_alike(one, block, states) for one in beside if leaves[one].kind == "int")
    return any(_gives_alike(path, one.removesuffix(".len"), states) for one in beside if one.endswith(".len"))


def _gives_alike(place: str, block: str, states: Sequence[TwoStates]) -> bool:
    """Return whether both runs have the same elements of a list from the place on."""
    places, rests = [], []
    for both in states:
        sides = both.left.leaves, both.right.leaves
        if any(f"{block}.len" not in side or place not in side or side[place].kind != "int" for side in sides):
            return False
        here, there = (int(side[place].digest) for side in sides)
        places.append((here, there))
        rests.append((_rest(block, here, sides[0]), _rest(block, there, sides[1])))
    return bool(gives_alike(places, rests))


def blocks_beside(path: str, states: Sequence[TwoStates]) -> list[str]:
    """Return the arrays of rows that a whole number may be the place in: beside it, and others after the resume.

    Args:
        path: A path that differs.
        states: What the uninterrupted run and the resumed one hold, from the resume on.

    Returns:
        Their paths; none where the path is of no whole number.
    """
    both, owner = states[0], path[: path.rfind(".") + 1]
    leaf = both.left.leaves.get(path)
    if leaf is None or leaf.kind != "int" or not path[len(owner) :].isidentifier():
        return []
    beside = {
        one
        for state in states
        for one in state.differing()
        # what each step sets before it takes it, such as a gradient, is no block: nothing is left of it
        if one.startswith(owner) and one[len(owner) :].isidentifier() and not state.is_dead(one)
    }
    return sorted(one for one in beside if is_of_rows(one, states))


def is_of_rows(path: str, states: Sequence[TwoStates]) -> bool:
    """Return whether a path is of an array that has rows, in the uninterrupted run at the resume.

    Args:
        path: The path.
        states: As of `blocks_beside`.
    """
    leaf = states[0].left.leaves.get(path)
    return leaf is not None and leaf.role == "array" and bool(_ROWS.search(leaf.kind))


_ROWS = re.compile(r"\[\d")


def gives_alike(
    places: Sequence[tuple[int, int]], rests: Sequence[tuple[Sequence[Any], Sequence[Any]]]
) -> bool | None:
    """Return whether both runs have the same values from a place on, at all marks and beyond the end of a block.

    None where they have, as far as is seen, and that is not beyond the end of a block in both.

    Args:
        places: The place in both runs, at each mark; it falls where another block begins.
        rests: What is left of the block in both, at each mark.
    """
    compared, used_up, values = 0, True, set[Any]()
    later = [*(at[0] == at[1] and rest[0] == rest[1] for at, rest in zip(places, rests, strict=True)), False][1:]
    for (here, there), (own, other), joins in zip(places, rests, later, strict=True):
        if any(one != two for one, two in zip(own, other, strict=False)):
            return False
        both_left = bool(own) and bool(other)
        compared += both_left and here != there
        # nothing is to come of either, and both read the next block; or one reads what the other has, as is seen then
        used_up &= here == there or not (own or other) or (not both_left and joins)
        values.update(one for one, _ in zip(own, other, strict=False))
    courses = zip(*places, strict=True)
    begun_again = [any(b < a for a, b in itertools.pairwise(course)) for course in courses]
    if len(values) > 1 and ((all(begun_again) and compared >= _LEAST) or (begun_again[0] and used_up)):
        return True
    return None if len(values) > 1 and compared else False


def _rest(block: str, place: int, leaves: PathLeaves) -> list[tuple[tuple[str, str], ...]]:
    """Return the elements of a list from a place on, each as the leaves that it is made of."""
    found: dict[int, list[tuple[str, str]]] = {}
    for path, leaf in leaves.items():
        if path.startswith(f"{block}["):
            number, _, rest = path[len(block) + 1 :].partition("]")
            if number.isdigit():
                found.setdefault(int(number), []).append((rest, _value(leaf)))
    length = int(leaves[f"{block}.len"].digest)
    return [tuple(sorted(found.get(at, ()))) for at in range(place, length)] if place >= 0 else []


def _value(leaf: Leaf) -> str:
    return f"{leaf.kind} {leaf.digest}"
