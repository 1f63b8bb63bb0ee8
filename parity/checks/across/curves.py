"""Curves of trainers that run in this process, and what of a curve is equal on both sides bit for bit."""

from __future__ import annotations

from collections.abc import Mapping

from parity.contract import StepRecord, Trainer, TrainingState

__all__ = ["EXACT", "Curve", "losses", "run_from"]

Curve = dict[int, StepRecord]

EXACT = ("batch", "epoch", "samples", "lr", "loss_scale", "skipped")
"""Quantities that are equal bit for bit on both sides in every precision."""


def run_from(trainer: Trainer, until: int, start: TrainingState | None = None) -> Curve:
    """Train up to a step and return step to record.

    Args:
        trainer: What trains; it is left at `until`.
        until: Step to stop at.
        start: State to import first; None to continue from where the trainer is.
    """
    if start is not None:
        trainer.import_state(start)
    return {record.step: record for record in trainer.steps(until)}


def losses(curve: Mapping[int, StepRecord]) -> dict[int, float]:
    """Return step to loss."""
    return {step: record.loss for step, record in curve.items()}
