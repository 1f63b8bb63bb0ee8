"""Curves of trainers that run in this process, and what of a curve is equal on both sides bit for bit."""

from __future__ import annotations

from parity.checks import OnStep, ignore_step
from parity.contract import StepRecord, Trainer, Validation
from parity.state import TrainingState

__all__ = ["EXACT", "StepCurve", "ValidationCurve", "run_from"]

StepCurve = dict[int, StepRecord]

EXACT = ("batch", "epoch", "samples", "lr", "loss_scale", "skipped")
"""Quantities that are equal bit for bit on both sides in every precision."""


ValidationCurve = dict[int, Validation]


def run_from(
    trainer: Trainer,
    until: int,
    start: TrainingState | None = None,
    on_step: OnStep = ignore_step,
    validations: ValidationCurve | None = None,
) -> StepCurve:
    """Train up to a step and return step to record.

    Args:
        trainer: What trains; it is left at `until`.
        until: Step to stop at.
        start: State to import first; None to continue from where the trainer is.
        on_step: Called for each step, as its record comes.
        validations: Takes what is measured where the plan of the run validates; None to measure nothing, but where
            later steps depend on it.
    """
    if start is not None:
        trainer.import_state(start)
    curve: StepCurve = {}
    measures = validations is not None or trainer.plan.metric_moves
    while trainer.step < until:
        stop = until if not measures else trainer.plan.next_stop(trainer.step, until)
        for record in trainer.steps(stop):
            curve[record.step] = record
            on_step(trainer.side, record.step, until)
        if measures and trainer.plan.validates_at(stop):
            measured = trainer.evaluate()
            if validations is not None:
                validations[stop] = measured
    return curve
