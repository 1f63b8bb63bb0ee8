"""Judge crashes by the thousand, and keep one of every outcome to be restored for real."""

import random
from dataclasses import dataclass, field

from tests.crash.disk import Stage
from tests.crash.judge import Judge, half_cleaned
from tests.crash.operations import Operations
from tests.crash.record import Recording
from tests.crash.states import Crash, crashes
from tests.crash.workload import NEW, OLD, READY, REPLACED, SAVED

__all__ = ["FIRST", "SECOND", "Survey", "survey"]

FIRST, SECOND = 1, 2
"""The two saves: into an empty directory, and beside an older checkpoint that goes when the new one is there."""


@dataclass
class Survey:
    """What was found."""

    judged: int = 0
    """Distinct directories."""
    apart: int = 0
    """Of them, those that differ in more than the records beside the checkpoints."""
    again: int = 0
    """Directories that a second crash left, while the leftovers of the first were removed."""
    faults: list[str] = field(default_factory=list)
    records: list[str] = field(default_factory=list)
    """What is wrong with the records, each with the crash that did it."""
    outcomes: dict[tuple[object, ...], tuple[int | None, Crash]] = field(default_factory=dict)
    """What recovery gets to see to the step that is gone on from, and one crash that gives it."""


def survey(
    recording: Recording, save: int, *, most: int, operations: Operations | None = None, until_fault: bool = False
) -> Survey:
    """Judge up to `most` directories that a crash during a save may leave.

    Args:
        recording: What the side did.
        save: `FIRST` or `SECOND`.
        most: Where to stop.
        operations: Replaces what was recorded, to plant a fault.
        until_fault: Stop at the first thing that is wrong.
    """
    operations = operations or recording.operations
    judge, found, draw = Judge.of(recording), Survey(), random.Random(save)
    start = 0 if save == FIRST else operations.mark(READY)
    stop = operations.mark(SAVED if save == FIRST else REPLACED)
    before, after = (None, OLD) if save == FIRST else (OLD, NEW)
    apart = set()
    with Stage() as stage:
        for crash in crashes(operations, start, stop + 1, most=most):
            allowed = {after} if crash.after > stop else {before, after}
            verdict = judge.look(stage.show(crash.tree), crash.tree, allowed=allowed)
            found.judged += 1
            apart.add(crash.digests()[1])
            where = f"after {crash.after} operations ({operations.done[crash.after - 1].what}), {crash.how}"
            found.faults += [f"{fault}\n  {where}" for fault in verdict.faults]
            found.records += [f"{wrong}\n  {where}" for wrong in verdict.records]
            found.outcomes.setdefault(verdict.outcome, (verdict.step, crash))
            found.outcomes.setdefault(verdict.torn, (verdict.step, crash))
            if found.judged % 5 == 0 and (left := half_cleaned(crash.tree, draw)) is not None:
                again = judge.look(stage.show(left), left, allowed={verdict.step})
                found.again += 1
                found.faults += [f"{fault}\n  {where}, and again while cleaning" for fault in again.faults]
            if until_fault and (found.faults or found.records):
                break
    found.apart = len(apart)
    return found
