"""Blocks that are read ahead: a list of values and a place in it, which two processes have otherwise and give alike.

A reader takes six lines at once and hands them out one by one; a resumed one reads its first six from where training
is. The block and the place in it differ from then on, and what is handed out does not: that is looked at value by
value, from the place on, at every mark, and beyond the end of a block in both runs.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Sequence
from typing import Any

from parity.capture import Leaf, PathLeaves
from parity.checks.judging.evidence import TwoStates

__all__ = ["block_beside", "gives_alike", "is_read_ahead"]

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
    if any(f"{block}.len" not in leaves for both in states for leaves in (both.left.leaves, both.right.leaves)):
        return False
    held = [(both.left.leaves, both.right.leaves) for both in states]
    return bool(gives_alike(place, states, lambda number, side, at: _rest(block, at, held[number][side])))


def block_beside(path: str, states: Sequence[TwoStates]) -> str:
    """Return the one array of rows that a whole number may be the place in: beside it, and another after the resume.

    Args:
        path: A path that differs.
        states: What the uninterrupted run and the resumed one hold, from the resume on.

    Returns:
        The path of the array; empty where there is none, or several.
    """
    both, owner = states[0], path[: path.rfind(".") + 1]
    leaf = both.left.leaves.get(path)
    if leaf is None or leaf.kind != "int" or not path[len(owner) :].isidentifier():
        return ""
    found = [
        one
        for one in {one for state in states for one in state.differing()}
        if one.startswith(owner) and one[len(owner) :].isidentifier() and one in both.left.leaves
        and both.left.leaves[one].role == "array" and _ROWS.search(both.left.leaves[one].kind)
    ]  # fmt: skip
    return found[0] if len(found) == 1 else ""


_ROWS = re.compile(r"\[(?!1\b)\d")
"""Of the kind of an array of more than one row."""


def gives_alike(
    place: str, states: Sequence[TwoStates], rest: Callable[[int, int, int], Sequence[Any]]
) -> bool | None:
    """Return whether both runs have the same values from the place on, at all marks and beyond the end of a block.

    None where they have, as far as is seen, and that is not beyond the end of a block in both.

    Args:
        place: Path of the place in the block.
        states: What the uninterrupted run and the resumed one hold, from the resume on.
        rest: Returns what is left of a block, of a number among the states, a side of it and a place.
    """
    compared, used_up, values = 0, True, set[Any]()
    places: tuple[list[int], list[int]] = ([], [])
    for number, both in enumerate(states):
        rests = []
        for side, leaves in enumerate((both.left.leaves, both.right.leaves)):
            if place not in leaves or leaves[place].kind != "int":
                return False
            places[side].append(int(leaves[place].digest))
            rests.append(rest(number, side, places[side][-1]))
        pairs = list(zip(*rests, strict=False))
        if any(one != other for one, other in pairs):
            return False
        apart = places[0][-1] != places[1][-1]
        compared += bool(pairs) and apart
        used_up &= not (apart and any(rests))  # nothing is to come of either: both read the next block
        values.update(one for one, _ in pairs)
    begun_again = [any(b < a for a, b in itertools.pairwise(at)) for at in places]
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
