"""Resume a run: pick the checkpoint, quarantine damaged ones, report the steps to train again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from parity.checkpoints import Scan, describe, verify
from parity.contract import StepRecord, Trainer, read_records, splice
from parity.errors import CheckpointError, DamagedError
from parity.policy import Which
from parity.runs.directory import RunDirectory
from parity.storage import read_lines

__all__ = ["Log", "ResumeChoice", "compare_topology", "resume_run", "skips_before"]

ResumeChoice = Which | str
"""`auto`, `never`, or what a Trainer restores: `latest`, `best`, a step."""

Log = Callable[[str], None]


def resume_run(
    run: RunDirectory, trainer: Trainer, resume: ResumeChoice, attempt: int, log: Log, *, or_next: bool = False
) -> int | None:
    """Restore what a run continues from; return its step, or None for a start from step 0.

    A checkpoint that is not what was sealed is moved to `abandoned/`, never deleted, and the newest before it is
    taken; in the place of the best one the next best is taken only if that was asked for.

    Args:
        run: The run directory, whose lock is held.
        trainer: A fresh trainer; it has the state afterwards.
        resume: What was asked for.
        attempt: Process starts before this one.
        log: Takes one line for people.
        or_next: Whether the next best checkpoint is taken where the best is damaged.

    Raises:
        CheckpointError: There is none to continue from; or the best, or the step that was named, is damaged.
    """
    for name in run.clean():
        log(f"removed {name}: the leftover of a save or removal that was cut short")
    scan = run.store.scan()
    which = _which(run, scan, resume)
    if which is None:
        log("starting from step 0")
        return None
    named = run.store.pointed_step("latest")
    while True:
        step = run.store.choose(scan, which, trainer.plan, or_next=or_next or which == "latest")
        try:
            trainer.restore(step)  # first: what cannot be restored must not cost the newer checkpoints
            break
        except DamagedError as error:
            if isinstance(which, int):
                raise
            scan = scan.without(step, str(error))
    if step in {saved.step for saved in scan.unsealed}:
        log(f"checkpoint {step} has no seal: restored unverified")
    given_up = which == "best" or isinstance(which, int)
    faults = {name: _explain(run, name, why) for name, why in scan.damaged}
    moved = run.store.set_aside([name for name, _ in scan.damaged], run.abandoned(attempt))
    newer = run.abandon_after(step, attempt, records=given_up)
    run.store.point(run.store.scan(), trainer.plan)
    for name, why in faults.items():
        log(f"moved checkpoint {name} to abandoned/{attempt}: {why}")
    for name in newer:
        why = "it is newer, and was given up" if given_up else "it is newer, and has no seal"
        log(f"moved checkpoint {name} to abandoned/{attempt}: {why}")
    if named is not None and not given_up and named > step and str(named) not in moved:
        log(f"latest.json names a checkpoint of step {named}, which is gone: steps after {step} are trained again")
    lost = _steps_lost(run, step, moved)
    if lost and not given_up:
        log(f"{lost} step{'s are' if lost > 1 else ' is'} lost with it and trained again")
    log(f"resumed from step {step} ({which if isinstance(which, str) else 'step'})")
    return step


def _steps_lost(run: RunDirectory, step: int, moved: list[str]) -> int:
    """Return how many steps the moved checkpoints had beyond a step; records bound what their names claim."""
    claimed = max([int(name) for name in moved], default=step)
    recorded = max((record.step for record in read_records(run.steps, StepRecord)), default=claimed)
    return max(0, min(claimed, recorded) - step)


def _explain(run: RunDirectory, name: str, why: str) -> str:
    """Return what is wrong with a damaged checkpoint, down to the leaves; every byte of it is read for that."""
    found = describe(verify(run.checkpoints / name).faults)
    return "; ".join(f"{file}: {problem}" for file, problem in found) or why


def _which(run: RunDirectory, scan: Scan, resume: ResumeChoice) -> Which | None:
    """Return what to restore, or None for a start from step 0."""
    if resume == "never":
        return None
    if resume != "auto":
        return resume  # type: ignore[return-value]
    if scan.whole:
        return "latest"
    if scan.damaged or scan.unsealed:
        raise CheckpointError(
            f"no whole checkpoint in {run.checkpoints}; starting over would hide the loss, --resume never does it "
            "on purpose. Found:",
            scan.found(),
        )
    return None


def compare_topology(run: RunDirectory, topology: dict[str, Any], start: int | None, log: Log) -> None:
    """Report what of the topology changed since the process before; bitwise equality depends on it.

    Args:
        run: The run directory; its last process start has the topology of then.
        topology: That of this process, as `Side.topology` returns it.
        start: The step that was resumed from; None for a start from step 0, which reports nothing.
        log: Takes one line for people, if something changed.
    """
    rows = read_lines(run.attempts)
    if start is None or not rows:
        return
    before = rows[-1].get("topology")
    if not isinstance(before, dict):
        return
    names = {**topology, **before}
    changed = [f"{k} {before.get(k)} -> {topology.get(k)}" for k in names if before.get(k) != topology.get(k)]
    if changed:
        log(f"topology changed ({', '.join(changed)}): continuing, but bitwise equality is not to be expected")


def skips_before(run: RunDirectory, step: int) -> int:
    """Return how many steps up to `step` were skipped in a row: a resume does not reset this count.

    Args:
        run: The run directory, whose step records are read.
        step: Completed steps at the resume.

    Raises:
        RunDirectoryError: A record cannot be read.
    """
    count = 0
    for number, record in splice(read_records(run.steps, StepRecord)).items():
        if number <= step:
            count = count + 1 if record.skipped else 0
    return count
