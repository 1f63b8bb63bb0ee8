"""The resume check: a run that nothing stops against one that is killed, twice, and resumed; bitwise.

It knows the run by its plan and its records alone. `run_processes` kills real processes, started by any command;
`run_here` drops trainers within this process. Both leave run directories, whose evidence `check_resume` judges.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import replace
from pathlib import Path
from typing import Any

from parity import policy
from parity.checks.leaves import MOST_LEAVES
from parity.checks.progress import OnStep, ignore_step, last_step
from parity.checks.resume.evidence import Evidence, read_evidence
from parity.checks.resume.judge import Findings, judge
from parity.checks.resume.process import ProcessError, Start, TrainingProcess, start_interpreter
from parity.checks.resume.trace import trace_resume
from parity.checks.traces import digest_batches, digest_leaves
from parity.contract import Precision, RunPlan, Side
from parity.errors import ParityError
from parity.results import CheckRecord
from parity.runs import QUIET, FaultInjection, Options, RunDirectory, train

__all__ = ["check_resume", "default_kills", "describe_evidence", "run_here", "run_processes"]

TIMEOUT_SECONDS = 600.0
"""Longest one training process may take."""

SETTLE_SECONDS = 30.0
"""Longest a save in the background is waited for before a kill."""

WATCH_SECONDS = 0.5
"""Time between two looks at the records of the runs, for the progress."""

Runs = tuple[Evidence, Evidence, list[int | None]]
"""Evidence of the uninterrupted run, of the killed one, and the step where each process of that one had to start."""

Command = Callable[[Path, int | None], Sequence[str]]
"""Returns the command line of a training process: given the run directory, and the step to pause at, if any."""


def default_kills(plan: RunPlan, epoch: int | None = None) -> tuple[int, int]:
    """Return two steps to kill at, one after the second save, one after the third.

    They follow the ends of epochs: the first is such an end, the second the step after one. Where no epoch ends
    there, each comes a chunk after its save instead.

    Args:
        plan: When the run saves and stops.
        epoch: Steps of one epoch; None where the run has none.

    Example:
        >>> default_kills(RunPlan(steps=200, save_every=40, chunk=20), 22)
        (88, 133)
        >>> default_kills(RunPlan(steps=200, save_every=40, chunk=20))
        (100, 140)
    """
    later = min(plan.chunk, plan.save_every)
    first, second = (min(n * plan.save_every + later, plan.steps - 1) for n in (2, 3))
    if epoch:
        at = (2 * plan.save_every // epoch + 1) * epoch
        after = (max(3 * plan.save_every - 1, at) // epoch + 1) * epoch + 1
        if at + 1 < plan.steps:
            first, second = at, after if after < plan.steps else at + 1
    return first, second


def check_resume(run: Callable[[], Runs], *, name: str, precision: Precision, side: str) -> CheckRecord:
    """Train, kill, resume, kill, resume, and compare with a run that nothing stopped; bitwise.

    Args:
        run: Trains both runs: `run_processes` or `run_here` with its arguments, as by `functools.partial`.
        name: Name of the run, for the record.
        precision: What it computes in, for the record.
        side: Name of the side, for the record.
    """
    began = time.perf_counter()

    def record(findings: Findings, *, crashed: bool = False, **shown: Any) -> CheckRecord:
        nothing = findings.steps_compared == 0
        return CheckRecord(
            name="resume",
            spec=name,
            precision=precision,
            sides=(side,),
            verdict="crashed" if crashed else "broken" if findings.broken else "empty" if nothing else "holds",
            criterion="bitwise",
            steps_compared=findings.steps_compared,
            max_abs_diff=None if crashed else findings.max_abs,
            max_rel_diff=None if crashed else findings.max_rel,
            first_divergence=findings.first,
            suspects=tuple(findings.suspects),
            notes=tuple(findings.notes),
            leaves=tuple(findings.leaves[:MOST_LEAVES]),
            seconds=time.perf_counter() - began,
            **shown,
        )

    try:
        reference, resumed, expected = run()
        findings = judge(reference, resumed, expected)
    except (ProcessError, ParityError) as error:
        return record(Findings(notes=[str(error)]), crashed=True)
    return record(findings, **describe_evidence(reference, resumed, findings))


def describe_evidence(reference: Evidence, resumed: Evidence, findings: Findings) -> dict[str, Any]:
    """Return the fields of a record that show what was judged: `curves` and `digests`.

    Args:
        reference: What the uninterrupted run left.
        resumed: What the killed run left.
        findings: What the judge found; the curves keep the step of its first divergence.
    """
    digests = {"batches": digest_batches(reference.curve)}
    for name, run in (("final state, uninterrupted", reference), ("final state, resumed", resumed)):
        final = next((event for event in reversed(run.events) if event.event == "final"), None)
        if final is not None:
            digests[name] = digest_leaves(final.leaves)
    first = findings.first.step if findings.first else None
    return {"curves": trace_resume(reference, resumed, (first,)), "digests": digests}


def run_processes(
    command: Command,
    plan: RunPlan,
    workdir: Path,
    kills: Sequence[int] = (),
    *,
    epoch: int | None = None,
    environment: Mapping[str, str] | None = None,
    durable: bool = True,
    begin: Start = start_interpreter,
    on_step: OnStep = ignore_step,
) -> Runs:
    """Run both runs in processes of their own, concurrently, and read what they left.

    A process must train in the run directory that it is given, with `FaultInjection(trace=True, pause_at=...)`.

    Args:
        command: Makes the command lines.
        plan: When the run saves and stops.
        workdir: Where the run directories go.
        kills: Steps to kill at; by default `default_kills`.
        epoch: Steps of one epoch, for these.
        environment: Of the processes; see `child_environment`. None for that of this process.
        durable: Whether the last save before a kill may complete first; otherwise the kill comes right after the
            records, and a save in the background may be lost with its process.
        begin: Starts each process.
        on_step: Called twice a second with the last step of the run that has done fewer steps.
    """
    workdir.mkdir(parents=True, exist_ok=True)
    kills = tuple(sorted(set(kills))) or default_kills(plan, epoch)

    def start(run: str, pause_at: int | None = None) -> TrainingProcess:
        line = command(workdir / run, pause_at)
        return TrainingProcess(line, workdir / run, workdir / f"{run}.log", environment, begin)

    def uninterrupted() -> None:
        with start("reference") as process:
            process.wait(TIMEOUT_SECONDS)

    def interrupted() -> list[int | None]:
        expected: list[int | None] = [None]
        for attempt, kill in enumerate(kills):
            with start("resumed", kill) as process:
                process.wait_for_step(kill, attempt, TIMEOUT_SECONDS)
                if durable:  # the save at `kill` itself would come after the records
                    await_checkpoint(workdir / "resumed", (kill - 1) // plan.save_every * plan.save_every)
                process.kill()
            expected.append(newest_checkpoint(workdir / "resumed"))
        with start("resumed") as process:
            process.wait(TIMEOUT_SECONDS)
        return expected

    with ThreadPoolExecutor(2) as pool:
        reference, resumed = pool.submit(uninterrupted), pool.submit(interrupted)
        both: list[Future[Any]] = [reference, resumed]
        while wait(both, WATCH_SECONDS).not_done:
            behind = min(("reference", "resumed"), key=lambda run: last_step(workdir / run / "steps.jsonl"))
            on_step(f"{behind} run,", last_step(workdir / behind / "steps.jsonl"), plan.steps)
        reference.result()
        expected = resumed.result()
    return read_evidence(workdir / "reference"), read_evidence(workdir / "resumed"), expected


class Killed(BaseException):
    """Stands for SIGKILL within one process: nothing of the trainer is used after it."""


def run_here(
    described: Any,
    side: Side,
    workdir: Path,
    kills: Sequence[int],
    *,
    resuming: Side | None = None,
    options: Callable[[int], Options] = lambda attempt: Options(),
) -> Runs:
    """Run both runs within this process: a kill drops the trainer and builds a new one from disk.

    Fast, and for trainers that have no command of their own; it does not show that a checkpoint outlives SIGKILL.

    Args:
        described: The run, as the side understands it.
        side: What trains the uninterrupted run.
        workdir: Where the run directories go.
        kills: Steps to kill at.
        resuming: What trains the killed run; by default the same side.
        options: Options of `train` for a process start of the killed run; its fault injection is set here.
    """
    resuming = resuming or side

    def pause() -> None:
        raise Killed

    def start(run: str, trainer: Side, pause_at: int | None, given: Options) -> None:
        faults = FaultInjection(trace=True, pause_at=pause_at, pause=pause)
        train(trainer, "here", described, workdir / run, replace(given, faults=faults), QUIET)

    start("reference", side, None, Options())
    expected: list[int | None] = [None]
    for attempt, kill in enumerate(kills):
        try:
            start("resumed", resuming, kill, options(attempt))
        except Killed:
            expected.append(newest_checkpoint(workdir / "resumed"))
    start("resumed", resuming, None, options(len(kills)))
    return read_evidence(workdir / "reference"), read_evidence(workdir / "resumed"), expected


def await_checkpoint(path: Path, step: int) -> None:
    """Return when the checkpoint of a step is whole; after a while give up, and let the judge see what there is."""
    deadline = time.monotonic() + SETTLE_SECONDS
    while step and (newest_checkpoint(path) or 0) < step and time.monotonic() < deadline:
        time.sleep(0.02)


def newest_checkpoint(path: Path) -> int | None:
    """Return the step of the newest whole checkpoint, as a scan from outside sees it."""
    newest = policy.latest(RunDirectory(path).store.scan().whole)
    return newest.step if newest else None
