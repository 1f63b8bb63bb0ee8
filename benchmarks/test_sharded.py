"""Steps per second of twins that two processes train together, against the loops a person would write for the mesh.

On two cores two processes compute no faster than one; what a twin adds to the loop by hand is what is measured.
"""

from __future__ import annotations

from typing import Any

import pytest

from benchmarks.bars import slowdown_allowed
from benchmarks.paired import run_paired, slower
from benchmarks.worker import Worker
from parity import sides

pytestmark = pytest.mark.slow

PLAIN = ["dropout.rate=0.0"]

RUNS = {
    "mlp of 768x2, batch 384": ("mlp-digits", ["model.hidden=[768,768]", "batch=384", "execution.chunk=20"], 40),
    "gpt-text": ("gpt-text", ["execution.chunk=10"], 20),
}
"""Preset, what else the run is, steps of a round: a step of some milliseconds, beside which a message is small."""

MOST = {"torch": 1.03, "jax": 1.02}
"""The bars of one process."""


@pytest.mark.parametrize("run", RUNS)
@pytest.mark.parametrize("axis", ["data", "fsdp"])
@pytest.mark.parametrize("side", MOST)
def test_a_twin_of_two_processes_against_the_loop_by_hand(benchmark: Any, side: str, axis: str, run: str) -> None:
    """PyTorch: bare DistributedDataParallel and FSDP2; JAX: a bare scan on a mesh of both processes."""
    if side not in sides.installed():
        pytest.skip(f"{side} is not installed")
    preset, own, steps = RUNS[run]
    overrides = [*PLAIN, *own, f"mesh.{axis}=2"]
    with Worker(
        "benchmarks.sharded:arms", processes=2, side=side, preset=preset, overrides=overrides, steps=steps
    ) as worker:
        arms = [worker.arm(name, name, steps) for name in ("twin", "bare")]
        bar = slower("twin", "bare", lambda seconds: slowdown_allowed(seconds["bare"] / steps, MOST[side]))
        measured = run_paired(benchmark, arms, [bar], rounds=9)
        if measured.enabled:
            times = {arm.name: 1e6 * measured.median(arm.name) / steps for arm in arms}
            measured.note("twin", microseconds_per_step=times, microseconds_over_bare=times["twin"] - times["bare"])
