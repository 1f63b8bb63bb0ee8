"""Walks: a trainer from a state over some steps, and the start that both sides share."""

from __future__ import annotations

from collections.abc import Mapping

from parity.contract import Divergence, StepRecord, Trainer, TrainingState, same

__all__ = ["EXACT", "Curve", "first_exact_difference", "losses", "walk"]

Curve = dict[int, StepRecord]

EXACT = ("batch", "epoch", "samples", "lr", "loss_scale", "skipped")
"""Quantities that are equal bit for bit on both sides in every precision."""


def walk(trainer: Trainer, until: int, start: TrainingState | None = None) -> Curve:
    """Train up to a step, from a given state if there is one, and return the records."""
    if start is not None:
        trainer.import_state(start)
    return {record.step: record for record in trainer.steps(until)}


def losses(curve: Mapping[int, StepRecord]) -> dict[int, float]:
    """Return step to loss."""
    return {step: record.loss for step, record in curve.items()}


def first_exact_difference(a: Mapping[int, StepRecord], b: Mapping[int, StepRecord]) -> Divergence | None:
    """Return the first step at which a quantity differs that must not, or that only one curve has."""
    for step in sorted({*a, *b}):
        x, y = a.get(step), b.get(step)
        if x is None or y is None:
            return Divergence(step=step, quantity="missing", expected=x is not None, got=y is not None)
        for name in EXACT:
            if not same(getattr(x, name), getattr(y, name)):
                return Divergence(step=step, quantity=name, expected=getattr(x, name), got=getattr(y, name))
    return None
