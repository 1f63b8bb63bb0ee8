"""The resume check: an uninterrupted run against one killed with SIGKILL, twice, and restarted."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

from parity import policy
from parity.checks.resume.evidence import Evidence, read_evidence
from parity.checks.resume.judge import Findings, judge
from parity.checks.resume.process import ProcessError, TrainingProcess
from parity.checks.resume.trace import trace_resume
from parity.checks.traces import digest_batches, digest_leaves
from parity.errors import ParityError, SpecError
from parity.results import CheckRecord
from parity.runs import Drills, RunDirectory, train
from parity.sides import Side
from parity.spec import RunSpec, to_toml

__all__ = ["check_resume", "default_kills", "describe_evidence", "drill_spec", "run_here", "run_processes"]

TIMEOUT_SECONDS = 600.0
"""Longest one training process may take."""

SETTLE_SECONDS = 30.0
"""Longest a save in the background is waited for before a kill."""


def drill_spec(spec: RunSpec, steps: int) -> RunSpec:
    """Return the spec shortened to a number of steps, with five saves and as many validations, two chunks each.

    The spec's own intervals are replaced: they are free to change, and kills must fall behind saves.
    """
    if steps < 10:
        raise SpecError("--steps", f"{steps} steps leave no room for five saves and two kills; ask for 10 or more")
    every = steps // 5
    chunk = min(spec.execution.chunk, max(1, every // 2))
    return replace(
        spec,
        steps=steps,
        save=replace(spec.save, every=every),
        validate_every=every,
        execution=replace(spec.execution, chunk=chunk),
    )


def default_kills(spec: RunSpec) -> tuple[int, int]:
    """Return two steps to kill at: a chunk behind the second save, and a chunk behind the third."""
    behind = min(spec.execution.chunk, spec.save.every)
    return tuple(min(n * spec.save.every + behind, spec.steps - 1) for n in (2, 3))  # type: ignore[return-value]


def check_resume(spec: RunSpec, side_name: str, side: Side, workdir: Path, kills: Sequence[int] = ()) -> CheckRecord:
    """Train, kill, resume, kill, resume, and compare with a run that nothing stopped; bitwise.

    Args:
        spec: The run, with its intervals.
        side_name: Name of the side.
        side: The side, to tell whole checkpoints after a kill.
        workdir: Where the run directories go.
        kills: Steps to kill at; by default two, each a chunk behind a save.
    """
    began = time.perf_counter()
    kills = tuple(sorted(set(kills))) or default_kills(spec)
    try:
        reference, resumed, expected = run_processes(spec, side_name, side, workdir, kills)
        findings = judge(reference, resumed, expected)
    except (ProcessError, ParityError) as error:
        return _record(spec, side_name, Findings(notes=[str(error)]), began, crashed=True)
    return replace(_record(spec, side_name, findings, began), **describe_evidence(reference, resumed, findings))


def describe_evidence(reference: Evidence, resumed: Evidence, findings: Findings) -> dict[str, Any]:
    """Return the fields of a record that show what was judged: `curves` and `digests`."""
    digests = {"batches": digest_batches(reference.curve)}
    for name, run in (("final state, uninterrupted", reference), ("final state, resumed", resumed)):
        final = next((event for event in reversed(run.events) if event.event == "final"), None)
        if final is not None:
            digests[name] = digest_leaves(final.leaves)
    first = findings.first.step if findings.first else None
    return {"curves": trace_resume(reference, resumed, (first,)), "digests": digests}


def run_processes(
    spec: RunSpec, side_name: str, side: Side, workdir: Path, kills: Sequence[int], *, durable: bool = True
) -> tuple[Evidence, Evidence, list[int | None]]:
    """Run both runs in processes of their own, side by side, and read what they left.

    Args:
        spec: The run, with its intervals.
        side_name: Name of the side.
        side: The side, to tell whole checkpoints after a kill.
        workdir: Where the run directories go.
        kills: Steps to kill at.
        durable: Whether the last save before a kill may complete first; otherwise the kill falls right behind
            the records, and a save in the background may be lost with its process.

    Returns:
        Evidence of the uninterrupted run, of the killed one, and where each process of that one had to start.
    """
    workdir.mkdir(parents=True, exist_ok=True)
    spec_file = workdir / "spec.toml"
    spec_file.write_text(to_toml(spec), encoding="utf-8")

    def start(run: str, hold_at: int | None = None) -> TrainingProcess:
        return TrainingProcess(side_name, spec_file, workdir / run, workdir / f"{run}.log", hold_at=hold_at)

    def uninterrupted() -> None:
        with start("reference") as process:
            process.wait(TIMEOUT_SECONDS)

    def interrupted() -> list[int | None]:
        expected: list[int | None] = [None]
        for attempt, kill in enumerate(kills):
            with start("resumed", hold_at=kill) as process:
                process.wait_for_step(kill, attempt, TIMEOUT_SECONDS)
                if durable:  # the save at `kill` itself would come behind the records
                    _await_checkpoint(workdir / "resumed", side, (kill - 1) // spec.save.every * spec.save.every)
                process.kill()
            expected.append(_newest(workdir / "resumed", side))
        with start("resumed") as process:
            process.wait(TIMEOUT_SECONDS)
        return expected

    with ThreadPoolExecutor(2) as pool:
        reference, resumed = pool.submit(uninterrupted), pool.submit(interrupted)
        reference.result()
        expected = resumed.result()
    return read_evidence(workdir / "reference"), read_evidence(workdir / "resumed"), expected


class _Killed(BaseException):
    """Stands for SIGKILL within one process: nothing of the trainer is used after it."""


def run_here(
    spec: RunSpec,
    side: Side,
    workdir: Path,
    kills: Sequence[int],
    *,
    resuming: Side | None = None,
    options: Callable[[int], dict[str, Any]] = lambda attempt: {},
) -> tuple[Evidence, Evidence, list[int | None]]:
    """Do the same within this process: a kill drops the trainer and builds a new one from disk.

    Fast, and for trainers that have no command of their own; it does not show that a checkpoint outlives SIGKILL.

    Args:
        spec: The run.
        side: What trains the uninterrupted run.
        workdir: Where the run directories go.
        kills: Steps to kill at.
        resuming: What trains the killed run; by default the same side.
        options: Further arguments of `drive.train` for a process start of the killed run.
    """
    resuming = resuming or side

    def hold() -> None:
        raise _Killed

    def go(run: str, trainer: Side, hold_at: int | None, **extra: Any) -> None:
        drills = Drills(trace=True, hold_at=hold_at, hold=hold)
        train(trainer, "here", spec, workdir / run, say=lambda line: None, drills=drills, **extra)

    go("reference", side, None)
    expected: list[int | None] = [None]
    for attempt, kill in enumerate(kills):
        try:
            go("resumed", resuming, kill, **options(attempt))
        except _Killed:
            expected.append(_newest(workdir / "resumed", side))
    go("resumed", resuming, None, **options(len(kills)))
    return read_evidence(workdir / "reference"), read_evidence(workdir / "resumed"), expected


def _await_checkpoint(path: Path, side: Side, step: int) -> None:
    """Return when the checkpoint of a step is whole; after a while give up and let the judge see what there is."""
    deadline = time.monotonic() + SETTLE_SECONDS
    while step and (_newest(path, side) or 0) < step and time.monotonic() < deadline:
        time.sleep(0.02)


def _newest(path: Path, side: Side) -> int | None:
    """Return the step of the newest whole checkpoint, as a scan from outside sees it."""
    newest = policy.latest(RunDirectory(path).scan().whole)
    return newest.step if newest else None


def _record(spec: RunSpec, side: str, findings: Findings, began: float, *, crashed: bool = False) -> CheckRecord:
    nothing = findings.steps_compared == 0
    verdict = "crashed" if crashed else "broken" if findings.broken else "empty" if nothing else "holds"
    return CheckRecord(
        name="resume",
        spec=spec.name,
        precision=spec.precision,
        sides=(side,),
        verdict=verdict,  # type: ignore[arg-type]
        criterion="bitwise",
        steps_compared=findings.steps_compared,
        max_abs_diff=None if crashed else findings.max_abs,
        max_rel_diff=None if crashed else findings.max_rel,
        first_divergence=findings.first,
        suspects=tuple(findings.suspects),
        notes=tuple(findings.notes),
        seconds=time.perf_counter() - began,
    )
