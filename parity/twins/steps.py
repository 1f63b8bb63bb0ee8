"""What goes into the steps of a chunk beside their batches, what comes out, and the counters that follow."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from parity.contract import StepRecord

__all__ = ["Counters", "StepInputs", "StepOutputs"]


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
    """The inputs of a chunk's steps beside their batches: arrays of shape [steps]."""

    index: NDArray[np.int32]
    """Completed steps before each step; keys the dropout masks."""
    lr: NDArray[np.float64]
    """Of the first parameter group."""
    moved: NDArray[np.float64] | None = None
    """Rates of all groups, [steps, groups], and behind them their momenta where the schedule moves them; None where
    `lr` says it all."""
    loss_multiplier: NDArray[np.float64]
    """Factor on the scaled loss: 1.0, or infinity where an overflow is injected."""


@dataclass(frozen=True, kw_only=True)
class StepOutputs:
    """The results of a chunk's steps: arrays of shape [steps], on the host."""

    loss: NDArray[np.floating]
    lr: NDArray[np.float64]
    """As used, before any rounding to the compute precision."""
    grad_norm: NDArray[np.floating]
    loss_scale: NDArray[np.floating]
    skipped: NDArray[np.bool_]
