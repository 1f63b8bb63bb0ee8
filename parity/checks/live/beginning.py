"""The beginning of a resumed run: whether it continues from the newest checkpoint, at the step of its state."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

from parity.checks.live.evidence import Evidence
from parity.checks.live.folder import is_log
from parity.checks.live.trace import Trace, blot

__all__ = ["Kill", "judge_silence", "judge_start"]


@dataclass(frozen=True, kw_only=True)
class Kill:
    """The end of the process before."""

    mark: int
    """Mark of the uninterrupted run at which it came, counted from 0; 0 asks for no checkpoint at all."""
    left: Collection[str] | None = None
    """Files in the folder after it; None where that is not known."""
    reads: Collection[str] = field(default_factory=frozenset)
    """Files that resumed runs of this function read: what is saved under other names is no checkpoint."""


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
    saves = [mark for mark in reference.saves(kill.reads) if mark <= kill.mark]
    if shifted:
        return [Evidence("counters.step", "mark", step, str(reference.steps[at]), str(step), "at the resume")]
    if (at_once := _removed_at_once(reference, kill)) and step < at_once[0]:
        expected = f"step {at_once[0]} or later"
        got = f"step {step}; {at_once[1]} was removed as soon as it was saved"
        return [Evidence("checkpoint.retention", "mark", step, expected, got, "at the resume")]
    older = [mark for mark in saves if mark < kill.mark]  # the one of the kill itself may be unfinished
    if step == first and older and all(_is_gone(reference.marks[mark].saved, kill) for mark in older):
        return [_not_found(reference, older[-1], step, kill)]
    newest_is_gone = bool(saves) and _is_gone(reference.marks[saves[-1]].saved, kill)
    if saves and (step == first or (newest_is_gone and step < reference.steps[saves[-1]] - 1)):
        return [_not_found(reference, saves[-1], step, kill)]
    if step not in reference.steps:
        return [
            Evidence("counters.step", "mark", step, "a step of the uninterrupted run", str(step), "at the resume")
        ]
    if len(saves) > 1 and step < reference.steps[saves[-2]] - 1:
        return [_not_found(reference, saves[-2], step, kill)]
    return []


def judge_silence(reference: Trace, kill: Kill) -> Evidence:
    """Return the evidence that a resumed run made no mark although it was not at its end.

    Args:
        reference: The uninterrupted run.
        kill: The end of the process before; its mark gives the step of the evidence.
    """
    step = reference.steps[kill.mark]
    return Evidence("counters.step", "mark", step, "a mark", "the function returned without one", "at the resume")


def _is_gone(names: Collection[str], kill: Kill) -> bool:
    """Return whether files that were saved are not in the folder any more."""
    return bool(names) and kill.left is not None and not set(names) & set(kill.left)


def _removed_at_once(reference: Trace, kill: Kill) -> tuple[int, str] | None:
    """Return the step and name of the last checkpoint that was removed before the mark after its save."""
    listed = {blot(name) for name in kill.reads or reference.names if not is_log(name) and blot(name) != name}
    for at, name in reversed(reference.removed):
        known = any(one == name or one.startswith(f"{name}/") for one in reference.names)
        alike = not listed or any(one == blot(name) or one.startswith(f"{blot(name)}/") for one in listed)
        if at < kill.mark and not known and not is_log(name) and alike and blot(name) != name:
            return reference.steps[at], name
    return None


def _not_found(reference: Trace, save: int, step: int, kill: Kill) -> Evidence:
    """Return that a checkpoint was not taken: it is gone, or was not found."""
    names = reference.marks[save].saved
    gone = _is_gone(names, kill)
    component = "checkpoint.retention" if gone else "checkpoint.latest"
    expected = f"step {reference.steps[save] - 1} or later"
    got = f"step {step}" + (f", and {names[0]} is gone" if gone else "")
    return Evidence(component, "mark", step, expected, got, "at the resume")
