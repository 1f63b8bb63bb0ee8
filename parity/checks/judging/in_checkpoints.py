"""What the checkpoint holds of all that differs at the resume: that was to be restored, and is named first.

Rows that a rollout writes over, workspaces that `out=` fills and batches that wait their turn are others in every new
process. Where something was lost, they come to differ in the steps after it too, and nothing in the two runs tells
them from it. The folder at the kill does: a value that is there, array by array and digit by digit, is one that the
trainer keeps. What every step copies from something else, as weights that wait to be sent, is in the folder as that
other thing, and tells nothing. This orders suspects; where no value is found there, their order stays.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Mapping, Sequence

from parity.capture import Leaf, PathLeaves, digest_of
from parity.checks.judging.evidence import Evidence, after_resume

__all__ = ["LeavesOfMarks", "saved_first"]

LeavesOfMarks = Sequence[PathLeaves]
"""What a run holds at its marks, from the resume on."""

_TRAINED = ("optimizer.", "model.", "ema")
"""Components that are lost where they were never saved: that no file holds them is no reason to name them last."""

_DIGITS = 6
"""Fewest digits of a number that is known again by them: 0.5 and 1.0 are in many files."""


def saved_first(
    found: Sequence[Evidence],
    runs: tuple[LeavesOfMarks, LeavesOfMarks],
    read: Callable[[], Mapping[str, Leaf]],
) -> list[Evidence]:
    """Return suspects with arrays and elements of containers that the checkpoint lacks behind what it holds.

    Args:
        found: Suspects in order.
        runs: What the uninterrupted run and the resumed one hold; of the first there are marks.
        read: Gives what the folder held at the kill, decoded; asked for where the order may follow from it.
    """
    leaves = runs[0][0]
    here = [e for e in found if e.when == after_resume(0)]
    if len(here) < 2 or not any(_may_be_left(e, leaves) for e in here):
        return [*found]
    written = {_known_by(leaf) for leaf in read().values()}
    saved = [e for e in here if _is_telling(leaves.get(e.path)) and not written.isdisjoint(_values(leaves[e.path]))]
    saved = [e for e in saved if not _is_copied(e.path, runs)]
    left = [e for e in here if e not in saved and _may_be_left(e, leaves)]
    if not saved or not left:
        return [*found]
    before = [e for e in left if found.index(e) < found.index(saved[-1])]
    behind = [e for e in found if e not in before]
    last = behind.index(saved[-1]) + 1
    return [*behind[:last], *before, *behind[last:]]


def _is_copied(path: str, runs: tuple[LeavesOfMarks, LeavesOfMarks]) -> bool:
    """Return whether each step sets a value to that of one other path, as it is or as it was one mark before.

    In both runs, at every mark after the resume, of which there are two at least, and of a value that changes.
    """
    both = [[leaves.get(path) for leaves in run[1:]] for run in runs]
    if any(len(run) < 2 or None in run or len({leaf.digest for leaf in run if leaf}) < 2 for run in both):
        return False
    others = [other for other, leaf in runs[0][1].items() if other != path and leaf.kind == both[0][0].kind]  # type: ignore[union-attr]
    return any(
        all(leaf is not None and leaf.same(leaves.get(other)) for copied, run in zip(both, runs, strict=True)
            for leaf, leaves in zip(copied, run[1 - late :], strict=False))
        for other in others for late in (0, 1)
    )  # fmt: skip


def _may_be_left(e: Evidence, leaves: PathLeaves) -> bool:
    """Return whether a suspect is of a kind that steps leave behind: an array, a gradient, what a container holds."""
    leaf = leaves.get(e.path)
    if leaf is None or e.component.startswith(_TRAINED):
        return False
    return leaf.role in ("array", "gradient") or (leaf.role in ("scalar", "position") and "[" in e.path)


def _is_telling(leaf: Leaf | None) -> bool:
    """Return whether a value is known again in a file: an array of several elements, a number of many digits."""
    if leaf is None:
        return False
    if leaf.role in ("array", "state", "gradient"):
        sizes = re.search(r"\[([0-9x]+)\]", leaf.kind)
        return sizes is not None and sizes[1] != "1"
    return leaf.role == "scalar" and sum(letter.isdigit() for letter in leaf.digest) >= _DIGITS


def _values(leaf: Leaf) -> tuple[tuple[str, str], ...]:
    """Return what a value may be known by in a file: its kind and itself, or its bytes, as in a pickled array."""
    if leaf.role == "scalar":
        return (("number", leaf.digest),)
    return (leaf.kind, leaf.digest), ("bytes", leaf.digest)


def _known_by(leaf: Leaf) -> tuple[str, str]:
    if leaf.kind == "bytes":
        is_short = leaf.digest.startswith(("b'", 'b"'))  # else it is a digest itself
        return "bytes", digest_of(ast.literal_eval(leaf.digest)) if is_short else leaf.digest
    if leaf.role == "scalar" and leaf.kind != "str":
        return "number", leaf.digest
    return leaf.kind, leaf.digest
