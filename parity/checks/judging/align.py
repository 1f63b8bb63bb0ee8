"""Alignment: at which mark of the uninterrupted run a resumed one stands, by what it holds, not by what it says."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence

from parity.capture import Leaf, StateSnapshot, root_of
from parity.checks.running import Mark

__all__ = ["align", "varying"]


def varying(marks: Sequence[Mark]) -> frozenset[str]:
    """Return the paths whose value changes from any mark to the next."""
    found: set[str] = set()
    for before, after in itertools.pairwise(marks):
        old, new = before.snapshot.leaves, after.snapshot.leaves
        found |= {path for path, leaf in new.items() if path in old and not leaf.same(old[path])}
    return frozenset(found)


def align(marks: Sequence[Mark], resumed: StateSnapshot, step: int, changing: Collection[str]) -> tuple[int, bool]:
    """Return the mark of the uninterrupted run that a resumed state is of.

    Every part has one vote, for the marks whose leaves it equals in full: model, optimizer, schedule, scaler, ema,
    generators. The mark that the resumed run itself names wins unless another has more votes.

    Args:
        marks: Marks of the uninterrupted run.
        resumed: State at the first mark of the resumed run.
        step: Completed steps, as the resumed run says.
        changing: Paths that change in the uninterrupted run: the others say nothing.

    Returns:
        Index of the mark, and whether the state is that of another step than the resumed run says.
    """
    groups: dict[str, dict[str, Leaf]] = defaultdict(dict)
    for path, leaf in resumed.leaves.items():
        if path in changing and leaf.role in ("state", "array", "stream") and not resumed.is_dead(path):
            # the parts of a framework's objects are known by their kind, an array by the variable that leads to it
            groups[root_of(path) if leaf.role == "array" else leaf.component.partition(".")[0]][path] = leaf
    votes = _votes(marks, groups.values())
    if not votes:
        return 0, False
    best = max(votes)
    named = [at for at, mark in enumerate(marks) if mark.step == step]  # several, where a step takes several batches
    said = max(named, key=lambda at: (votes[at], -at)) if named else None
    if said is not None and (votes[said] == best or best < 2):
        return said, False
    if best == 0:
        nearest = min(range(len(marks)), key=lambda at: abs(marks[at].step - step))
        return nearest, False
    candidates = [at for at, count in enumerate(votes) if count == best]
    if candidates == [0] and said is not None:  # what is new was lost, and is named leaf by leaf
        return said, False
    at = min(candidates, key=lambda one: abs(marks[one].step - step))
    return at, True


def _votes(marks: Sequence[Mark], groups: Iterable[Mapping[str, Leaf]]) -> list[int]:
    """Return for each mark how many parts are in full what they were there.

    A part that is as at the first mark and at no other is as in every new process: it was lost, or nothing was
    restored at all. So it says nothing where another part is of a later mark alone.
    """
    fits = []
    for group in groups:
        fits.append(
            {
                at
                for at, mark in enumerate(marks)
                if all(leaf.same(mark.snapshot.leaves.get(path)) for path, leaf in group.items())
            }
        )
    if any(fit and 0 not in fit for fit in fits):
        fits = [fit - {0} for fit in fits]
    return [sum(at in fit for fit in fits) for at in range(len(marks))]
