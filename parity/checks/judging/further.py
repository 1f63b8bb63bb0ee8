"""What the resumed run alone left in files that both runs have: keys, elements, rows, arrays, and lines of texts.

In a document that is written whole one thing more is as much a difference as one less: an event that is recorded a
second time. A log is another matter: a process adds lines to it when it begins or goes on, so those are listed.

The steps between a save and a kill are made again, and write what they record once more. Lines of texts are told by
their words (`running.lines`). In files of records, such as a stream of pickles or the rows of a database, a stretch
stands twice: all else is as it should be, so it hides no other value.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path

import numpy as np

from parity.capture import Leaf, PathLeaves
from parity.checks.judging.process_start import ProcessStart
from parity.checks.running import CURVES, without_digits

__all__ = ["further", "has_bytes_twice", "lists_with_a_stretch_twice"]

_ELEMENT = re.compile(r"\[(\d+)\]")
"""A number of an element in a path."""

_Records = dict[int, dict[str, str]]
"""Number of an element to what is in it: path below the element to value."""

_AGAIN = re.compile(r" \(\d+\)$")
"""At the end of a line that a file has several times: which of them it is."""


def further(
    expected: PathLeaves,
    again: PathLeaves,
    got: PathLeaves,
    names: Collection[str],
    begun: ProcessStart,
    logs: Collection[str] = (),
) -> Iterator[tuple[str, Leaf, bool]]:
    """Yield what the resumed run alone left, and whether it counts.

    Lines are told by their words: those of a kind of their own, such as `resumed from 12`, say where a process began.
    So do values that a process left before its first mark, or held from it on. What two equal runs have at paths of
    their own is kept by chance, such as by times, and what stands twice counts once.

    Args:
        expected: What the uninterrupted run left: `file: path in it` to leaf.
        again: What an equal run left.
        got: What the resumed run left.
        names: Files that both runs have, and that can be compared.
        begun: How the resumed process began.
        logs: Files that grow while a run goes.
    """
    chance = tuple(_holder(path) for path in expected.keys() ^ again.keys())
    noisy = {
        path.partition(":")[0] for path in expected.keys() & again.keys() if not expected[path].same(again[path])
    }
    kinds = {without_digits(path) for path, leaf in expected.items() if leaf.kind == "line"}
    lists = _Lists(got)
    for path, leaf in sorted(got.items()):
        name = path.partition(":")[0]
        if path in expected or name not in names or leaf.role in ("structure", "alias"):
            continue
        if leaf.kind == "line":
            if without_digits(_AGAIN.sub("", path)) in kinds and name not in noisy:
                yield path, leaf, name not in logs and not _AGAIN.search(path) and not begun.left(path, leaf)
        elif leaf.role != "record" and not path.startswith(chance) and not _is_shared(path, leaf, expected):
            listed = name.rpartition("/")[2] == CURVES or lists.has_it_already(path) or begun.left(path, leaf)
            # no process changes a line that it has added to a log: what it says is as old as the line
            if leaf.kind == "number" and name in logs and (line := got.get(holder := path[: path.rfind("[")])):
                listed = listed or begun.left(holder, line)
            yield path, leaf, not listed


def _holder(path: str) -> str:
    """Return how the paths begin that lie beside one, in the same container."""
    return path[: max(path.rfind("["), path.rfind("."), path.find(": ") + 1) + 1]


def _is_shared(path: str, leaf: Leaf, expected: PathLeaves) -> bool:
    """Return whether the uninterrupted run left the same by another name of what holds it."""
    for at in range(len(path) - 1, path.find(": ") + 1, -1):
        if path[at] in ".[" and (owner := expected.get(path[:at])) is not None and owner.role == "alias":
            return leaf.same(expected.get(owner.digest + path[at:]))
    return False


class _Lists:
    """Elements of lists that the resumed run alone left; a record that stands twice was made by a step made again.

    Args:
        got: What the resumed run left.
    """

    def __init__(self, got: PathLeaves) -> None:
        self._held: dict[str, _Records] = defaultdict(lambda: defaultdict(dict))
        """Path of a list to what is in its elements."""
        for path, leaf in got.items():
            for found in _ELEMENT.finditer(path):
                self._held[path[: found.start()]][int(found[1])][path[found.end() :]] = leaf.digest

    def has_it_already(self, path: str) -> bool:
        """Return whether an element that a path lies in equals one before it."""
        for found in _ELEMENT.finditer(path):
            elements, at = self._held[path[: found.start()]], int(found[1])
            if set(elements) == set(range(len(elements))) and any(elements[n] == elements[at] for n in range(at)):
                return True
        return False


def lists_with_a_stretch_twice(expected: PathLeaves, got: PathLeaves, names: Collection[str]) -> dict[str, int]:
    """Return the lists in which the resumed run has a stretch twice, with how many elements more.

    Args:
        expected: What the uninterrupted run left: `file: path in it` to leaf.
        got: What the resumed run left.
        names: Files that grow by records.
    """
    theirs, ours = _lists(expected, names), _lists(got, names)
    found = {}
    for base, elements in theirs.items():
        more = len(ours.get(base, ())) - len(elements)
        if more > 0 and _is_twice(elements, ours[base], more):
            found[base] = more
    return found


def _is_twice(elements: _Records, others: _Records, more: int) -> bool:
    if set(elements) != set(range(len(elements))) or set(others) != set(range(len(others))):
        return False
    same = next((n for n in elements if elements[n] != others[n]), len(elements))
    return same >= more and all(others[n] == elements[n - more] for n in range(same, len(others)))


def _lists(leaves: Mapping[str, Leaf], names: Collection[str]) -> dict[str, _Records]:
    """Return the outermost numbered elements in some files."""
    found: dict[str, _Records] = defaultdict(lambda: defaultdict(dict))
    for path, leaf in leaves.items():
        if path.partition(":")[0] in names and (at := _ELEMENT.search(path)) is not None:
            found[path[: at.start()]][int(at[1])][path[at.end() :]] = leaf.digest
    return found


def has_bytes_twice(expected: Path, got: Path) -> bool:
    """Return whether one file is another with a stretch of its bytes twice, one after the other."""
    theirs, ours = (np.fromfile(path, np.uint8) for path in (expected, got))
    more = len(ours) - len(theirs)
    if not 0 < more <= len(theirs):
        return False
    apart = np.flatnonzero(theirs != ours[: len(theirs)])
    same = int(apart[0]) if len(apart) else len(theirs)
    return same >= more and np.array_equal(ours[same:], theirs[same - more :])
