"""What the steps after a resume tell of what differs at it: equal again, cleared, filled otherwise, done again.

That orders suspects, and decides nothing: what is equal again some steps later need not be the cause; of lists of an
epoch, tables of first visits and deques that hold less, all that is known is that code takes them.

What is done once and was done again is a flag that was lost. `if loss < 6 and not told: told = True; record(...)`:
the flag is equal again by then, and what was recorded a second time is one more line, row or element, as a process
may leave for itself. Two things tell it from what each process sets for itself: no first step of the uninterrupted
run sets it, and the step that sets it anew writes a file, or lengthens a container, which the same step of the
uninterrupted run leaves alone.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence

from parity.checks.judging.evidence import Evidence, TwoStates, Uninterrupted, after_resume
from parity.checks.judging.ordering import identifiers, is_taken
from parity.checks.running import Mark, Trace

__all__ = [
    "done_again",
    "is_cleared_next",
    "is_filled_otherwise",
    "is_kept_loss",
    "is_made_again",
    "is_without_effect",
    "shortened",
    "written_again",
]


def is_without_effect(path: str, found: Sequence[Sequence[str]], uninterrupted: Uninterrupted) -> bool:
    """Return whether what differs at the resume is equal again before any other path came to differ.

    As the rate that a step puts into a table of figures: what goes on to differ is the cause of what follows.

    Args:
        path: A path that differs at the resume.
        found: Paths that differ at each mark from the resume on, up to the first that shows another training.
        uninterrupted: What equal runs say.
    """
    first, here = set(found[0]), {path, f"{path}.len"}
    held = tuple(f"{p.removesuffix('.len')}[" for p in first if p.endswith(".len"))
    for differ in found[1:]:
        if any(p not in first and not p.startswith(held) and not uninterrupted.is_history(p) for p in differ):
            return False
        if not here.intersection(differ):
            return True
    return False


def is_made_again(path: str, states: Sequence[TwoStates]) -> bool:
    """Return whether an array that waits in a queue was not there after a resume, and came when it was its turn.

    As a batch that a producer has ready: how many it has ready is a matter of when it began. Of a first one the next
    step has it, of each behind it one step later at most. What was lost for good does not come to be there, but where
    the resumed run alone has something, such as in a checkpoint that was loaded.

    Args:
        path: A path that differs at the resume.
        states: What the uninterrupted run and the resumed one hold, from the resume on.
    """
    leaf, element = states[0].left.leaves.get(path), _ELEMENT.search(path)
    if leaf is None or element is None or leaf.role not in ("array", "position") or "[" not in leaf.kind:
        return False
    if path in states[0].right.leaves:
        return False
    known = {one for both in states for one in both.left.leaves}
    there = ((one, now) for both in states[1 : int(element[1]) + 2] for one, now in both.right.leaves.items())
    return any(leaf.same(now) and one in known for one, now in there)


_ELEMENT = re.compile(r"\[(\d+)\][^\[]*$")


def is_kept_loss(path: str, both: TwoStates, equal: Sequence[Sequence[str]]) -> bool:
    """Return whether a loss still differs after steps that were equal: a mean of several, none of one step.

    Args:
        path: A path that differs at the resume.
        both: What the uninterrupted run and the resumed one hold there.
        equal: Paths that differ at each later mark before the first that shows another training.
    """
    leaf = both.left.leaves.get(path)
    if leaf is None or leaf.component != "loss" or leaf.role not in ("scalar", "array"):
        return False
    return bool(equal) and all(path in differ for differ in equal)


def is_cleared_next(path: str, states: Sequence[TwoStates]) -> bool:
    """Return whether a gradient is none in the uninterrupted run one step later, or zeros that come again.

    Args:
        path: A path that differs at the resume.
        states: What the uninterrupted run and the resumed one hold, from the resume on.
    """
    leaves = [both.left.leaves.get(path) for both in states]
    if len(leaves) < 2 or leaves[0] is None or leaves[0].role != "gradient" or leaves[0] in leaves[1:]:
        return False
    return leaves[1] is None or leaves[1] in leaves[2:]


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


def done_again(
    reference: Trace,
    start: int,
    resumed: Trace,
    states: Sequence[TwoStates],
    found: Sequence[Sequence[str]],
    uninterrupted: Uninterrupted,
) -> list[Evidence]:
    """Return the flags that a later step set anew, each with what that step did that it had done before.

    Args:
        reference: The uninterrupted run.
        start: The one of its marks that the resume is at.
        resumed: The run of the process that resumed.
        states: What both hold at these.
        found: Paths that differ in each of the states.
        uninterrupted: What equal runs say.
    """
    marks, flags = reference.marks, list[Evidence]()
    shown: list[Evidence] = []
    for path in sorted(found[0]):
        leaf = states[0].left.leaves.get(path)
        if leaf is None or leaf.role != "scalar" or states[0].is_dead(path) or path not in uninterrupted.changing:
            continue
        at = next((index for index, differ in enumerate(found) if path not in differ), 0)
        last = min(len(marks) - start, len(resumed.marks))
        first = [mark.snapshot.leaves.get(path) for mark in marks[:2]]
        by_each = first[0] is None or first[1] is None or not first[0].same(first[1])
        if by_each or not 0 < at < last or any(not leaf.same(both.left.leaves.get(path)) for both in states):
            continue
        flag = states[0].evidence(path, after_resume(0))
        done = _done(marks[start + at], resumed.marks[at], reference.names, states, found, at)
        if done and is_taken(flag, uninterrupted):
            flags.append(flag)
            shown += [one for one in done if one not in shown]
    return flags + shown


def written_again(
    reference: Trace,
    start: int,
    resumed: Trace,
    states: Sequence[TwoStates],
    found: Sequence[Sequence[str]],
    uninterrupted: Uninterrupted,
) -> list[tuple[Evidence, frozenset[str]]]:
    """Return what a later step set anew as it was, with the files that this step wrote and had left alone before.

    As a set of what has been exported. A file that is written again need not be another one: that it is tells whether
    anything was lost, and then it is named after what its writing followed from. Arguments as of `done_again`.
    """
    marks, out = reference.marks, list[tuple[Evidence, frozenset[str]]]()
    last, holders = min(len(marks) - start, len(resumed.marks)), set[str]()
    for path in sorted(found[0]):
        leaf = states[0].left.leaves.get(path)
        holder = path[: path.rfind("[")] if path.endswith("]") else path
        if leaf is None or leaf.role != "scalar" or states[0].is_dead(path) or holder in holders:
            continue
        at = next((index for index, differ in enumerate(found) if path not in differ), 0)
        first = [mark.snapshot.leaves.get(path) for mark in marks[:2]]
        by_each = first[1] is not None and not first[1].same(first[0])
        stays = all(leaf.same(both.left.leaves.get(path)) for both in states[: at + 1])
        if by_each or not stays or not 0 < at < last:
            continue
        flag = states[0].evidence(path, after_resume(0))
        alone = (set(resumed.marks[at].saved) - set(marks[start + at].saved)) & set(reference.names)
        if alone and is_taken(flag._replace(path=holder), uninterrupted):
            out.append((flag, frozenset(alone)))
            holders.add(holder)
    return out


def _done(
    mark: Mark,
    other: Mark,
    names: Collection[str],
    states: Sequence[TwoStates],
    found: Sequence[Sequence[str]],
    at: int,
) -> list[Evidence]:
    """Return the files that one step of the resumed run alone wrote, and the containers that it lengthened."""
    both = states[at]
    # a name that the uninterrupted run has nowhere is of a process alone, such as one with a time in it
    alone = sorted((set(other.saved) - set(mark.saved)) & set(names))
    files = [Evidence("checkpoint", name, both.step, "left alone", "written", after_resume(at)) for name in alone]
    longer = [
        both.evidence(path, after_resume(at))
        for path in sorted(found[at])
        if path.endswith(".len")
        and not any(path in differ for differ in found[:at])
        and path in both.left.leaves
        and path in both.right.leaves
    ]
    return files + longer
