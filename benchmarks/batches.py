"""What a loop is fed: the batches of a run, cut from arrays in memory one chunk at a time, and its learning rates."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from parity.spec import RunSpec
from parity.twins import ArrayStream, Dataset, load_dataset, rates

__all__ = ["Batches"]


@dataclass(frozen=True, kw_only=True)
class Batches:
    """The rows of every batch, known before the clock starts; the gather of a chunk is the loop's own cost."""

    dataset: Dataset
    rows: NDArray[np.int64]
    """Shape [steps, micro-batches, samples]."""
    rates: NDArray[np.float64]
    """Learning rate of every step."""
    chunk: int
    """Steps whose batches are cut at once."""

    @classmethod
    def of(cls, spec: RunSpec, steps: int) -> Batches:
        """Return the first batches of a run, those its twins train on."""
        dataset = load_dataset(spec)
        numbers = np.arange(len(dataset.inputs))
        rows = ArrayStream(numbers, numbers, batch=spec.batch, seed=spec.seed).take(steps).inputs
        return cls(
            dataset=dataset,
            rows=rows.reshape(steps, spec.accumulation, spec.micro_batch),
            rates=rates(spec.schedule, spec.optimizer.lr, 0, steps),
            chunk=spec.execution.chunk,
        )

    def chunks(self) -> Iterator[tuple[NDArray[np.generic], NDArray[np.generic], NDArray[np.float64]]]:
        """Yield inputs and targets [steps, micro-batches, samples, ...] and rates of one chunk after the other."""
        for first in range(0, len(self.rows), self.chunk):
            part = slice(first, first + self.chunk)
            yield self.dataset.inputs[self.rows[part]], self.dataset.targets[self.rows[part]], self.rates[part]
