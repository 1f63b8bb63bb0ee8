"""Twin: the base of both trainers, everything about a run's steps and its state that is not a framework's."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, ClassVar, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from parity import policy
from parity.checkpoints import Checkpoints, fitting
from parity.contract import Pace, StepRecord
from parity.errors import InconsistentStateError, StateError
from parity.policy import Which
from parity.schedules import Schedule
from parity.spec import RunSpec, identity_of, to_toml
from parity.state import TrainingState, pack_schedule, take_count
from parity.storage import plain
from parity.twins.data import Chunk, Share, open_stream
from parity.twins.datasets import load_dataset
from parity.twins.layout import Layout
from parity.twins.prefetch import Prefetcher
from parity.twins.schedule import first_schedule, read_rule_state, rule_rates, shape_rates
from parity.twins.steps import Counters, StepInputs, StepOutputs

__all__ = ["Twin"]

SideState = TypeVar("SideState")
SideContent = TypeVar("SideContent")


class Twin(ABC, Generic[SideState, SideContent]):
    """The base of both trainers; a side adds its step, the placement of a chunk, and its state.

    `SideState` is the side's live state; `SideContent` what a checkpoint gives back, which becomes the state.

    Args:
        spec: The run.
        attempt: Process starts of the run before this one.
        share: The samples that this process computes on, of several that train the run; None for all.
    """

    side: ClassVar[str]
    checkpoints: Checkpoints[SideState, SideContent, Any] | None
    """None for a trainer that was built without a directory, and cannot save."""

    def __init__(self, spec: RunSpec, attempt: int, share: Share | None = None) -> None:
        self.spec, self.attempt = spec, attempt
        self.dataset = load_dataset(spec)
        self.identity = identity_of(spec)
        self.spec_hash = self.identity.hash(self.dataset.digest)
        self.layout = Layout.of(spec)
        self.counters = Counters()
        self.schedule_step = 0
        """Position of the learning-rate schedule: the completed steps, unless it was lost."""
        self.schedule = first_schedule(spec, self.layout.rates)
        """The schedule at the completed steps, where it is a rule; None where a rate follows from the position."""
        self.measured = 0
        """Step of the last validation whose metric moved the schedule."""
        self.best: dict[str, Any] | None = None
        """Metric and step of the best checkpoint when the last one was saved, itself included."""
        self._noted: int | None = None
        """The step at which `best` was last worked out."""
        self.feed: Prefetcher[Any] = Prefetcher(open_stream(spec, self.dataset, share), self._place)
        self.plan = spec.plan
        self._pace = Pace(self.plan)
        self.processes = 1
        """Processes that train this run together; each must cut its chunks as the others do."""
        self.inconsistent = False
        """True during a chunk and after one that failed: parameters and counters may belong to different steps."""

    @property
    def step(self) -> int:
        """Return the number of completed steps."""
        return self.counters.step

    def steps(self, until: int) -> Iterator[StepRecord]:
        """Train up to a step, chunk by chunk, yielding the records of a chunk when it is done.

        Raises:
            InconsistentStateError: An error ended an earlier chunk halfway; restore a checkpoint or import a state.
        """
        while self.step < until:
            self._require_consistent()
            self.inconsistent = True
            n = self.plan.chunk_length(self.step, until, self._pace.limit)
            began = time.perf_counter()
            chunk, placed = self.feed.take(n, self.step)
            outputs = self._run_chunk(placed, n)
            seconds = time.perf_counter() - began
            if self.processes == 1:  # clocks differ
                self._pace.note(n, seconds)
            records = self._records(chunk, placed, outputs, seconds / n)
            self.counters = self.counters.after(records)
            self.schedule_step += n
            if self.schedule is not None:
                self.schedule.take(n)
            self.inconsistent = False
            yield from records

    def fetch_next(self, n: int) -> None:
        """Fetch the chunk that follows the running one of n steps, whose length follows from the plan."""
        step = self.step + n
        self.feed.fetch(self.plan.chunk_length(step, self.plan.steps, self._pace.limit), step)

    def step_inputs(self, first: int, n: int) -> StepInputs:
        """Return what the n steps after `first` completed ones need beside their batches.

        Args:
            first: Completed steps.
            n: Steps of the chunk.
        """
        index = np.arange(first, first + n, dtype=np.int32)
        loss_multiplier = np.ones(n)
        lead = self.schedule_step - self.step  # 0, unless the schedule's position was lost
        if self.schedule is None:
            lr, moved = shape_rates(self.layout, first + lead, n)
        else:
            lr, moved = rule_rates(self.schedule, first - self.step, n)
        if self.spec.scaled:
            loss_multiplier[np.isin(index + 1, self.spec.scaler.overflow_steps)] = np.inf
        return StepInputs(
            index=index,
            lr=lr,
            moved=moved,
            loss_multiplier=loss_multiplier,
        )

    def take_metric(self, value: float) -> None:
        """Move the schedule by the metric of a validation at this step, once, where it moves by one and one is due.

        Raises:
            ScheduleError: The metric is not a number.
        """
        due = self.plan.metric_moves and self.plan.validates_at(self.step) and self.measured != self.step
        if due and self.schedule is not None:
            self.schedule.step(value)
            self.measured = self.step
            self._moved_by(value)

    def _moved_by(self, metric: float) -> None:
        """Move what a side has of the schedule by a metric; nothing where the host's is all there is."""

    def _schedule_now(self) -> Schedule | None:
        """Return the schedule as it is saved; a side whose framework has one of its own reads that."""
        return self.schedule

    def note_best(self, metric: float | None) -> None:
        """Work out which checkpoint is the best with the one of this step, once; `save` calls it too.

        A validation that is not saved is never the best: `best` would name a checkpoint that does not exist.
        """
        if self._noted == self.step:
            return
        self._noted = self.step
        if self.checkpoints is not None:
            self.checkpoints.due()  # so that the pointer is that of the save before
        pointed = self.checkpoints is not None and self.spec.save.keep_best
        known = self._opened().store.pointed("best") if pointed else None
        new = [policy.Saved(step=self.step, metric=metric)] if self.spec.save.keep_best else []
        best = policy.best([*([known] if known else []), *new], policy.mode_of(self.spec.metric))
        self.best = None if best is None else {"metric": best.metric, "step": best.step}

    def host_scalars(self) -> dict[str, Any]:
        """Return the JSON half of the neutral state, all but scaler and optimizer counts.

        Raises:
            InconsistentStateError: An error ended a chunk halfway.
        """
        self._require_consistent()
        return self._host_scalars()

    def _host_scalars(self) -> dict[str, Any]:
        return {
            "schedule.step": self.schedule_step,
            **self._schedule_scalars(),
            "rng.init": self.spec.seed,
            "rng.data": self.spec.seed,
            "rng.dropout": {"generator": self.spec.dropout.generator, "seed": self.spec.seed},
            "data.position": self.feed.position,
            **{f"counters.{name}": count for name, count in vars(self.counters).items()},
            "best": plain(self.best),
            "config.spec": to_toml(self.spec),
            "config.hash": self.spec_hash,
        }

    def _schedule_scalars(self) -> dict[str, Any]:
        now = self._schedule_now()
        if now is None:
            return {}
        measured = {"schedule.measured": self.measured} if now.rule.metric else {}
        return {**pack_schedule(now), **measured}

    def load_host_scalars(self, scalars: dict[str, Any], step: int | None = None) -> None:
        """Load the JSON half of a neutral state; `inconsistent` until the caller has loaded the arrays too.

        Args:
            scalars: Leaf path to JSON value.
            step: The step it must be of, if that is known.

        Raises:
            StateError: A scalar is missing, unexpected, of another type, or of a run of another meaning; nothing was
                changed.
        """
        own = self._host_scalars()
        for name in sorted({*own} ^ {*scalars}):
            raise StateError(name, "is missing" if name in own else "unexpected leaf: this run has no such state")
        if scalars["config.hash"] != own["config.hash"]:
            raise StateError("config.hash", "belongs to a run of another model, data, optimizer or seed")
        for name in ("rng.init", "rng.data", "rng.dropout"):
            if scalars[name] != own[name]:
                raise StateError(name, f"expected {own[name]!r}, got {scalars[name]!r}")
        rest = dict(scalars)
        counters = {name: take_count(rest, f"counters.{name}") for name in vars(self.counters)}
        if step is not None and counters["step"] != step:
            raise StateError("counters.step", f"expected {step}, got {counters['step']}")
        moved = None if self.schedule is None else read_rule_state(rest, self.schedule.rule)
        measured = take_count(rest, "schedule.measured") if self.plan.metric_moves else 0
        schedule, best = take_count(rest, "schedule.step"), _read_best(scalars["best"])
        self.feed.seek(scalars["data.position"])  # the last thing that may be refused
        self.inconsistent = True
        self.counters, self.best, self._noted = Counters(**counters), best, None
        self.schedule_step, self.schedule, self.measured = schedule, moved, measured

    def save(self, metric: float | None, *, saved_at: float | None = None) -> None:
        """Copy the state of this step, and start writing it as a checkpoint.

        Args:
            metric: Validation metric of this very step, or None.
            saved_at: The time that its seal records, seconds since the epoch; None for now.

        Raises:
            InconsistentStateError: An error ended a chunk halfway.
            CheckpointError: There is a checkpoint of this step already.
            SaveError: The save before failed; or this one, where it is not written in the background.
        """
        self.note_best(metric)
        with self._context():
            self._opened().save(self.step, self.state, self.host_scalars(), metric, saved_at)

    def restore(self, which: Which) -> int:
        """Load a checkpoint into this trainer, on its devices; return its step.

        Args:
            which: The newest, the best, or a step.

        Raises:
            DamagedError: It is not what was sealed, or of another run; nothing was changed.
            CheckpointError: There is none, or it does not fit this run; nothing was changed.
            SaveError: The save under way failed.
        """
        with self._context():
            step, content, scalars, _ = self._opened().restore(which, self.state)
            with fitting(step):
                self.load_host_scalars(scalars, step)
            self._load(content)
        self.inconsistent = False
        return step

    def wait(self) -> None:
        """Return when every save is durable.

        Raises:
            SaveError: The save under way failed; raised once.
        """
        if self.checkpoints is not None:
            self.checkpoints.wait()

    def written(self, step: int) -> Mapping[str, Mapping[int, int]]:
        """Return what this process wrote of a checkpoint; see `parity.contract.written_of`."""
        return {} if self.checkpoints is None else self.checkpoints.written(step)

    def close(self) -> None:
        """Wait, and release what is held.

        Raises:
            SaveError: The save under way failed.
        """
        if self.checkpoints is not None:
            self.checkpoints.close()

    def export_state(self, *, copy: bool = True) -> TrainingState:
        """Return everything that must survive a stop, on the host; see `parity.contract.Trainer`.

        Raises:
            InconsistentStateError: An error ended a chunk halfway.
        """
        scalars = self.host_scalars()
        with self._context():
            arrays, counts = self._export(copy=copy)
        return TrainingState(arrays=arrays, scalars={**scalars, **counts})

    def import_state(self, state: TrainingState) -> None:
        """Become the given state, or raise a StateError and stay as before."""
        with self._context():
            content, scalars = self._import(state)
            self.load_host_scalars(scalars)
            self._load(content)
        self.inconsistent = False

    def _opened(self) -> Checkpoints[SideState, SideContent, Any]:
        assert self.checkpoints is not None, "built without a directory"
        return self.checkpoints

    def _require_consistent(self) -> None:
        if self.inconsistent:
            raise InconsistentStateError

    def _records(self, chunk: Chunk, placed: Any, outputs: StepOutputs, seconds: float) -> list[StepRecord]:
        inputs: StepInputs = placed.host
        columns: dict[str, Sequence[Any]] = {
            "attempt": [self.attempt] * len(inputs.index),
            "step": (inputs.index + 1).tolist(),  # whole columns: a tenth of the time
            "loss": outputs.loss.tolist(),
            "lr": outputs.lr.tolist(),
            "grad_norm": outputs.grad_norm.tolist(),
            "loss_scale": outputs.loss_scale.tolist(),
            "skipped": outputs.skipped.tolist(),
            "batch": chunk.digests,
            "epoch": chunk.epochs,
            "samples": chunk.samples,
            "seconds": [seconds] * len(inputs.index),
        }
        by_field = (columns[name] for name in StepRecord._fields)
        return [StepRecord._make(row) for row in zip(*by_field, strict=True)]

    @property
    @abstractmethod
    def state(self) -> SideState:
        """Return the live state."""

    def _context(self) -> AbstractContextManager[None]:
        """Return the context in which the side's functions are called."""
        return nullcontext()

    @abstractmethod
    def _place(self, chunk: Chunk, step: int) -> Any:
        """Put a chunk, and the inputs of its steps, where they are computed on.

        The result has an attribute `host`: the StepInputs.

        Args:
            chunk: The batches.
            step: Steps completed before the chunk.
        """

    @abstractmethod
    def _run_chunk(self, placed: Any, n: int) -> StepOutputs:
        """Run n steps; calls `fetch_next` once they are under way."""

    @abstractmethod
    def _export(self, *, copy: bool) -> tuple[dict[str, NDArray[np.generic]], dict[str, Any]]:
        """Return the arrays of the neutral state, and the scalars that live with them."""

    @abstractmethod
    def _import(self, neutral: TrainingState) -> tuple[SideContent, dict[str, Any]]:
        """Return what a neutral state is on this side, and the scalars that remain for the host; changes nothing."""

    @abstractmethod
    def _load(self, content: SideContent) -> None:
        """Make the live state hold what was checked, at the schedule's position."""


def _read_best(value: Any) -> dict[str, Any] | None:
    if value is None:
        return None
    try:
        counted = {"step": value["step"]}
        return {"metric": float(value["metric"]), "step": take_count(counted, "step")}
    except (TypeError, KeyError, ValueError, OverflowError) as error:
        raise StateError("best", "expected null or an object of metric and step") from error
