"""Which mark of the uninterrupted run a resumed state is of: what its parts say, and what it says itself."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence

from parity.capture import Leaf, StateSnapshot, root_of
from parity.checks.running import Mark

__all__ = ["align"]

_PLACE = re.compile(r"\[\d+\]$|\.len$")
"""The place of a number in a list, and how many it has."""


def align(marks: Sequence[Mark], resumed: StateSnapshot, step: int, changing: Collection[str]) -> tuple[int, bool]:
    """Return the mark of the uninterrupted run that a resumed state is of.

    Every part has one vote, for the marks whose leaves it equals in full: model, optimizer, schedule, scaler, ema,
    generators, a list of several numbers; a number by itself has none, for it may be the count that is asked about.
    The mark that the resumed run itself names wins unless another has more votes. It also wins if more of what a
    framework trains is as it was there: batches, and what draws them, are several parts that one loss moves. And it
    wins against one vote more where a part is as it was there and at no mark with more: the state of another step is
    so in all its parts, and a window that is filled anew moves the generator with it.

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
    fits = _fits(marks, [*groups.values(), *_lists(resumed, changing)])
    votes = _votes(marks, fits)
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
    if said is not None:
        of_frameworks = [group for group in groups.values() if any(one.role == "state" for one in group.values())]
        trained = _votes(marks, _fits(marks, of_frameworks))
        of_another = trained and all(trained[said] > trained[at] for at in candidates)
        if candidates == [0] or of_another or (best == votes[said] + 1 and _parts_at(said, candidates, fits)):
            return said, False  # what is new, or of another step, was lost, and is named leaf by leaf
    at = min(candidates, key=lambda one: abs(marks[one].step - step))
    return at, True


def _lists(resumed: StateSnapshot, changing: Collection[str]) -> list[dict[str, Leaf]]:
    """Return the lists of several numbers of which some change, or how many they are."""
    found: dict[str, dict[str, Leaf]] = defaultdict(dict)
    for path, leaf in resumed.leaves.items():
        place = _PLACE.search(path) if leaf.role in ("scalar", "structure") else None
        if place is not None and not resumed.is_dead(path):
            found[path[: place.start()]][path] = leaf
    lists = []
    for name, group in found.items():
        places = {f"{name}[{at}]" for at in range(len(group) - 1)}  # a dictionary may have whole numbers for keys
        if len(group) > 2 and group.keys() == places | {f"{name}.len"} and any(path in changing for path in group):
            lists.append(group)
    return lists


def _votes(marks: Sequence[Mark], fits: Sequence[Collection[int]]) -> list[int]:
    """Return for each mark how many parts are in full what they were there."""
    return [sum(at in fit for fit in fits) for at in range(len(marks))]


def _parts_at(said: int, candidates: Collection[int], fits: Sequence[Collection[int]]) -> bool:
    """Return whether a part is as it was at one mark, and at none of some others."""
    return any(said in fit and not any(at in fit for at in candidates) for fit in fits)


def _fits(marks: Sequence[Mark], groups: Iterable[Mapping[str, Leaf]]) -> list[set[int]]:
    """Return for each part the marks at which it is in full what it is in the resumed run.

    A part that is as at the first mark is as in every new process: it was lost, or nothing was restored at all. So it
    says nothing of the first mark where another part is of later marks alone; and nothing at all if it comes to be so
    again from time to time, as what is added up and cleared: it would be taken for that of the last time.
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
        fits = [fit - {0} if fit <= set(range(len(fit))) else fit if 0 not in fit else set() for fit in fits]
    return fits
