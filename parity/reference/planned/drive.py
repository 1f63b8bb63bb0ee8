"""Drive runs in scenarios, in processes or within this one: each is killed or stopped, and resumed."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from parity import policy
from parity.checks import OnStep, ignore_step
from parity.checks.running import Killed
from parity.contract import RunPlan, Side
from parity.errors import ParityError
from parity.policy import Mode
from parity.reference.planned.evidence import RunEvidence, read_evidence
from parity.reference.planned.judge import Findings, judge
from parity.reference.planned.process import ProcessError, StartProcess, TrainingProcess, start_interpreter
from parity.reference.planned.scenarios import Leg, PlannedScenario
from parity.runs import QUIET, FaultInjection, ProcessOptions, ResumeChoice, RunDirectory, train

__all__ = [
    "CommandOf",
    "Driven",
    "drive_here",
    "drive_processes",
    "follow",
    "legs_here",
    "legs_in_processes",
]

TIMEOUT_SECONDS = 600.0
"""Longest one training process may take."""

SETTLE_SECONDS = 30.0
"""Longest a save in the background is waited for before a kill."""

CommandOf = Callable[[Path, int | None], Sequence[str]]
"""Returns the command line of a training process: given the run directory, and the step to pause at, if any."""

Arguments = Callable[[Leg, ResumeChoice], Sequence[str]]
"""Returns what a leg adds to the command line of its process."""

SpecChange = Callable[[Any, Mapping[str, int]], Any]
"""Returns the description of a run with other values of some fields."""

RunLeg = Callable[[Path, Leg, int, ResumeChoice], None]
"""Runs one process of a scenario: given the run directory, the leg, its attempt, the checkpoint that it asks for."""


@dataclass(frozen=True, kw_only=True)
class Driven:
    """What became of a run on one scenario."""

    scenario: PlannedScenario
    resumed: RunEvidence | None = None
    """None where a process did not do what it should."""
    expected: tuple[int | None, ...] = ()
    """Step at which each process had to start; None for a start from step 0."""
    error: str = ""

    def judge(self, reference: RunEvidence) -> Findings:
        """Return the findings; every sentence names the scenario."""
        if self.resumed is None:
            return Findings(notes=[f"scenario {self.scenario.name}: {self.error}"])
        found = judge(
            reference.without(self.scenario.ignored),
            self.resumed.without(self.scenario.ignored),
            self.expected,
            chosen=[at for at, leg in enumerate(self.scenario.legs) if leg.resume != "auto"],
            other_intervals="validate_every" in self.scenario.changed,
        )
        where = f"scenario {self.scenario.name}: "
        found.notes = [where + note for note in found.notes]
        found.leaves = [replace(leaf, where=where + leaf.where) for leaf in found.leaves]
        return found


def drive_processes(
    command: CommandOf,
    arguments: Arguments,
    plan: RunPlan,
    workdir: Path,
    scenarios: Sequence[PlannedScenario],
    *,
    environment: Mapping[str, str] | None = None,
    begin: StartProcess = start_interpreter,
    on_step: OnStep = ignore_step,
) -> tuple[RunEvidence, list[Driven]]:
    """Train the uninterrupted run and one in each scenario, in processes of their own, two at a time.

    Args:
        command: Makes the command lines, as for `run_processes`.
        arguments: Makes what a leg adds to them.
        plan: When the uninterrupted run saves and stops.
        workdir: Where the run directories go: `reference`, and one of the name of each scenario.
        scenarios: Where to drive.
        environment: Of the processes; None for that of this process.
        begin: Starts each process.
        on_step: Called with the number of scenarios that were driven to their end.
    """
    workdir.mkdir(parents=True, exist_ok=True)
    run_leg = legs_in_processes(command, plan, arguments, environment=environment, begin=begin)
    done = []
    with ThreadPoolExecutor(2) as pool:
        reference = pool.submit(run_leg, workdir / "reference", Leg(), 0, "auto")
        runs = [pool.submit(_drive, scenario, plan.mode, workdir / scenario.name, run_leg) for scenario in scenarios]
        for number, (scenario, run) in enumerate(zip(scenarios, runs, strict=True), 1):
            done.append(run.result())
            on_step(f"scenario {scenario.name},", number, len(runs))
        reference.result()
    return read_evidence(workdir / "reference"), done


def drive_here(
    described: Any,
    side: Side,
    plan: RunPlan,
    workdir: Path,
    scenarios: Sequence[PlannedScenario],
    *,
    change: SpecChange,
    resuming: Side | None = None,
) -> tuple[RunEvidence, list[Driven]]:
    """Train the uninterrupted run and one in each scenario within this process; see `run_here`.

    Args:
        described: The run, as the side understands it.
        side: What trains the uninterrupted run.
        plan: When that saves and stops.
        workdir: Where the run directories go.
        scenarios: Where to drive.
        change: Returns the description of a run with other values of some fields.
        resuming: What trains in the scenarios; by default the same side.
    """
    legs_here(described, side, change)(workdir / "reference", Leg(), 0, "auto")
    run_leg = legs_here(described, resuming or side, change)
    done = [_drive(scenario, plan.mode, workdir / scenario.name, run_leg) for scenario in scenarios]
    return read_evidence(workdir / "reference"), done


def _drive(scenario: PlannedScenario, mode: Mode | None, home: Path, run_leg: RunLeg) -> Driven:
    try:
        expected = follow(scenario.legs, home, run_leg, mode)
        return Driven(scenario=scenario, resumed=read_evidence(home), expected=tuple(expected))
    except (ProcessError, ParityError) as error:
        return Driven(scenario=scenario, error=str(error))


def follow(legs: Sequence[Leg], home: Path, run_leg: RunLeg, mode: Mode | None = "max") -> list[int | None]:
    """Run the processes of a scenario, one after the other, and return the step at which each had to start.

    Args:
        legs: What they do.
        home: The run directory.
        run_leg: Runs one of them.
        mode: Whether a larger metric is better, for a leg that resumes from the best checkpoint.

    Raises:
        ProcessError: A process did not do what it should, or no checkpoint is left that a leg asks for.
    """
    expected: list[int | None] = []
    for attempt, leg in enumerate(legs):
        resume, step = _choice(home, leg, mode)
        expected.append(step)
        run_leg(home, leg, attempt, resume)
    return expected


def _choice(home: Path, leg: Leg, mode: Mode | None) -> tuple[ResumeChoice, int | None]:
    """Return what a process asks for, and the step at which it must start, as a scan from outside sees it."""
    if leg.resume == "auto":
        return "auto", newest_checkpoint(home) if home.is_dir() else None
    whole = sorted(RunDirectory(home).store.scan().whole, key=lambda saved: saved.step)
    if leg.resume == "best":
        best = policy.best(whole, mode)
        if best is None:
            raise ProcessError("no best checkpoint was left to resume from", "")
        return "best", best.step
    if len(whole) < 2:
        raise ProcessError("no checkpoint older than the newest was left to resume from", "")
    return whole[-2].step, whole[-2].step


def legs_in_processes(
    command: CommandOf,
    plan: RunPlan,
    arguments: Arguments = lambda leg, resume: (),
    *,
    environment: Mapping[str, str] | None,
    begin: StartProcess,
    durable: bool = True,
) -> RunLeg:
    """Return what runs a leg in a process of its own; see `run_processes`."""

    def run_leg(home: Path, leg: Leg, attempt: int, resume: ResumeChoice) -> None:
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
            if durable:  # the save at `until` itself would come after the records
                every = leg.changes.get("save.every", plan.save_every)
                await_checkpoint(home, max(0, leg.until - 1) // every * every)
            process.kill()

    return run_leg


def legs_here(described: Any, side: Side, change: SpecChange = lambda described, changes: described) -> RunLeg:
    """Return what runs a leg within this process; see `run_here` and `drive_here`."""

    def run_leg(home: Path, leg: Leg, attempt: int, resume: ResumeChoice) -> None:
        def pause() -> None:
            if leg.end == "kill":
                raise Killed
            signal.raise_signal(signal.SIGTERM)

        faults = FaultInjection(trace=True, pause_at=leg.until, pause=pause)
        with suppress(Killed):
            train(
                side,
                "here",
                change(described, leg.changes),
                home,
                ProcessOptions(resume=resume, faults=faults),
                QUIET,
            )

    return run_leg


def await_checkpoint(path: Path, step: int) -> None:
    """Return when the checkpoint of a step is whole; after a while give up, and let the judge see what there is."""
    deadline = time.monotonic() + SETTLE_SECONDS
    while step and (newest_checkpoint(path) or 0) < step and time.monotonic() < deadline:
        time.sleep(0.02)


def newest_checkpoint(path: Path) -> int | None:
    """Return the step of the newest whole checkpoint, as a scan from outside sees it."""
    newest = policy.latest(RunDirectory(path).store.scan().whole)
    return newest.step if newest else None
