"""Same training: what of a state is trained, and what runs of other lengths or intervals may differ in."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from parity.capture import Leaf
from parity.checks.judging import Uninterrupted, both_runs
from parity.checks.running import Trace

__all__ = ["equal_so_far", "is_training", "put_back_later"]


def equal_so_far(reference: Trace, short: Trace, uninterrupted: Uninterrupted) -> bool:
    """Return whether a shorter run holds the same state as a longer one, up to its last mark but one.

    Where it does not, to extend it is no resume of the same training: a horizon that follows `steps` is another one.
    """
    ignored = uninterrupted.noise | uninterrupted.rounded
    for both in both_runs(reference.marks, short.marks[:-1] or short.marks):
        for path, leaf in both.left.leaves.items():
            other = both.right.leaves.get(path)
            counts = leaf.role in ("state", "array") and path in uninterrupted.changing and path not in ignored
            if counts and other is not None and not both.is_dead(path) and not leaf.same(other):
                return False
            rate = leaf.role == "state" and leaf.component.startswith(("schedule", "optimizer.hyper"))
            if rate and path not in ignored and other is not None and not leaf.same(other):
                return False
    return True


def is_training(path: str, leaf: Leaf, uninterrupted: Uninterrupted, often: Collection[str]) -> bool:
    """Return whether a leaf is trained by what it is, or changes with the steps and not with the evaluations.

    Args:
        path: Its path.
        leaf: The leaf.
        uninterrupted: What equal runs say.
        often: Arrays that change in more than half of the steps of both runs, of which one evaluates less often.
    """
    if leaf.role == "stream":
        return path in uninterrupted.streams
    if leaf.role == "state":
        return not leaf.component.startswith(("schedule", "model.mode"))
    return path in often


def put_back_later(parted: Sequence[Collection[str]]) -> set[int]:
    """Return the marks at which runs differ in what later steps wrote before they read it.

    Weights that an evaluation exchanges, and that the next step puts back when it begins: two runs that evaluate at
    other steps differ at such marks, and are equal again, bit for bit. What a step had trained with would not be. At
    the end nothing can tell; what was put back before, after as many marks, counts as such there.

    Args:
        parted: Paths of what is trained that differ, at each mark.
    """
    found: set[int] = set()
    known: set[str] = set()
    longest, begin = 0, None
    for at, paths in enumerate([*parted, ()]):
        if paths:
            begin = at if begin is None else begin
            continue
        if begin is not None:
            stretch = range(begin, at)
            here = {path for index in stretch for path in parted[index]}
            if at < len(parted) or (known >= here and len(stretch) <= longest):
                found |= {*stretch}
                known, longest = known | here, max(longest, len(stretch))
        begin = None
    return found
