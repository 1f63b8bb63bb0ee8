"""Small runs and settings that the tests share: seconds on one core, every code path of the presets."""

from typing import Any

import numpy as np
from hypothesis import settings

from parity.contract import StepRecord
from parity.spec import PRESETS, Precision, RunSpec, load
from parity.state import TrainingState, leaf_digests, memory_orders

NAMES = tuple(PRESETS)

SHRUNK = {
    "mlp-digits": ["model.hidden=[16]", "batch=16"],
    "cnn-digits": ["model.channels=[4]", "batch=16"],
    "linear-regression": ["batch=16"],
    "gpt-text": [
        "model.width=16",
        "model.heads=2",
        "model.layers=1",
        "model.context=8",
        "batch=8",
        "data.validation=16",
    ],
}
"""Preset to what shrinks it."""

CHANGED: dict[str, Any] = {
    "batch": "ff",
    "epoch": 1,
    "samples": 1,
    "lr": 2e-3,
    "loss_scale": 2.0,
    "loss": 2.25,
    "grad_norm": 0.25,
    "skipped": True,
}
"""Quantity to a value that `record` does not give it."""


def quick(examples: int = 50) -> settings:
    """Return Hypothesis settings: the same examples every time, and no deadline on a shared machine."""
    return settings(max_examples=examples, deadline=None, derandomize=True, database=None)


def small(name: str, precision: Precision = "float32", *overrides: str) -> RunSpec:
    """Return a preset shrunk to a few parameters, chunks of five steps."""
    return load(name, precision, [*SHRUNK[name], "execution.chunk=5", *overrides])


def overflowing(precision: Precision, *steps: int) -> list[str]:
    """Return the override that forces overflows at steps of a float16 run; other runs have none to force."""
    return [f"scaler.overflow_steps={list(steps)}"] if precision == "float16" else []


def record(step: int, attempt: int = 0, **changes: Any) -> StepRecord:
    """Return a step record with plausible values."""
    values: dict[str, Any] = {
        "loss": 2.5,
        "lr": 1e-3,
        "grad_norm": 0.5,
        "loss_scale": 1.0,
        "skipped": False,
        "batch": "00",
        "epoch": 0,
        "samples": 64 * step,
        "seconds": 0.01,
    }
    return StepRecord(attempt=attempt, step=step, **{**values, **changes})


def bits_of(curve: list[StepRecord]) -> list[tuple[Any, ...]]:
    """Return what must be equal bit for bit of a curve: everything but the seconds and the attempt."""
    numbers = [(r.loss, r.lr, r.grad_norm, r.loss_scale) for r in curve]
    words = [tuple(np.array(row).view(np.uint64).tolist()) for row in numbers]
    return [(r.step, r.batch, r.epoch, r.samples, r.skipped, *row) for r, row in zip(curve, words, strict=True)]


def state_of(trainer: Any) -> dict[str, str]:
    """Return the digest of every leaf of a trainer's state, as its side seals them."""
    state = trainer.export_state(copy=False)
    return leaf_digests(state, memory_orders(state))


def with_leaf(state: TrainingState, leaf: str, value: Any) -> TrainingState:
    """Return a state with one leaf set: among the arrays if the value is one."""
    arrays, scalars = dict(state.arrays), dict(state.scalars)
    (arrays if isinstance(value, np.ndarray) else scalars)[leaf] = value
    return TrainingState(arrays=arrays, scalars=scalars)


def without_leaf(state: TrainingState, leaf: str) -> TrainingState:
    """Return a state that lacks one leaf."""
    arrays = {k: v for k, v in state.arrays.items() if k != leaf}
    scalars = {k: v for k, v in state.scalars.items() if k != leaf}
    assert len(arrays) + len(scalars) == len(state.arrays) + len(state.scalars) - 1
    return TrainingState(arrays=arrays, scalars=scalars)
