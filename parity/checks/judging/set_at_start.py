"""What the beginning of a process alone sets: how many began before it, its own number, a list that it adds to.

Such a value is the same at all marks of a run, of the next process one higher or one element longer, and no code of
a step sets it. What has it in a file says which process wrote that: the checkpoint, a row, a line. A value that was
lost is none of these: it would be as in a new process, and so as in the run that nothing stopped.
"""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from parity.capture import Leaf, digest_of
from parity.checks.judging.evidence import Uninterrupted
from parity.checks.judging.ordering import identifiers, is_variable
from parity.checks.judging.syntax import by_function, in_loops, last_name, source_tree
from parity.checks.judging.usage import Use
from parity.checks.running import Mark

__all__ = ["SetAtStart", "set_at_start"]

_CHANGING = frozenset(
    ("add", "append", "appendleft", "clear", "discard", "extend", "fill", "insert", "pop", "popitem", "popleft",
     "remove", "reverse", "setdefault", "sort", "update")
)  # fmt: skip
"""Methods of Python's containers and of arrays that change what is in them."""

NumbersOfList = tuple[str, ...]
"""Numbers of a list as their leaves have them."""


@dataclass(frozen=True)
class SetAtStart:
    """What the beginning of an uninterrupted process set, each with what the beginning of a resumed one did."""

    numbers: frozenset[tuple[str, str]] = frozenset()
    """Of several processes that were killed in turn, the numbers of all of them."""
    lists: frozenset[tuple[NumbersOfList, NumbersOfList]] = frozenset()
    """Lists of numbers."""
    arrays: frozenset[tuple[Leaf, Leaf]] = frozenset()
    """Arrays of one axis."""

    def has(self, leaf: Leaf, other: Leaf | None) -> bool:
        """Return whether a value in a file is one that each process sets when it begins.

        Args:
            leaf: What the uninterrupted run left.
            other: What the resumed one left.
        """
        if other is None:
            return False
        if (leaf.digest, other.digest) in self.numbers:
            return True
        if not all(_AXIS.fullmatch(one.kind) for one in (leaf, other)):
            return False
        if any(leaf.same(a) and other.same(b) for a, b in self.arrays):
            return True
        return any(_is_array_of(leaf, a) and _is_array_of(other, b) for a, b in self.lists)


_AXIS = re.compile(r"(?:u?int|float)\d+\[(\d+)\]")


def _is_array_of(leaf: Leaf, values: NumbersOfList) -> bool:
    """Return whether an array of one axis holds these numbers."""
    dtype, _, size = leaf.kind.rstrip("]").partition("[")
    if int(size) != len(values):
        return False
    try:
        return leaf.digest == digest_of(np.array([float(one) for one in values]).astype(dtype).tobytes())
    except (ValueError, OverflowError):
        return False


def set_at_start(
    marks: Sequence[Mark], resumed: Sequence[Mark], restarts: int, uninterrupted: Uninterrupted
) -> SetAtStart:
    """Return what the beginning of a process alone sets, and differs in a process that resumed.

    Args:
        marks: Marks of the uninterrupted run.
        resumed: Marks of the resumed one.
        restarts: Processes before it.
        uninterrupted: What equal runs say.
    """
    left, right = (_resting([mark.snapshot.leaves for mark in run]) for run in (marks, resumed))
    lists = {
        path.removesuffix(".len"): (_elements(path, left), _elements(path, right))
        for path, leaf in left.items()
        if leaf.role == "structure" and path.endswith(".len") and _is_further(leaf, right.get(path), restarts)
    }
    lists = {
        path: both
        for path, both in lists.items()
        if _begins_with(path, left, right, uninterrupted.noise) and not _is_set_by_steps(path, uninterrupted.use)
    }
    numbers = {
        path: (leaf.digest, right[path].digest)
        for path, leaf in left.items()
        if leaf.role == "scalar"
        and leaf.kind == "int"
        and _is_further(leaf, right.get(path), restarts)
        and not _is_set_by_steps(path, uninterrupted.use)
    }
    arrays = [
        (leaf, right[path])
        for path, leaf in left.items()
        if leaf.role == "array"
        and _is_longer(leaf, right.get(path), restarts)
        and not _is_set_by_steps(path, uninterrupted.use)
    ]
    # a count that steps change, and that was lost, may be the same number at some mark
    counts = {pair for path, pair in _differing(marks, resumed) if path not in numbers}
    told = {(one, str(at)) for one, last in numbers.values() for at in range(int(one) + 1, int(last) + 1)}
    return SetAtStart(frozenset(told) - counts, frozenset(lists.values()), frozenset(arrays))


