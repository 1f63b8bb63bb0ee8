"""Steps per second of the twins on the presets, side against side and eager against compiled.

Each side runs as its preset says: PyTorch on `execution.threads` threads (1), XLA on its own pool over the CPUs
of the process. `machine_info` in the JSON holds both.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from benchmarks.paired import Arm, run_paired
from parity import sides
from parity.checks.walk import Curve, first_exact_difference, walk
from parity.specfile import load

STEPS = {"mlp-digits": 200, "cnn-digits": 200, "gpt-text": 50}
"""Steps of one round: whole chunks of 50, so that one length is compiled."""


@pytest.mark.parametrize("preset", STEPS)
def test_twin_throughput(benchmark: Any, preset: str) -> None:
    """JAX (scan) and PyTorch (eager), each from its warm start, over the same batches."""
    _need("jax", "torch")
    pair = [_Run.of(side, side, preset) for side in ("jax", "torch")]
    _assert_same_work(*(run.curve for run in pair))
    run_paired(benchmark, *(run.arm for run in pair))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.torch.jit:DeprecationWarning")  # torch 2.13's own, on importing inductor
def test_compiled_throughput(benchmark: Any) -> None:
    """PyTorch compiled and eager, on the MLP; compiling takes a minute and a C++ compiler."""
    _need("torch")
    pair = [_Run.of(mode, "torch", "mlp-digits", f"execution.torch={mode}") for mode in ("compile", "eager")]
    _assert_same_work(*(run.curve for run in pair))
    run_paired(benchmark, *(run.arm for run in pair))


@dataclass(frozen=True, kw_only=True)
class _Run:
    """A trainer as an arm, and the curve it gave on its first, untimed run."""

    arm: Arm
    curve: Curve

    @classmethod
    def of(cls, name: str, side: str, preset: str, *overrides: str) -> _Run:
        trainer, steps = sides.load(side).build(load(preset, overrides=overrides)), STEPS[preset]
        start = trainer.export_state()
        arm = Arm(
            name=name,
            run=lambda: walk(trainer, steps),
            reset=lambda: trainer.import_state(start),
            steps=steps,
        )
        return cls(arm=arm, curve=arm.run())


def _need(*names: str) -> None:
    for name in names:
        if name not in sides.installed():
            pytest.skip(f"{name} is not installed")


def _assert_same_work(a: Curve, b: Curve) -> None:
    """Fail unless both took the same batches at the same rates, and start on the same losses up to rounding.

    Later losses drift apart in float32, as they must; the checks judge by how much, not a benchmark.
    """
    assert first_exact_difference(a, b) is None
    first = range(1, 11)
    np.testing.assert_allclose([a[s].loss for s in first], [b[s].loss for s in first], rtol=1e-4)
