"""Twin: what both trainers share around their steps: chunks, records, counters, and the neutral state's host half."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from parity import policy
from parity.contract import Pace, StepRecord, take_count
from parity.errors import StateError, TornStateError
from parity.spec import RunSpec, spec_hash, to_toml
from parity.storage import plain
from parity.twins.data import Chunk, open_stream
from parity.twins.datasets import load_dataset
from parity.twins.prefetch import Feed
from parity.twins.schedule import rates
from parity.twins.table import table

__all__ = ["Counters", "StepInputs", "StepOutputs", "Twin"]


@dataclass(frozen=True, kw_only=True)
class Counters:
    """Host-side counters; part of the training state."""

    step: int = 0
    """Completed steps."""
    updates: int = 0
    """Steps whose update was applied."""
    epoch: int = 0
    """Epoch of the last batch."""
    skips_in_row: int = 0
    """Skipped steps since the last applied update."""

    def after(self, records: Sequence[StepRecord]) -> Counters:
        """Return the counters after the steps of a chunk, of which there is at least one."""
        skips = self.skips_in_row
        for record in records:
            skips = skips + 1 if record.skipped else 0
        applied = sum(not record.skipped for record in records)
        last = records[-1]
        return Counters(step=last.step, updates=self.updates + applied, epoch=last.epoch, skips_in_row=skips)


@dataclass(frozen=True, kw_only=True)
class StepInputs:
    """What the steps of a chunk are given beside their batches, one value each."""

    index: NDArray[np.int32]
    """Completed steps before each step; keys the dropout masks."""
    lr: NDArray[np.float64]
    poison: NDArray[np.float64]
    """Factor on the scaled loss: 1.0, or infinity where an overflow is injected."""


@dataclass(frozen=True, kw_only=True)
class StepOutputs:
    """What the steps of a chunk give back, one value each, on the host."""

    loss: NDArray[np.floating]
    lr: NDArray[np.float64]
    """As used, before any rounding to the compute precision."""
    grad_norm: NDArray[np.floating]
    loss_scale: NDArray[np.floating]
    skipped: NDArray[np.bool_]


class Twin(ABC):
    """Base of both trainers: everything about a step that is not the framework's."""

    side: ClassVar[str]

    def __init__(self, spec: RunSpec, attempt: int) -> None:
        self.spec, self.attempt = spec, attempt
        self.dataset = load_dataset(spec)
        self.spec_hash = spec_hash(spec, self.dataset.digest)
        self.rows = table(spec.model)
        self.param_rows = tuple(row for row in self.rows if row.group == "params")
        self.buffer_rows = tuple(row for row in self.rows if row.group == "buffers")
        self.counters = Counters()
        self.best: dict[str, Any] | None = None
        """Metric and step of the best checkpoint when the last one was saved, itself included."""
        self._noted: int | None = None
        """The step at which `best` was last worked out."""
        self.feed: Feed[Any] = Feed(open_stream(spec, self.dataset), self._place)
        self.plan = spec.plan
        self._pace = Pace(self.plan)
        self.processes = 1
        """That train this run together; each must cut its chunks as the others do."""
        self.torn = False
        """Whether some of the state has moved on and some has not: within a chunk, and behind one that failed."""

    @property
    def step(self) -> int:
        """Return the number of completed steps."""
        return self.counters.step

    def steps(self, until: int) -> Iterator[StepRecord]:
        """Train up to a step, chunk by chunk, yielding the records of a chunk when it is done.

        Raises:
            TornStateError: An error ended an earlier chunk halfway; restore a checkpoint or import a state.
        """
        while self.step < until:
            self._require_whole()
            self.torn = True
            n = self.plan.chunk_length(self.step, until, self._pace.limit)
            began = time.perf_counter()
            chunk, placed = self.feed.take(n, self.step)
            outputs = self._run_chunk(placed, n)
            seconds = time.perf_counter() - began
            if self.processes == 1:  # clocks differ
                self._pace.note(n, seconds)
            records = self._records(chunk, placed, outputs, seconds / n)
            self.counters = self.counters.after(records)
            self.torn = False
            yield from records

    def fetch_next(self, n: int) -> None:
        """Fetch the chunk that follows the running one of n steps, as far as the plan can tell it."""
        step = self.step + n
        self.feed.fetch(self.plan.chunk_length(step, self.plan.steps, self._pace.limit), step)

    def step_inputs(self, first: int, n: int) -> StepInputs:
        """Return what the n steps after `first` completed ones need beside their batches."""
        index = np.arange(first, first + n, dtype=np.int32)
        peak = self.spec.optimizer.lr
        lead = self._schedule_step() - self.step  # 0, unless the schedule's position was lost
        poison = np.ones(n)
        if self.spec.scaled:
            poison[np.isin(index + 1, self.spec.scaler.overflow_steps)] = np.inf
        return StepInputs(
            index=index,
            lr=rates(self.spec.schedule, peak, first + lead, n),
            poison=poison,
        )

    def note_best(self, metric: float | None) -> None:
        """Work out which checkpoint is the best with the one of this step, once; `save` calls it too.

        A validation that is not saved is never the best: `best` would name a checkpoint that does not exist.
        """
        if self._noted == self.step:
            return
        self._noted = self.step
        self.wait()  # so that the pointer is that of the save before
        known = self._best_saved() if self.spec.save.keep_best else None
        new = [policy.Saved(step=self.step, metric=metric)] if self.spec.save.keep_best else []
        best = policy.best([*([known] if known else []), *new], policy.mode_of(self.spec.metric))
        self.best = None if best is None else {"metric": best.metric, "step": best.step}

    def host_scalars(self) -> dict[str, Any]:
        """Return the JSON half of the neutral state, all but scaler and optimizer counts.

        Raises:
            TornStateError: An error ended a chunk halfway.
        """
        self._require_whole()
        return self._host_scalars()

    def _host_scalars(self) -> dict[str, Any]:
        shared = {"generator": self.spec.dropout.generator, "seed": self.spec.seed}
        counters = self.counters
        return {
            "schedule.step": self._schedule_step(),
            "rng.init": self.spec.seed,
            "rng.data": self.spec.seed,
            "rng.dropout": shared,
            "data.position": self.feed.position,
            "counters.step": counters.step,
            "counters.updates": counters.updates,
            "counters.epoch": counters.epoch,
            "counters.skips_in_row": counters.skips_in_row,
            "best": plain(self.best),
            "config.spec": to_toml(self.spec),
            "config.hash": self.spec_hash,
        }

    def adopt_host_scalars(self, scalars: dict[str, Any], step: int | None = None) -> None:
        """Take over the JSON half of a neutral state; `torn` until who calls has taken over the arrays too.

        Args:
            scalars: Leaf path to JSON value.
            step: The step it must be of, if that is known.

        Raises:
            StateError: A scalar is missing, left over, of another type, or of a run of another meaning; nothing was
                changed.
        """
        own = self._host_scalars()
        for name in sorted({*own} ^ {*scalars}):
            raise StateError(name, "is missing" if name in own else "is left over: nothing takes it")
        if scalars["config.hash"] != own["config.hash"]:
            raise StateError("config.hash", "belongs to a run of another model, data, optimizer or seed")
        for name in ("rng.init", "rng.data", "rng.dropout"):
            if scalars[name] != own[name]:
                raise StateError(name, f"expected {own[name]!r}, got {scalars[name]!r}")
        rest = dict(scalars)
        names = ("step", "updates", "epoch", "skips_in_row")
        counters = {name: take_count(rest, f"counters.{name}") for name in names}
        if step is not None and counters["step"] != step:
            raise StateError("counters.step", f"expected {step}, got {counters['step']}")
        schedule, best = take_count(rest, "schedule.step"), _read_best(scalars["best"])
        self.feed.seek(scalars["data.position"])  # the last thing that may be refused
        self.torn = True
        self.counters, self.best, self._noted = Counters(**counters), best, None
        self._set_schedule_step(schedule)

    def _require_whole(self) -> None:
        if self.torn:
            raise TornStateError

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

    @abstractmethod
    def wait(self) -> None:
        """Return when every save is durable."""

    @abstractmethod
    def _best_saved(self) -> policy.Saved | None:
        """Return the best checkpoint on disk."""

    @abstractmethod
    def _place(self, chunk: Chunk, step: int) -> Any:
        """Put a chunk, and the step inputs behind `step` completed steps, where they are computed on.

        The result has an attribute `host`: the StepInputs.
        """

    @abstractmethod
    def _run_chunk(self, placed: Any, n: int) -> StepOutputs:
        """Run n steps; calls `fetch_next` once they are under way."""

    @abstractmethod
    def _schedule_step(self) -> int:
        """Return the position of the learning-rate schedule."""

    @abstractmethod
    def _set_schedule_step(self, step: int) -> None:
        """Set the position of the learning-rate schedule."""


def _read_best(value: Any) -> dict[str, Any] | None:
    if value is None:
        return None
    try:
        counted = {"step": value["step"]}
        return {"metric": float(value["metric"]), "step": take_count(counted, "step")}
    except (TypeError, KeyError, ValueError, OverflowError) as error:
        raise StateError("best", "expected null or an object of metric and step") from error
