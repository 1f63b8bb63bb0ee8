"""What holds less at a resume: lists of an epoch, tables of first visits, deques that may be as long as they like.

They take part in no step by what they are, and no element of theirs need be another one. So they order suspects: that
code takes them is all that is known of them.
"""

from __future__ import annotations

from collections.abc import Sequence

from parity.checks.judging.evidence import Evidence, TwoStates, Uninterrupted, after_resume
from parity.checks.judging.ordering import identifiers

__all__ = ["is_filled_otherwise", "shortened"]


def shortened(
    both: TwoStates, found: Sequence[str], uninterrupted: Uninterrupted, *, records: bool
) -> list[Evidence]:
    """Return the containers that hold less at the resume, and the limits of deques that are gone there.

    Args:
        both: What the uninterrupted run and the resumed one hold at the resume.
        found: Paths that differ there.
        uninterrupted: What equal runs say.
        records: Whether records of the past are among them.
    """
    left, right = both.left.leaves, both.right.leaves
    out: list[tuple[int, Evidence]] = []
    for path in sorted(found):
        leaf, other = left.get(path), right.get(path)
        holder, _, last = path.rpartition(".")
        if leaf is None or both.is_dead(path) or (uninterrupted.is_history(f"{holder}[") and not records):
            continue
        less = 0
        if leaf.role == "structure" and last == "len":
            less = int(leaf.digest) - (int(other.digest) if other is not None and other.role == "structure" else 0)
        elif last == "maxlen" and other is None and f"{holder}.len" in left and f"{holder}.len" in right:
            less = 1
        if less > 0 and uninterrupted.use.uses((identifiers(holder) or [holder])[-1]):
            out.append((-less, both.evidence(path, after_resume(0))._replace(path=path.removesuffix(".len"))))
    return [e for _, e in sorted(out, key=lambda pair: pair[0])]


def is_filled_otherwise(path: str, states: Sequence[TwoStates]) -> bool:
    """Return whether a table has an element in both runs that is another one: it was not made again as it was.

    Args:
        path: Path of the table.
        states: What both runs hold, from the resume on.
    """
    start = f"{path}["
    return any(
        one.startswith(start) and not leaf.same(both.right.leaves[one])
        for both in states
        for one, leaf in both.left.leaves.items()
        if one in both.right.leaves
    )
