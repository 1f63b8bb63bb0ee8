"""Drive one process of a run: resume, train, validate, save, hear signals, stop."""

from __future__ import annotations

import json
import math
import os
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

from parity import plan
from parity.curves import append, encode, read_lines, read_records, splice
from parity.errors import CheckpointError, DivergedError, RunDirectoryError
from parity.rundir import RunDirectory, Scan
from parity.sides import Side
from parity.spec import RunSpec
from parity.state import leaf_digests
from parity.trainer import StepRecord, Trainer, Which

__all__ = ["Drills", "Outcome", "Resume", "train"]

Resume = Which | str
"""`auto`, `never`, or what a Trainer restores: `latest`, `best`, a step."""

Say = Callable[[str], None]
Watch = Callable[[StepRecord], None]


@dataclass(frozen=True, kw_only=True)
class Drills:
    """What the resume check asks of a process beside training."""

    trace: bool = False
    """Write the digest of every leaf of the live state to `states.jsonl` when restoring, saving and stopping."""
    hold_at: int | None = None
    """Hold once the records of this step are on disk; nothing more is computed or saved."""
    hold: Callable[[], None] | None = None
    """What holding is: None waits to be killed; a check within one process raises instead."""


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """How a process ended."""

    step: int
    resumed_from: int | None
    signal: int | None = None
    """The signal that stopped it, after saving."""


def train(
    side: Side,
    side_name: str,
    spec: RunSpec,
    directory: Path,
    *,
    resume: Resume = "auto",
    say: Say = print,
    watch: Watch = lambda record: None,
    drills: Drills | None = None,
) -> Outcome:
    """Train a run in this process until `spec.steps`, or until a signal.

    Args:
        side: The side that trains.
        side_name: Its name, written into the run directory.
        spec: The run.
        directory: Run directory; created, or continued.
        resume: What to start from.
        say: Takes one line for people.
        watch: Called with every record once it is on disk.
        drills: Orders of a resume check.

    Raises:
        RunDirectoryError: The directory may not be used as asked.
        SpecMismatchError: The run was started with another spec.
        CheckpointError: There is no checkpoint to resume from.
        DivergedError: Loss or gradient were not finite; the last good checkpoint stays.
    """
    run = RunDirectory(directory)
    if resume == "never" and run.exists:
        raise RunDirectoryError(f"{directory} holds a run already; choose another --dir, or --resume auto")
    if resume not in ("never", "auto") and not run.exists:
        raise RunDirectoryError(f"{directory} holds no run to resume; use --resume auto to start one")
    attempt = run.next_attempt()
    trainer = side.build(spec, directory, attempt=attempt)  # a spec that cannot be built leaves no trace
    run.open(spec, side_name)
    try:
        start = _resume(run, trainer, side, resume, attempt, say)
        topology = side.topology(spec)
        _compare_topology(run, topology, start, say)
        run.begin_attempt(attempt, start, topology)
        return _Loop(trainer, run, attempt, start, say, watch, drills or Drills()).run()
    finally:
        trainer.close()


def _resume(run: RunDirectory, trainer: Trainer, side: Side, resume: Resume, attempt: int, say: Say) -> int | None:
    scan = run.scan(side.examine)
    which = _which(run, scan, resume)
    if which is None:
        for name, why in scan.unfinished:
            say(f"ignored {name}: {why}")
        say("starting from step 0")
        return None
    step = run.choose(scan, which, trainer.spec.metric)
    given_up = which == "best" or isinstance(which, int)
    trainer.restore(step)  # first: what cannot be restored must not cost the newer checkpoints
    moved = run.abandon_after(step, attempt, records=given_up)
    run.point(run.scan(side.examine), trainer.spec.metric)
    for name, why in scan.damaged:
        if name in moved:
            say(f"moved checkpoint {name} to abandoned/{attempt}: {why}")
    say(f"resumed from step {step} ({which if isinstance(which, str) else 'step'})")
    return step


def _which(run: RunDirectory, scan: Scan, resume: Resume) -> Which | None:
    """Return what to restore, or None for a start from step 0."""
    if resume == "never":
        return None
    if resume != "auto":
        return resume  # type: ignore[return-value]
    if scan.whole:
        return "latest"
    if scan.damaged:
        raise CheckpointError(
            f"no whole checkpoint in {run.checkpoints}; starting over would hide the loss. Found:",
            scan.damaged + scan.unfinished,
        )
    return None


def _compare_topology(run: RunDirectory, topology: dict[str, Any], start: int | None, say: Say) -> None:
    rows = read_lines(run.attempts)
    if start is None or not rows:
        return
    before = rows[-1]["topology"]
    changed = [f"{k} {before.get(k)} -> {v}" for k, v in topology.items() if before.get(k) != v]
    if changed:
        say(f"topology changed ({', '.join(changed)}): going on, but bitwise equality is not to be expected")


