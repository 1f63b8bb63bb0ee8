"""The resume check: a run that nothing stops against one that is killed, twice, and resumed; bitwise.

It knows the run by its plan and its records alone. `run_processes` kills real processes, started by any command;
`run_here` drops trainers within this process. Both leave run directories, whose evidence `check_resume` judges.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from functools import partial
from pathlib import Path
from typing import Any

from parity.checks import (
    RESUMED_LABELS,
    OnStep,
    digest_batches,
    digest_leaves,
    ignore_step,
    last_step,
    trace,
    trace_validations,
)
from parity.contract import Precision, RunPlan, Side, splice
from parity.errors import ParityError
from parity.reference.planned.drive import CommandOf, Driven, follow, legs_here, legs_in_processes
from parity.reference.planned.evidence import RunEvidence, read_evidence
from parity.reference.planned.judge import Findings, judge
from parity.reference.planned.process import ProcessError, StartProcess, start_interpreter
from parity.reference.planned.scenarios import Leg, default_kills
from parity.results import CheckRecord, Curves, Verdict

__all__ = [
    "Drive",
    "RunPair",
    "check_resume",
    "check_scenarios",
    "describe_evidence",
    "run_here",
    "run_processes",
    "trace_resume",
]

WATCH_SECONDS = 0.5
"""Time between two looks at the records of the runs, for the progress."""

RunPair = tuple[RunEvidence, RunEvidence, list[int | None]]
"""Evidence of the uninterrupted run, of the killed one, and the step where each process of that one had to start."""

Drive = Callable[[], tuple[RunEvidence, Sequence[Driven]]]
"""Trains the uninterrupted run and those in the scenarios: `drive_processes` or `drive_here` with its arguments."""


def check_resume(run: Callable[[], RunPair], *, name: str, precision: Precision, side: str) -> CheckRecord:
    """Train, kill, resume, kill, resume, and compare with a run that nothing stopped; bitwise.

    Args:
        run: Trains both runs: `run_processes` or `run_here` with its arguments, as by `functools.partial`.
        name: Name of the run, for the record.
        precision: What it computes in, for the record.
        side: Name of the side, for the record.
    """
    record = partial(CheckRecord.of, "resume", name, precision, (side,), began=time.perf_counter())
    try:
        reference, resumed, expected = run()
        findings = judge(reference, resumed, expected)
    except (ProcessError, ParityError) as error:
        return record("crashed", notes=(str(error),))
    verdict: Verdict = "broken" if findings.broken else "holds" if findings.steps_compared else "empty"
    return record(verdict, **findings.fields(), **describe_evidence(reference, resumed, findings))


def check_scenarios(
    drive: Drive, closed: Mapping[str, str], *, name: str, precision: Precision, side: str
) -> CheckRecord:
    """Judge a run on each of its scenarios; bitwise.

    Args:
        drive: Trains.
        closed: Scenarios that were asked for and that the run cannot be driven in, with the reason; listed.
        name: Name of the run, for the record.
        precision: What it computes in, for the record.
        side: Name of the side, for the record.
    """
    record = partial(CheckRecord.of, "resume", name, precision, (side,), began=time.perf_counter())
    listed = [f"scenario {scenario} was not driven: {why}" for scenario, why in closed.items()]
    try:
        reference, driven = drive()
        judged = [(one, one.judge(reference)) for one in driven]
    except (ProcessError, ParityError) as error:
        return record("crashed", notes=(str(error), *listed))
    notes = [*(note for _, found in judged for note in found.notes), *listed]
    whole = [(one.resumed, found) for one, found in judged if one.resumed is not None]
    if not whole:
        return record("crashed" if judged else "empty", notes=tuple(notes))
    every = [found for _, found in whole]
    together = Findings(
        steps_compared=min(found.steps_compared for found in every),
        max_abs=max(found.max_abs for found in every),
        max_rel=max(found.max_rel for found in every),
        first=next((found.first for found in every if found.first is not None), None),
        suspects=list(dict.fromkeys(one for found in every for one in found.suspects)),
        notes=notes,
        leaves=[leaf for found in every for leaf in found.leaves],
    )
    crashed, broken = len(whole) < len(judged), any(found.broken for found in every)
    verdict: Verdict = (
        "broken" if broken else "crashed" if crashed else "holds" if together.steps_compared else "empty"
    )
    resumed, worst = next((pair for pair in whole if pair[1].broken), whole[0])
    return record(verdict, **together.fields(), **describe_evidence(reference, resumed, worst))


def run_processes(
    command: CommandOf,
    plan: RunPlan,
    workdir: Path,
    kills: Sequence[int] = (),
    *,
    epoch: int | None = None,
    environment: Mapping[str, str] | None = None,
    durable: bool = True,
    begin: StartProcess = start_interpreter,
    on_step: OnStep = ignore_step,
) -> RunPair:
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
    run_leg = legs_in_processes(command, plan, environment=environment, begin=begin, durable=durable)
    with ThreadPoolExecutor(2) as pool:
        reference = pool.submit(run_leg, workdir / "reference", Leg(), 0, "auto")
        resumed = pool.submit(follow, _killed(kills), workdir / "resumed", run_leg)
        both: list[Future[Any]] = [reference, resumed]
        while wait(both, WATCH_SECONDS).not_done:
            behind = min(("reference", "resumed"), key=lambda run: last_step(workdir / run / "steps.jsonl"))
            on_step(f"{behind} run,", last_step(workdir / behind / "steps.jsonl"), plan.steps)
        reference.result()
        expected = resumed.result()
    return read_evidence(workdir / "reference"), read_evidence(workdir / "resumed"), expected


def run_here(
    described: Any,
    side: Side,
    workdir: Path,
    kills: Sequence[int],
    *,
    resuming: Side | None = None,
) -> RunPair:
    """Run both runs within this process: a kill drops the trainer and builds a new one from disk.

    Fast, and for trainers that have no command of their own; it does not show that a checkpoint outlives SIGKILL.

    Args:
        described: The run, as the side understands it.
        side: What trains the uninterrupted run.
        workdir: Where the run directories go.
        kills: Steps to kill at.
        resuming: What trains the killed run; by default the same side.
    """
    legs_here(described, side)(workdir / "reference", Leg(), 0, "auto")
    expected = follow(_killed(kills), workdir / "resumed", legs_here(described, resuming or side))
    return read_evidence(workdir / "reference"), read_evidence(workdir / "resumed"), expected


def _killed(kills: Sequence[int]) -> list[Leg]:
    """Return what the processes of a run do that is killed at some steps, and finishes."""
    return [*(Leg(until=step) for step in kills), Leg()]


def describe_evidence(reference: RunEvidence, resumed: RunEvidence, findings: Findings) -> dict[str, Any]:
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


def trace_resume(reference: RunEvidence, resumed: RunEvidence, keep: Iterable[int | None] = ()) -> Curves | None:
    """Return what an uninterrupted run and a killed one show, with the marks of every kill and resume.

    Args:
        reference: Evidence of the uninterrupted run.
        resumed: Evidence of the killed one; where it trained a step again, the last time counts.
        keep: Steps that stay however long the run is.
    """
    ends: dict[int, int] = {}
    for record in resumed.records:
        ends[record.attempt] = max(record.step, ends.get(record.attempt, 0))
    last = len(resumed.resumed_from) - 1
    kills = tuple(ends.get(attempt, start or 0) for attempt, start in enumerate(resumed.resumed_from[:last]))
    resumes = tuple(start or 0 for start in resumed.resumed_from[1:])
    return trace(
        reference.curve,
        resumed.curve,
        RESUMED_LABELS,
        keep=keep,
        kills=kills,
        resumes=resumes,
        validations=trace_validations(splice(reference.validations), splice(resumed.validations)),
    )
