"""The beginning of a resumed run: whether it continues from the newest whole checkpoint, at the step of its state.

A save may still be on its way when a process is killed: one that writes in a thread, or under another name first.
What counts is what the killed process itself had finished, by the files that were in its folder.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field

from parity.checks.judging.evidence import Evidence
from parity.checks.running import Mark, Trace, without_digits

__all__ = ["Kill", "is_unfinished", "judge_silence", "judge_start", "on_their_way"]


@dataclass(frozen=True, kw_only=True)
class Kill:
    """The end of the process before."""

    mark: int
    """Mark of the uninterrupted run at which it came, counted from 0; 0 asks for no checkpoint at all."""
    reached: int | None = None
    """The same mark, whatever is asked of checkpoints: steps that follow it saved nothing; None where not known."""
    marks: Sequence[Mark] = ()
    """Marks of the processes that were killed, at the places of those of the uninterrupted run; these where none."""
    left: Collection[str] | None = None
    """Files in the folder after it; None where that is not known."""
    reads: Collection[str] = field(default_factory=frozenset)
    """Files that resumed runs of this function read: what is saved under other names is no checkpoint."""
    passing: Collection[str] = field(default_factory=frozenset)
    """Names without digits that saves on their way have: what was written under these alone was not finished."""

    def saver(self, reference: Trace) -> Trace:
        """Return the run whose saves the kill left: those of the processes that were killed, else the reference."""
        return Trace(marks=list(self.marks), appended=reference.appended) if self.marks else reference

    def is_gone(self, names: Collection[str]) -> bool:
        """Return whether files that were saved are not in the folder any more."""
        return bool(names) and self.left is not None and not set(names) & set(self.left)


def judge_start(reference: Trace, step: int, at: int, kill: Kill, *, shifted: bool) -> list[Evidence]:
    """Return what is wrong with the step at which a run resumed.

    Args:
        reference: The uninterrupted run.
        step: Completed steps, as the resumed run says.
        at: Mark of the uninterrupted run whose state it holds.
        kill: The end of the process before.
        shifted: Whether its state is of another step than it says.
    """
    first = reference.steps[0]
    if shifted:
        return [Evidence("counters.step", "mark", step, str(reference.steps[at]), str(step), "at the resume")]
    if (at_once := _removed_at_once(reference, kill)) and step < at_once[0]:
        expected = f"step {at_once[0]} or later"
        got = f"step {step}; {at_once[1]} was removed as soon as it was saved"
        return [Evidence("checkpoint.retention", "mark", step, expected, got, "at the resume")]
    saver = kill.saver(reference)
    saves = [mark for mark in saver.saves(kill.reads, kill.passing) if mark <= kill.mark]
    gone = [mark for mark in saves if kill.is_gone(saver.marks[mark].saved)]
    older = [mark for mark in saves if mark < kill.mark]  # the one of the kill itself may be unfinished
    whole = [mark for mark in saves if mark not in gone]
    lost = older if step == first and older and set(older) <= set(gone) else [m for m in saves[-1:] if m in gone]
    if lost and step < _saved_step(saver, lost[-1], kill):
        return [_not_found(lost[-1], step, kill, saver)]
    if whole and step == first and _saved_step(saver, whole[-1], kill) > first:  # else it may be of this very step
        return [_not_found(whole[-1], step, kill, saver)]
    if step not in reference.steps:
        return [
            Evidence("counters.step", "mark", step, "a step of the uninterrupted run", str(step), "at the resume")
        ]
    settled = [mark for mark in whole if mark < kill.mark]
    if settled and step < _saved_step(saver, settled[-1], kill) and not _is_newest_of_its_kind(saver, step, kill):
        # What a save holds is of no later step than the mark after it. So a state beyond the save before is that of
        # the newest, although a thread gave its file the name some steps later.
        before = saver.steps[settled[-2]] if len(settled) > 1 else first
        return [_not_found(settled[-1], step, kill, saver)] if step <= before else []
    return []


def _is_newest_of_its_kind(saver: Trace, step: int, kill: Kill) -> bool:
    """Return whether a step is that of the newest of one kind of files that were read, though others are newer.

    As a table that each step writes anew, beside a checkpoint that comes more seldom: the resume reads both.
    """
    for name in {without_digits(name) for name in kill.reads}:
        saves = [mark for mark in saver.saves({name}, kill.passing) if mark <= kill.mark]
        if len(saves) > 1 and saver.steps[saves[-1]] - 1 <= step <= saver.steps[saves[-1]]:
            return True
    return False


def _saved_step(saver: Trace, save: int, kill: Kill) -> int:
    """Return the least step of the state that a save wrote, whose files were there at a mark.

    A save that takes several steps begins with files of other names: under a temporary one, in a temporary directory.
    """
    like = {without_digits(name) for name in kill.reads}
    while save > 1 and like and _begun(saver, save - 1, like):
        save -= 1
    return saver.steps[save] - 1


def _begun(saver: Trace, mark: int, like: Collection[str]) -> bool:
    """Return whether files of other names than a checkpoint's were written before a mark, logs not counted."""
    return any(without_digits(name) not in like for name in saver.marks[mark].saved if name not in saver.appended)