def _skips_behind(run: RunDirectory, step: int) -> int:
    """Return how many steps up to `step` were skipped in a row: the count that stops a run goes on over a resume."""
    count = 0
    for number, record in splice(read_records(run.steps, StepRecord)).items():
        if number <= step:
            count = count + 1 if record.skipped else 0
    return count


class _Loop:
    """The loop of one process: train to the next stop, validate, save, again."""

    def __init__(
        self,
        trainer: Trainer,
        run: RunDirectory,
        attempt: int,
        start: int | None,
        say: Say,
        watch: Watch,
        drills: Drills,
    ) -> None:
        self.trainer, self.run_directory, self.attempt = trainer, run, attempt
        self.start, self.say, self.watch, self.drills = start, say, watch, drills
        self.saved_at = start
        self.signal: int | None = None
        self.skips = _skips_behind(run, start) if start and trainer.spec.scaled else 0

    def run(self) -> Outcome:
        """Train until done or told to stop."""
        trainer, spec = self.trainer, self.trainer.spec
        self._trace("started" if self.start is None else "restored")
        if trainer.step >= spec.steps:
            self.say(f"nothing to do: step {trainer.step} of {spec.steps} is done")
            return Outcome(step=trainer.step, resumed_from=self.start)
        before = {s: signal.signal(s, self._hear) for s in (signal.SIGTERM, signal.SIGINT)}
        try:
            while trainer.step < spec.steps and self.signal is None:
                self._train_to(plan.next_stop(spec, trainer.step, spec.steps))
                if self.signal is None or plan.next_stop(spec, trainer.step - 1, spec.steps) == trainer.step:
                    self._stop_point()
            if self.signal is not None and self.saved_at != trainer.step:
                self._save(None)
            trainer.wait()
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
        self._trace("final")
        if self.signal is not None:
            name = signal.Signals(self.signal).name
            self.say(f"{name}: saved step {trainer.step}, stopping; resume with --resume auto")
        else:
            self.say(f"done: step {trainer.step}")
        return Outcome(step=trainer.step, resumed_from=self.start, signal=self.signal)

    def _train_to(self, stop: int) -> None:
        """Train up to a stop, writing the records of each chunk as it ends."""
        waiting: list[StepRecord] = []
        for record in self.trainer.steps(stop):
            waiting.append(record)
            if record.step < self.trainer.step:
                continue  # the chunk has more
            self._write(waiting)
            waiting = []
            if self.drills.hold_at is not None and record.step >= self.drills.hold_at:
                self._hold()
            if self.signal is not None:
                return

    def _write(self, records: list[StepRecord]) -> None:
        fault = None
        for count, record in enumerate(records, 1):
            fault = self._fault(record)
            if fault:
                records = records[:count]
                break
        append(self.run_directory.steps, map(encode, records))
        for record in records:
            self.watch(record)
        if fault:
            kept = (
                f"; the last checkpoint is of step {self.saved_at}"
                if self.saved_at
                else "; no checkpoint was saved yet"
            )
            raise DivergedError(records[-1].step, fault + kept)

    def _fault(self, record: StepRecord) -> str | None:
        spec = self.trainer.spec
        if spec.scaled:
            self.skips = self.skips + 1 if record.skipped else 0
            if self.skips >= spec.scaler.max_skips:
                return (
                    f"{self.skips} steps in a row skipped for overflow, down to a loss scale of {record.loss_scale:g}"
                )
            return None
        for name in ("loss", "grad_norm"):
            if not math.isfinite(value := getattr(record, name)):
                return f"{name} is {value}, and there is no loss scaler to skip the step"
        return None

    def _stop_point(self) -> None:
        """Validate and save, where the plan says so; the last step is always saved."""
        trainer, spec = self.trainer, self.trainer.spec
        metric = None
        if plan.validates_at(spec, trainer.step):
            validation = trainer.evaluate()
            append(self.run_directory.validations, [encode(validation)])
            metric = validation.value
            self.say(f"step {trainer.step}: validation {validation.metric} {validation.value:.6g}")
        if plan.saves_at(spec, trainer.step) or trainer.step == spec.steps:
            self._save(metric)

    def _save(self, metric: float | None) -> None:
        self._trace("saving")
        self.trainer.save(metric)
        self._trace("saved")
        self.saved_at = self.trainer.step

    def _trace(self, event: str) -> None:
        if self.drills.trace:
            leaves = leaf_digests(self.trainer.export_state())
            row = {"event": event, "attempt": self.attempt, "step": self.trainer.step, "leaves": leaves}
            append(self.run_directory.states, [json.dumps(row)])

    def _hold(self) -> None:
        self.say(f"holding after step {self.trainer.step}")
        if self.drills.hold is not None:
            self.drills.hold()
        parent = os.getppid()
        while self.signal is None:
            if os.getppid() != parent:
                raise SystemExit("the check that was to kill this process is gone")
            time.sleep(0.01)

    def _hear(self, number: int, frame: FrameType | None) -> None:
        del frame
        if self.signal is not None:  # the second one does not wait for the chunk
            signal.signal(number, signal.SIG_DFL)
            signal.raise_signal(number)
        self.signal = number