def _is_further(leaf: Leaf, other: Leaf | None, restarts: int) -> bool:
    """Return whether a whole number is higher, by one for each process at most."""
    if other is None or other.kind != leaf.kind:
        return False
    texts = (leaf.digest, other.digest)
    if not all(map(_WHOLE.fullmatch, texts)):  # a number of many digits, such as a mask of bits, has a hash instead
        return False
    here, there = map(int, texts)
    return 0 < there - here <= restarts


_WHOLE = re.compile(r"-?\d+")


def _is_longer(leaf: Leaf, other: Leaf | None, restarts: int) -> bool:
    """Return whether an array of one axis has more elements, by one for each process at most."""
    here, there = _AXIS.fullmatch(leaf.kind), _AXIS.fullmatch(other.kind if other is not None else "")
    return here is not None and there is not None and 0 < int(there[1]) - int(here[1]) <= restarts


def _resting(marks: Sequence[Mapping[str, Leaf]]) -> dict[str, Leaf]:
    """Return the plain values, lengths and arrays that are the same at all marks of a run."""
    first, *others = marks
    found = {path: leaf for path, leaf in first.items() if leaf.role in ("scalar", "structure", "array")}
    return {path: leaf for path, leaf in found.items() if all(leaf.same(later.get(path)) for later in others)}


def _elements(path: str, leaves: Mapping[str, Leaf]) -> NumbersOfList:
    """Return the numbers of a list, as far as it holds some."""
    start = path.removesuffix(".len")
    found = (leaves.get(f"{start}[{at}]") for at in range(int(leaves[path].digest)))
    return tuple(leaf.digest if leaf is not None else "" for leaf in found)


def _begins_with(path: str, left: Mapping[str, Leaf], right: Mapping[str, Leaf], noise: Collection[str]) -> bool:
    """Return whether all that a list of the uninterrupted run holds is in the other's, or differs by chance."""
    inside = [one for one in left if one.startswith(f"{path}[")]
    return all(one in noise or left[one].same(right.get(one)) for one in inside)


def _differing(marks: Sequence[Mark], resumed: Sequence[Mark]) -> Iterator[tuple[str, tuple[str, str]]]:
    """Yield the whole numbers in which both runs differ at marks of the same step."""
    known = {mark.step: mark.snapshot.leaves for mark in marks}
    for mark in resumed:
        there = known.get(mark.step, {})
        for path, leaf in mark.snapshot.leaves.items():
            if leaf.kind == "int" and leaf.role == "scalar" and path in there and not leaf.same(there[path]):
                yield path, (there[path].digest, leaf.digest)


def _is_set_by_steps(path: str, use: Use) -> bool:
    """Return whether code that ran after the first mark sets a value, or changes what is in it."""
    name = (identifiers(path) or [path])[-1]
    places = {(file, line) for file in use.files for line, names in _set_in_steps(file, use.marking) if name in names}
    if is_variable(path):
        return use.marking in places
    return any(use.ran(file, line) for file, line in places)


@functools.lru_cache(maxsize=64)
def _set_in_steps(file: str, marking: tuple[str, int]) -> tuple[tuple[int, frozenset[str]], ...]:
    """Return for each function, by its first line, the names that it sets; of the one that marks, in its loops."""
    tree = source_tree(file)
    found: dict[int, set[str]] = {}
    for node, line in by_function(tree):
        if (file, line) == marking and node not in in_loops(tree):
            continue
        match node:
            case ast.Name(ctx=ast.Store() | ast.Del()) | ast.Attribute(ctx=ast.Store() | ast.Del()):
                found.setdefault(line, set()).add(last_name(node))
            case ast.Subscript(value=base, ctx=ast.Store() | ast.Del()):  # `table["last"] = 1` sets both
                found.setdefault(line, set()).update((last_name(base), last_name(node)))
            case ast.Call(func=ast.Attribute(value=base, attr=method)) if method in _CHANGING:
                found.setdefault(line, set()).add(last_name(base))
    return tuple((line, frozenset(names - {""})) for line, names in found.items())