def on_their_way(traces: Iterable[Trace], end: Collection[str]) -> frozenset[str]:
    """Return the names, without digits, that files have while they are saved, and give up when they are whole.

    A name that files have in the end as well (a rotation renames `last` to `previous`) is none of those.

    Args:
        traces: Runs of the function.
        end: Files in the folder of a run that came to its end.
    """
    before = {without_digits(name) for trace in traces for name in trace.renamed}
    names = {without_digits(name) for trace in traces for name in trace.names}
    passing = {one for one in names if any(one == name or one.startswith(f"{name}/") for name in before)}
    return frozenset(passing - {without_digits(name) for name in end})


def is_unfinished(reference: Trace, kill: Kill) -> bool:
    """Return whether saves had been begun before a kill, and none was finished: a resume from it shows nothing."""
    saver = kill.saver(reference)
    begun, whole = saver.saves({*kill.reads, *kill.passing}), saver.saves(kill.reads, kill.passing)
    return any(mark <= kill.mark for mark in begun) and not any(mark <= kill.mark for mark in whole)


def judge_silence(reference: Trace, kill: Kill) -> Evidence:
    """Return the evidence that a resumed run made no mark although it was not at its end.

    Args:
        reference: The uninterrupted run.
        kill: The end of the process before; its mark gives the step of the evidence.
    """
    step = reference.steps[kill.mark]
    return Evidence("counters.step", "mark", step, "a mark", "the function returned without one", "at the resume")


def _removed_at_once(reference: Trace, kill: Kill) -> tuple[int, str] | None:
    """Return the step and name of the last checkpoint that was removed before the mark after its save."""
    listed = {without_digits(name) for name in kill.reads or reference.names if without_digits(name) != name}
    for at, name in reversed(reference.removed):
        known = any(one == name or one.startswith(f"{name}/") for one in reference.names)
        alike = not listed or any(
            one == without_digits(name) or one.startswith(f"{without_digits(name)}/") for one in listed
        )
        if at < kill.mark and not known and alike and without_digits(name) != name:
            return reference.steps[at], name
    return None


def _not_found(save: int, step: int, kill: Kill, saver: Trace) -> Evidence:
    """Return that a checkpoint was not taken: it is gone, or was not found."""
    names = saver.marks[save].saved
    gone = kill.is_gone(names)
    component = "checkpoint.retention" if gone else "checkpoint.latest"
    expected = f"step {_saved_step(saver, save, kill)} or later"
    got = f"step {step}" + (f", and {names[0]} is gone" if gone else "")
    return Evidence(component, "mark", step, expected, got, "at the resume")
