"""A scan over the steps against a Python loop over the same jitted step, bit for bit the same work."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from benchmarks.paired import Arm, run_paired
from parity import sides
from parity.data import open_stream
from parity.specfile import load
from parity.trainer import Trainer

jax = pytest.importorskip("jax")

STEPS = 1000
SPECS = {
    "mlp-digits": [],
    "small-mlp": ["name=small-mlp", "model.hidden=[32]", "batch=32", "dropout.rate=0.0"],
}
BOTH = pytest.mark.parametrize("overrides", SPECS.values(), ids=SPECS.keys())


@BOTH
def test_trainer_scan_against_loop(benchmark: Any, overrides: list[str]) -> None:
    """The whole trainer, data and records included, in its two modes (`execution.jax`).

    The loop waits for every step, as the trainer's does.
    """
    scan, loop = (_trainer_arm(mode, [*overrides, f"execution.jax={mode}"]) for mode in ("scan", "loop"))
    _assert_same_losses(scan, loop)
    run_paired(benchmark, scan, loop)


@BOTH
def test_scan_against_bare_loop(benchmark: Any, overrides: list[str]) -> None:
    """The jitted step alone, its batches cut and on the device before the clock starts.

    The loop is the best one Python can do: it never waits before the end, so dispatch runs ahead of the steps.
    """
    trainer: Any = sides.load("jax").build(load("mlp-digits", overrides=overrides))
    start = trainer.export_state()
    placed = trainer._place(open_stream(trainer.spec, trainer.dataset).take(STEPS), 0)[:-1]
    batches = jax.block_until_ready([tuple(x[i] for x in placed) for i in range(STEPS)])

    def scan() -> list[float]:
        trainer.state, (loss, *_) = trainer._chunk_fn(trainer.state, placed)
        return np.asarray(loss).tolist()

    def loop() -> list[float]:
        state, rows = trainer.state, []
        for batch in batches:
            state, (loss, *_) = trainer._step_fn(state, batch)
            rows.append(loss)
        trainer.state = state
        return np.asarray(jax.device_get(rows)).tolist()

    def reset() -> None:
        trainer.import_state(start)

    arms = [Arm(name=run.__name__, run=run, reset=reset, steps=STEPS) for run in (scan, loop)]
    _assert_same_losses(*arms)
    run_paired(benchmark, *arms)


def _trainer_arm(name: str, overrides: list[str]) -> Arm:
    trainer = sides.load("jax").build(load("mlp-digits", overrides=overrides))
    start = trainer.export_state()
    return Arm(name=name, run=_train(trainer), reset=lambda: trainer.import_state(start), steps=STEPS)


def _train(trainer: Trainer) -> Callable[[], list[float]]:
    return lambda: [record.loss for record in trainer.steps(STEPS)]


def _assert_same_losses(*arms: Arm) -> None:
    """Fail unless the arms give the same losses bit for bit: a faster way to other numbers is no way."""
    curves = []
    for arm in arms:
        arm.reset()
        curves.append(np.array(arm.run()))
    assert len(curves[0]) == STEPS
    assert curves[0].tobytes() == curves[1].tobytes()
