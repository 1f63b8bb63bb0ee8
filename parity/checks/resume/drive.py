"""Drive runs along roads, in processes or within this one, and judge each against one uninterrupted run."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from parity import policy
from parity.checks.leaves import MOST_LEAVES
from parity.checks.progress import OnStep, ignore_step
from parity.checks.resume.check import (
    TIMEOUT_SECONDS,
    Command,
    Killed,
    await_checkpoint,
    describe_evidence,
    newest_checkpoint,
)
from parity.checks.resume.evidence import Evidence, read_evidence
from parity.checks.resume.judge import Findings, judge
from parity.checks.resume.process import ProcessError, Start, TrainingProcess, start_interpreter
from parity.checks.resume.roads import Leg, Road
from parity.contract import Precision, RunPlan, Side
from parity.errors import ParityError
from parity.results import CheckRecord
from parity.runs import QUIET, FaultInjection, Options, Resume, RunDirectory, train

__all__ = ["Drive", "Driven", "check_roads", "drive_here", "drive_processes"]

Arguments = Callable[[Leg, Resume], Sequence[str]]
"""Returns what a leg adds to the command line of its process."""


@dataclass(frozen=True, kw_only=True)
class Driven:
    """What became of a run on one road."""

    road: Road
    resumed: Evidence | None = None
    """None where a process did not do what it should."""
    expected: tuple[int | None, ...] = ()
    """Step at which each process had to start; None for a start from step 0."""
    error: str = ""

    def judge(self, reference: Evidence) -> Findings:
        """Return the findings; every sentence names the road."""
        if self.resumed is None:
            return Findings(notes=[f"road {self.road.name}: {self.error}"])
        found = judge(
            reference.without(self.road.ignored),
            self.resumed.without(self.road.ignored),
            self.expected,
            chosen=[at for at, leg in enumerate(self.road.legs) if leg.resume != "auto"],
            other_intervals="validate_every" in self.road.changed,
        )
        where = f"road {self.road.name}: "
        found.notes = [where + note for note in found.notes]
        found.leaves = [replace(leaf, where=where + leaf.where) for leaf in found.leaves]
        return found


Drive = Callable[[], tuple[Evidence, Sequence[Driven]]]
"""Trains the uninterrupted run and those on the roads: `drive_processes` or `drive_here` with its arguments."""


def check_roads(
    drive: Drive, closed: Mapping[str, str], *, name: str, precision: Precision, side: str
) -> CheckRecord:
    """Judge a run on each of its roads; bitwise.

    Args:
        drive: Trains.
        closed: Roads that were asked for and that the run cannot be driven along, with the reason; listed.
        name: Name of the run, for the record.
        precision: What it computes in, for the record.
        side: Name of the side, for the record.
    """
    began = time.perf_counter()
    listed = tuple(f"road {road} was not taken: {why}" for road, why in closed.items())
    try:
        reference, driven = drive()
        judged = [(one, one.judge(reference)) for one in driven]
    except (ProcessError, ParityError) as error:
        notes = (str(error), *listed)
        return CheckRecord.of(
            "resume", name, precision, (side,), "crashed", began=began, criterion="bitwise", notes=notes
        )
    whole = [(one, found) for one, found in judged if one.resumed is not None]
    worst = next((pair for pair in whole if pair[1].broken), whole[0] if whole else None)
    least = min((found.steps_compared for _, found in whole), default=0)
    crashed, broken = len(whole) < len(judged), any(found.broken for _, found in whole)
    shown = describe_evidence(reference, worst[0].resumed, worst[1]) if worst and worst[0].resumed else {}
    return CheckRecord(
        name="resume",
        spec=name,
        precision=precision,
        sides=(side,),
        verdict="broken" if broken else "crashed" if crashed else "empty" if least == 0 else "holds",
        criterion="bitwise",
        steps_compared=least,
        max_abs_diff=max((found.max_abs for _, found in whole), default=None),
        max_rel_diff=max((found.max_rel for _, found in whole), default=None),
        first_divergence=next((found.first for _, found in whole if found.first is not None), None),
        suspects=tuple(dict.fromkeys(one for _, found in whole for one in found.suspects)),
        notes=(*_notes(judged), *listed),
        leaves=tuple([leaf for _, found in whole for leaf in found.leaves][:MOST_LEAVES]),
        seconds=time.perf_counter() - began,
        **shown,
    )


def _notes(judged: Sequence[tuple[Driven, Findings]]) -> list[str]:
    """Return every sentence; a road that shows a difference in the curve alone is named with that."""
    out: list[str] = []
    for one, found in judged:
        first = found.first
        if not found.notes and first is not None:
            out.append(f"road {one.road.name}: {first.quantity} of step {first.step} differs")
        out += found.notes
    return out


def drive_processes(
    command: Command,
    arguments: Arguments,
    plan: RunPlan,
    workdir: Path,
    roads: Sequence[Road],
    *,
    environment: Mapping[str, str] | None = None,
    begin: Start = start_interpreter,
    on_step: OnStep = ignore_step,
) -> tuple[Evidence, list[Driven]]:
    """Train the uninterrupted run and one on each road, in processes of their own, two at a time.

    Args:
        command: Makes the command lines, as for `run_processes`.
        arguments: Makes what a leg adds to them.
        plan: When the uninterrupted run saves and stops.
        workdir: Where the run directories go: `reference`, and one of the name of each road.
        roads: Where to drive.
        environment: Of the processes; None for that of this process.
        begin: Starts each process.
        on_step: Called with the number of roads that were driven to their end.
    """
    workdir.mkdir(parents=True, exist_ok=True)

    def start(home: Path, leg: Leg, attempt: int, resume: Resume) -> None:
        line = [*command(home, leg.until), *arguments(leg, resume)]
        with TrainingProcess(line, home, home.with_name(f"{home.name}.log"), environment, begin) as process:
            if leg.until is None:
                return process.wait(TIMEOUT_SECONDS)
            if leg.until:
                process.wait_for_step(leg.until, attempt, TIMEOUT_SECONDS)
            else:
                process.wait_for_start(attempt, TIMEOUT_SECONDS)
            if leg.end == "stop":
                return process.stop(TIMEOUT_SECONDS)
            every = leg.changes.get("save.every", plan.save_every)
            await_checkpoint(home, max(0, leg.until - 1) // every * every)
            process.kill()

    with ThreadPoolExecutor(2) as pool:
        reference = pool.submit(start, workdir / "reference", Leg(), 0, "auto")
        runs = [pool.submit(_drive, road, plan, workdir / road.name, start) for road in roads]
        done = [_report(run.result, number, len(runs), on_step) for number, run in enumerate(runs, 1)]
        reference.result()
    return read_evidence(workdir / "reference"), done


def _report(result: Callable[[], Driven], number: int, of: int, on_step: OnStep) -> Driven:
    driven = result()
    on_step(f"road {driven.road.name},", number, of)
    return driven


def drive_here(
    described: Any,
    side: Side,
    plan: RunPlan,
    workdir: Path,
    roads: Sequence[Road],
    *,
    change: Callable[[Any, Mapping[str, int]], Any],
    resuming: Side | None = None,
) -> tuple[Evidence, list[Driven]]:
    """Train the uninterrupted run and one on each road within this process; see `run_here`.

    Args:
        described: The run, as the side understands it.
        side: What trains the uninterrupted run.
        plan: When that saves and stops.
        workdir: Where the run directories go.
        roads: Where to drive.
        change: Returns the description of a run with other values of some fields.
        resuming: What trains on the roads; by default the same side.
    """

    def start_with(trainer: Side, home: Path, leg: Leg, resume: Resume) -> None:
        def pause() -> None:
            if leg.end == "kill":
                raise Killed
            signal.raise_signal(signal.SIGTERM)

        faults = FaultInjection(trace=True, pause_at=leg.until, pause=pause)
        try:
            train(trainer, "here", change(described, leg.changes), home, Options(resume=resume, faults=faults), QUIET)
        except Killed:
            return

    def start(home: Path, leg: Leg, attempt: int, resume: Resume) -> None:
        del attempt
        start_with(resuming or side, home, leg, resume)

    start_with(side, workdir / "reference", Leg(), "auto")
    done = [_drive(road, plan, workdir / road.name, start) for road in roads]
    return read_evidence(workdir / "reference"), done


def _drive(road: Road, plan: RunPlan, home: Path, start: Callable[[Path, Leg, int, Resume], None]) -> Driven:
    expected: list[int | None] = []
    try:
        for attempt, leg in enumerate(road.legs):
            resume, step = _choice(home, leg, plan)
            expected.append(step)
            start(home, leg, attempt, resume)
        return Driven(road=road, resumed=read_evidence(home), expected=tuple(expected))
    except (ProcessError, ParityError) as error:
        return Driven(road=road, error=str(error))


def _choice(home: Path, leg: Leg, plan: RunPlan) -> tuple[Resume, int | None]:
    """Return what a process asks for, and the step at which it must start, as a scan from outside sees it."""
    if leg.resume == "auto":
        return "auto", newest_checkpoint(home) if home.is_dir() else None
    whole = sorted(RunDirectory(home).store.scan().whole, key=lambda saved: saved.step)
    if leg.resume == "best":
        best = policy.best(whole, plan.mode)
        if best is None:
            raise ProcessError("no best checkpoint was left to resume from", "")
        return "best", best.step
    if len(whole) < 2:
        raise ProcessError("no checkpoint older than the newest was left to resume from", "")
    return whole[-2].step, whole[-2].step
