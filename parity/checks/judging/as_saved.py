"""What a run held when it saved: between the mark that a resumed process begins with and the next one.

nanoGPT evaluates and saves at the top of an iteration. The resumed process begins with that iteration, and holds what
the evaluation had found when the file was written: the best loss so far, which the uninterrupted run has only some
lines after its mark. It evaluates once more and finds the same.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

from parity.capture import PathLeaves
from parity.checks.judging.evidence import TwoStates
from parity.checks.running import Mark

__all__ = ["as_saved"]


def as_saved(
    states: Sequence[TwoStates], marks: Sequence[Mark], at: int, restored: Collection[str], reached: int | None
) -> list[TwoStates]:
    """Return what two runs hold, the first one at the resume as it was when it saved, where the step leaves it so.

    A value counts as saved within the step if the resumed run begins with what the uninterrupted one has a step
    later, and has just that itself then. What the step changes once more, such as a count of evaluations, is counted
    twice by a resume, and stays a difference.

    Args:
        states: What the uninterrupted run and the resumed one hold, from the resume on.
        marks: Marks of the uninterrupted run.
        at: Mark of it that the resume is at.
        restored: Files that the resumed run read before its first mark.
        reached: Mark that the run which saved came to, where that is known. A step that it did not make saved
            nothing: where each step saves at its end, a count that the next one resets anyhow was lost.
    """
    if len(states) < 2 or (reached is not None and reached <= at):
        return list(states)
    if not set(marks[at + 1].saved) & set(restored):
        return list(states)
    now, after = states[0], states[1]
    left = dict(now.left.leaves)
    for path in now.differing():
        begun = _leaf(now.right.leaves, path)
        if begun == _leaf(after.left.leaves, path) == _leaf(after.right.leaves, path):
            if begun is None:
                left.pop(path, None)
            else:
                left[path] = now.right.leaves[path]
    return [now._replace(left=replace(now.left, leaves=left)), *states[1:]]


def _leaf(leaves: PathLeaves, path: str) -> tuple[str, str, str] | None:
    """Return what a leaf holds, its place in memory aside; None where there is none."""
    leaf = leaves.get(path)
    return None if leaf is None else (leaf.role, leaf.kind, leaf.digest)
