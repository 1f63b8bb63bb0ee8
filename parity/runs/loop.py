"""One process of a run, from start to end: resume, train, validate, save, react to signals, stop."""

from __future__ import annotations

import json
import math
import os
import signal
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, NamedTuple

from parity import policy
from parity.contract import Side, StepRecord, Trainer, Validation, drafts_of, encode, leaf_digests
from parity.errors import DivergedError, RunDirectoryError, SaveError, SpecError
from parity.runs.directory import RunDirectory
from parity.runs.history import next_attempt, require_history, start_over
from parity.runs.resume import Resume, compare_topology, resume_run, skips_before
from parity.runs.signals import DEADLINE_SECONDS
from parity.runs.together import Alone, Heard, Together
from parity.storage import WriterLock, append, reason

__all__ = ["QUIET", "FaultInjection", "Observers", "Options", "Outcome", "train"]

OnError = Literal["stop", "continue"]
"""What a run does when a checkpoint or records cannot be written."""

Log = Callable[[str], None]


def _ignore(value: object) -> None:
    del value


@dataclass(frozen=True, kw_only=True)
class FaultInjection:
    """What the resume check asks of a process beside training."""

    trace: bool = False
    """Write the digest of every leaf of the live state to `states.jsonl` when restoring, saving and stopping."""
    pause_at: int | None = None
    """Pause once the records of this step are on disk; nothing more is computed or saved."""
    pause: Callable[[], None] | None = None
    """What to do then: None waits to be killed; a check within one process raises instead."""


@dataclass(frozen=True, kw_only=True)
class Options:
    """How one process treats its run; nothing here belongs to the run itself."""

    resume: Resume = "auto"
    """What to start from."""
    or_next: bool = False
    """With `resume="best"`: whether the next best checkpoint is taken where the best is damaged."""
    on_error: OnError = "stop"
    """Whether a failed save stops the run, or is reported and the run continues."""
    deadline: float = DEADLINE_SECONDS
    """Seconds that a process may take to save after a signal to stop."""
    faults: FaultInjection = FaultInjection()
    """What a resume check asks for."""


@dataclass(frozen=True, kw_only=True)
class Observers:
    """Functions that are called as a run proceeds; an error in one ends the run."""

    log: Log = print
    """Takes one line for people."""
    on_step: Callable[[StepRecord], None] = _ignore
    """Called with every step record once it is on disk."""
    on_validation: Callable[[Validation], None] = _ignore
    """Called with every validation once it is on disk."""


QUIET = Observers(log=_ignore)
"""Observers that do nothing."""


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """How a process ended."""

    step: int
    resumed_from: int | None
    signal: int | None = None
    """The signal that stopped it, after saving."""
    failures: list[str] = field(default_factory=list)
    """What could not be saved, of a run that continued all the same."""


def train(
    side: Side,
    side_name: str,
    described: Any,
    directory: Path,
    options: Options = Options(),
    observers: Observers = Observers(),
    together: Alone | None = None,
) -> Outcome:
    """Train a run in this process until the last step of its plan, or until a signal.

    Args:
        side: The side that trains.
        side_name: Its name, written into the run directory.
        described: The run, as the side understands it: what its `build` takes.
        directory: Run directory; created, or continued.
        options: What to start from, and what happens when a save fails or a signal comes.
        observers: What is called as the run proceeds.
        together: The processes that train this run, entered; None for one.

    Raises:
        RunDirectoryError: The directory may not be used as asked, or something of the run is missing.
        LockedError: Another process writes to it.
        SaveError: A checkpoint or records could not be written; the checkpoints before it stay.
        SpecMismatchError: The run was started as another run.
        CheckpointError: There is no checkpoint to resume from.
        DivergedError: Loss or gradient were not finite; the last good checkpoint stays.
    """
    run, together = RunDirectory(directory, drafts=drafts_of(side)), together or Alone()
    resume, log = options.resume, observers.log
    if isinstance(together, Together):
        if options.on_error == "continue":
            raise SpecError("--on-error", "continue is for one process; of several, a save that failed ends all")
        if not together.first:
            return _follow(side, described, directory, options, together)
    if resume not in ("never", "auto") and not run.exists:
        raise RunDirectoryError(f"{directory} holds no run to resume; use --resume auto to start one")
    run.require_free()
    with ExitStack() as stack:
        locked = run.exists
        if locked:
            stack.enter_context(WriterLock(directory))
        for line in run.repair():
            log(line)
        incomplete = require_history(run, resume) if locked else None
        attempt = together.share(next_attempt(run, incomplete))
        trainer = side.build(described, directory, attempt=attempt)  # what cannot be built leaves no trace
        if not locked:
            stack.enter_context(WriterLock(directory))
            if run.exists:
                raise RunDirectoryError(f"another process started a run in {directory} meanwhile; start again")
        stack.push(together.closing(trainer))  # before the lock is released: a save may be under way
        run.open(trainer.identity, side_name)
        if locked and resume == "never":
            moved = start_over(run, attempt)
            log(f"moved {', '.join(moved) or 'nothing'} to abandoned/{attempt}: the run starts over")
        restoring = together.restoring(trainer, run.checkpoints)
        start = resume_run(run, restoring, resume, attempt, log, or_next=options.or_next)
        if incomplete is not None:
            log(f"records up to step {incomplete} are incomplete: continuing without them, as the step was named")
        if warning := trainer.plan.warning():
            log(warning)
        topology = side.topology(described)
        compare_topology(run, topology, start, log)
        facts = {"save_every": trainer.plan.save_every, "records_after": incomplete, "spec_hash": trainer.spec_hash}
        run.begin_attempt(attempt, start, topology, **facts)
        together.share({"start": start})
        with together.signals(options.deadline) as signals:
            return _Loop(trainer, run, _Start(attempt, start), options, observers, signals, together).run()


