"""What is done once and was done again: a flag that was lost, and the step of the resumed run that set it anew.

`if loss < 6 and not told: told = True; record(...)`: the flag is equal again by then, and what was recorded a second
time is one more line, row or element, as a process may leave for itself. Two things tell it from what each process
sets for itself: no first step of the uninterrupted run sets it, and the step that sets it anew writes a file, or
lengthens a container, which the same step of the uninterrupted run leaves alone.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from parity.checks.judging.evidence import Evidence, TwoStates, Uninterrupted, after_resume
from parity.checks.judging.ordering import is_taken
from parity.checks.running import Mark, Trace

__all__ = ["done_again"]


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
