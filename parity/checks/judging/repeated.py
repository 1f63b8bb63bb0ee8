"""Records that stand twice in a log: the steps between a save and a kill are made again, and write theirs once more.

Lines of texts are told by their words (`running.decoded`). In files of records, such as a stream of pickles or the
rows of a database, a stretch stands twice: all else is as it should be, so it hides no other value.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Mapping
from pathlib import Path

import numpy as np

from parity.capture import Leaf, PathLeaves

__all__ = ["has_bytes_twice", "lists_with_a_stretch_twice"]

_Records = dict[int, dict[str, str]]
"""Number of an element to what is in it: path below the element to value."""


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


_ELEMENT = re.compile(r"\[(\d+)\]")


def has_bytes_twice(expected: Path, got: Path) -> bool:
    """Return whether one file is another with a stretch of its bytes twice, one after the other."""
    theirs, ours = (np.fromfile(path, np.uint8) for path in (expected, got))
    more = len(ours) - len(theirs)
    if not 0 < more <= len(theirs):
        return False
    apart = np.flatnonzero(theirs != ours[: len(theirs)])
    same = int(apart[0]) if len(apart) else len(theirs)
    return same >= more and np.array_equal(ours[same:], theirs[same - more :])