def _follow(side: Side, described: Any, directory: Path, options: Options, together: Together) -> Outcome:
    """Train in a process other than the first of several, which decides what is trained and writes the records."""
    attempt = together.share(0)
    trainer = side.build(described, directory, attempt=attempt)
    with ExitStack() as stack:
        stack.push(together.closing(trainer))
        start = _Start(attempt, together.follow(trainer))
        signals = stack.enter_context(together.signals(0))
        run = RunDirectory(directory)
        return _Loop(trainer, run, start, replace(options, on_error="stop"), QUIET, signals, together).run()


class _Start(NamedTuple):
    """What a process begins with: its number, and the step that it resumed from."""

    attempt: int
    step: int | None


class _Loop:
    """The loop of one process: train to the next stop, validate, save, again."""

    def __init__(
        self,
        trainer: Trainer,
        run: RunDirectory,
        start: _Start,
        options: Options,
        observers: Observers,
        signals: Heard,
        together: Alone,
    ) -> None:
        self.trainer, self.run_directory, self.start = trainer, run, start
        self.options, self.observers = options, observers
        self.signals, self.together = signals, together
        self.failures: list[str] = []
        self.unwritten: list[tuple[Path, str]] = []
        self.saved_at = start.step
        self.best = run.store.pointed("best")
        self.under_way: int | None = None
        """The step of a save whose result is not known yet."""
        self.skips = skips_before(run, start.step) if start.step and trainer.plan.scaled else 0

    def run(self) -> Outcome:
        """Train until the last step, or until a signal to stop."""
        trainer, plan = self.trainer, self.trainer.plan
        self._trace("started" if self.start.step is None else "restored")
        if trainer.step >= plan.steps:
            self.observers.log(f"nothing to do: step {trainer.step} of {plan.steps} is done")
            return Outcome(step=trainer.step, resumed_from=self.start.step)
        self.together.agree()
        while trainer.step < plan.steps and self.signals.stop is None:
            self._train_to(plan.next_stop(trainer.step, plan.steps))
            if plan.next_stop(trainer.step - 1, plan.steps) == trainer.step:
                self._stop_point()
        stopped = self.signals.stop
        if stopped is not None and trainer.step not in (self.saved_at, self.under_way):
            self._save(None)
        self._await_save()
        self._write_lines(self.run_directory.steps, [])
        self._trace("final")
        if stopped is not None:
            how = "saved" if self.saved_at == trainer.step else "could not save"
            name = signal.Signals(stopped).name
            self.observers.log(f"{name}: {how} step {trainer.step}, stopping; resume with --resume auto")
        else:
            self.observers.log(f"done: step {trainer.step}")
        return Outcome(step=trainer.step, resumed_from=self.start.step, signal=stopped, failures=self.failures)

    def _train_to(self, stop: int) -> None:
        """Train up to a stop, writing the records of each chunk as it ends."""
        waiting, faults = list[StepRecord](), self.options.faults
        for record in self.trainer.steps(stop):
            waiting.append(record)
            if record.step < self.trainer.step:
                continue  # the chunk has more
            self._write(waiting)
            waiting = []
            self.together.agree()
            if faults.pause_at is not None and record.step >= faults.pause_at:
                self._pause()
            if self.signals.save and record.step < stop:  # at a stop the plan decides, and validates first
                self._save(None)
            if self.signals.stop is not None:
                return

    def _write(self, records: list[StepRecord]) -> None:
        fault = None
        for count, record in enumerate(records, 1):
            fault = self._fault(record)
            if fault:
                records = records[:count]
                break
        self._write_lines(self.run_directory.steps, [encode(record) for record in records])
        for record in records:
            self.observers.on_step(record)
        if fault:
            try:
                self._await_save()
            except SaveError as error:  # the run ends all the same
                fault += f"; {error}"
            kept = (
                f"the last checkpoint is of step {self.saved_at}" if self.saved_at else "no checkpoint was saved yet"
            )
            raise DivergedError(records[-1].step, f"{fault}; {kept}")

    def _fault(self, record: StepRecord) -> str | None:
        plan = self.trainer.plan
        if plan.scaled:
            self.skips = self.skips + 1 if record.skipped else 0
            if self.skips >= plan.max_skips:
                return (
                    f"{self.skips} steps in a row skipped for overflow, down to a loss scale of {record.loss_scale:g}"
                )
            return None
        for name in ("loss", "grad_norm"):
            if not math.isfinite(value := getattr(record, name)):
                return f"{name} is {value}, and there is no loss scaler to skip the step"
        return None

    def _stop_point(self) -> None:
        """Validate and save, where the plan does; the last step is always saved."""
        trainer, plan = self.trainer, self.trainer.plan
        metric = None
        if plan.validates_at(trainer.step):
            validation = trainer.evaluate()
            self._write_lines(self.run_directory.validations, [encode(validation)])
            self.observers.on_validation(validation)
            metric = validation.value
            self.observers.log(f"step {trainer.step}: validation {validation.metric} {validation.value:.6g}")
        due = plan.saves_at(trainer.step) or trainer.step == plan.steps or self.signals.save
        if due or (plan.saves_new_best and self._is_new_best(metric)):
            self._save(metric)

    def _is_new_best(self, metric: float | None) -> bool:
        """Return whether a checkpoint of this step would be the best of those saved so far."""
        known = [self.best] if self.best is not None else []
        new = policy.Saved(step=self.trainer.step, metric=metric)
        return policy.is_new_best(known, new, self.trainer.plan.mode)

    def _save(self, metric: float | None) -> None:
        self.signals.save = False
        self._await_save()
        if self.unwritten and not self._attempt_to(self._retry_records):
            return
        self.trainer.note_best(metric)
        self._trace("saving")
        if self._attempt_to(lambda: self.trainer.save(metric)):
            self.under_way = self.trainer.step
            if self._is_new_best(metric):
                self.best = policy.Saved(step=self.trainer.step, metric=metric)
            self._trace("saved")

    def _await_save(self) -> None:
        """Wait for the save under way; if it failed, that is a fault of its own."""
        step, self.under_way = self.under_way, None
        if not self._attempt_to(self.trainer.wait):
            self.best = self.run_directory.store.pointed("best")
        elif step is not None:
            self.saved_at = step

    def _attempt_to(self, act: Callable[[], None]) -> bool:
        """Do something that writes a checkpoint; if that fails, stop, or report it and continue, as was asked."""
        try:
            act()
        except (SaveError, OSError) as error:
            error = error if isinstance(error, SaveError) else SaveError(self.trainer.step, reason(error))
            if error.saved:
                self.saved_at = error.step
            if self.options.on_error == "stop":
                raise error
            self.failures.append(str(error))
            self.observers.log(f"{error}; continuing{'' if error.saved else ', older checkpoints are untouched'}")
            return False
        return True

    def _retry_records(self) -> None:
        """Write the records that could not be written before; a checkpoint must not outlive them."""
        try:
            self._flush()
        except OSError as error:
            raise SaveError(self.trainer.step, f"its records are not on disk: {reason(error)}") from error

    def _write_lines(self, file: Path, lines: list[str]) -> None:
        """Append records, and those that could not be written before."""
        if not self.together.first:
            return
        waited = bool(self.unwritten)
        self.unwritten += [(file, line) for line in lines]
        try:
            self._flush()
        except OSError as error:
            problem = SaveError(self.trainer.step, f"its records: {reason(error)}")
            if self.options.on_error == "stop" or not lines:  # at the end there is nothing to wait for
                raise problem from error
            if not waited:
                self.observers.log(f"{problem}; continuing, they are kept in memory")

    def _flush(self) -> None:
        for file in (self.run_directory.steps, self.run_directory.validations):
            append(file, [line for of, line in self.unwritten if of == file])
            self.unwritten = [(of, line) for of, line in self.unwritten if of != file]

    def _trace(self, event: str) -> None:
        if self.options.faults.trace and self.together.first:
            leaves = leaf_digests(self.trainer.export_state(copy=False), schema=1)  # as every check.json has them
            row = {"event": event, "attempt": self.start.attempt, "step": self.trainer.step, "leaves": leaves}
            append(self.run_directory.states, [json.dumps(row)])

    def _pause(self) -> None:
        self.observers.log(f"paused after step {self.trainer.step}")
        if self.options.faults.pause is not None:
            self.options.faults.pause()
        parent = os.getppid()
        while self.signals.stop is None:
            if os.getppid() != parent:
                raise SystemExit("the check that was to kill this process is gone")
            time.sleep(0.01)
