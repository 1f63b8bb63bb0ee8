"""The loop of one process of a run: train to the next stop, validate, save, react to signals, stop."""

from __future__ import annotations

import json
import math
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from parity import policy
from parity.contract import StepRecord, Trainer, record_line
from parity.errors import DivergedError, ParityError, SaveError
from parity.runs.copies import NoCopies
from parity.runs.directory import RunDirectory
from parity.runs.endings import describe_end, describe_nothing
from parity.runs.options import Observers, ProcessOptions, ProcessOutcome
from parity.runs.resume import skips_before
from parity.runs.signals import Heard
from parity.runs.together import Alone
from parity.state import VALUES, keep_values, leaf_digests
from parity.storage import append, reason

__all__ = ["Loop", "Start"]


class Start(NamedTuple):
    """What a process begins with: its number, and the step that it resumed from."""

    attempt: int
    step: int | None


class Loop:
    """The loop of one process: train to the next stop, validate, save, again."""

    def __init__(
        self,
        trainer: Trainer,
        run: RunDirectory,
        start: Start,
        options: ProcessOptions,
        observers: Observers,
        signals: Heard,
        together: Alone,
        copies: NoCopies,
    ) -> None:
        self.trainer, self.run_directory, self.start = trainer, run, start
        self.options, self.observers = options, observers
        self.signals, self.together, self.copies = signals, together, copies
        self.failures: list[str] = []
        self.unwritten: list[tuple[Path, str]] = []
        self.saved_at = start.step
        self.best = run.store.pointed("best")
        self.under_way: int | None = None
        """The step of a save whose result is not known yet."""
        self.began, self.loss = time.perf_counter(), math.nan
        self.skips = skips_before(run, start.step) if start.step and trainer.plan.scaled else 0

    def run(self) -> ProcessOutcome:
        """Train until the last step, or until a signal to stop."""
        trainer, plan = self.trainer, self.trainer.plan
        self._trace("started" if self.start.step is None else "restored")
        if trainer.step >= plan.steps:
            self.observers.log(describe_nothing(trainer.step, plan.steps))
            return ProcessOutcome(step=trainer.step, resumed_from=self.start.step)
        self.together.agree()
        if self.options.faults.pause_at == 0:
            self._pause()
        while trainer.step < plan.steps and self.signals.stop is None:
            self._train_to(self._next_stop())
            if plan.next_stop(trainer.step - 1, plan.steps) == trainer.step:
                self._stop_point()
        stopped = self.signals.stop
        if stopped is not None and trainer.step not in (self.saved_at, self.under_way):
            self._save(None)
        self._await_save()
        self._write_lines(self.run_directory.steps, [])
        self._trace("final")
        self._finish_copies()
        if stopped is not None:
            how = "saved" if self.saved_at == trainer.step else "could not save"
            name = signal.Signals(stopped).name
            self.observers.log(f"{name}: {how} step {trainer.step}, stopping; resume with --resume auto")
        else:
            seconds = time.perf_counter() - self.began
            self.observers.log(describe_end(self.run_directory, plan, trainer.step, self.loss, seconds))
        return ProcessOutcome(step=trainer.step, resumed_from=self.start.step, signal=stopped, failures=self.failures)

    def _next_stop(self) -> int:
        """Return where the chunks end next: where the plan has it, or where a check asks for a pause."""
        step, pause_at = self.trainer.step, self.options.faults.pause_at
        stop = self.trainer.plan.next_stop(step, self.trainer.plan.steps)
        return stop if pause_at is None or pause_at <= step else min(stop, pause_at)

    def _train_to(self, stop: int) -> None:
        """Train up to a stop, writing the records of each chunk as it ends."""
        waiting, faults = list[StepRecord](), self.options.faults
        for record in self.trainer.steps(stop):
            waiting.append(record)
            if record.step < self.trainer.step:
                continue  # the chunk has more
            self._write(waiting)
            self._tell_of_copies()
            waiting = []
            self.together.agree()
            if faults.pause_at and record.step >= faults.pause_at:
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
        self._write_lines(self.run_directory.steps, [record_line(record) for record in records])
        for record in records:
            self.loss = record.loss
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
            self._write_lines(self.run_directory.validations, [record_line(validation)])
            self.observers.on_validation(validation)
            metric = validation.value
            self.observers.log(f"step {trainer.step}: validation {validation.metric} {validation.value:.6g}")
        due = plan.saves_at(trainer.step) or trainer.step == plan.steps or self.signals.save
        if due or (plan.saves_new_best and self._is_new_best(metric)):
            self._attempt_to(self._require_copies)
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
            self.best = self._best_on_disk()
        elif step is not None:
            self.saved_at = step
            self.copies.wake()

    def _tell_of_copies(self) -> None:
        for line in self.copies.lines():
            self.observers.log(line)

    def _require_copies(self) -> None:
        """Check once that no other process has taken the place of the copies: it trains this run, too."""
        try:
            self.copies.require()
        except ParityError as error:
            self.copies.close()
            self.copies = NoCopies()
            raise SaveError(self.saved_at or 0, f"its copy: {error}", saved=True) from error

    def _finish_copies(self) -> None:
        """Wait until what was saved is copied; what could not be is a failure of its own."""
        problem = self.copies.finish()
        self._tell_of_copies()
        if problem is not None:
            error = SaveError(self.saved_at or 0, f"its copy: {problem}", saved=True)
            if self.options.on_error == "stop":
                raise error
            self.failures.append(str(error))
            self.observers.log(str(error))

    def _best_on_disk(self) -> policy.Saved | None:
        """Return the best checkpoint there; None, so that the next validation is saved, where it cannot be read."""
        try:
            return self.run_directory.store.pointed("best")
        except OSError:
            return None

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
        if not self.options.faults.trace:
            return
        state = self.trainer.export_state(copy=False)  # in every process: each may hold a part of it
        if self.together.first:
            leaves = leaf_digests(state, schema=1)  # as every check.json has them
            keep_values(state, leaves, self.run_directory.path / VALUES)
            row = {"event": event, "attempt": self.start.attempt, "step": self.trainer.step, "leaves": leaves}
            append(self.run_directory.states, [json.dumps(row)])

    def _pause(self) -> None:
        where = f"after step {self.trainer.step}" if self.options.faults.pause_at else "before the first step"
        self.observers.log(f"paused {where}")
        if self.options.faults.pause is not None:
            self.options.faults.pause()
        parent = os.getppid()
        while self.signals.stop is None:
            if os.getppid() != parent:
                raise SystemExit("the check that was to kill this process is gone")
            time.sleep(0.01)
