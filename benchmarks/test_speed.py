"""Steps per second of every way to train a preset: both sides, scan and loop, eager and compiled, 1 to 8 devices.

These fill the table of steps per second, which judges nothing. A run is 1,000 steps, data and records included.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from benchmarks.paired import Arm, run_all, run_paired
from benchmarks.test_throughput import assert_same_work, need, twin_arm
from benchmarks.worker import Worker
from parity.spec import load

STEPS = 1000
PRESETS = ("mlp-digits", "cnn-digits", "gpt-text")
WAYS = (
    ("jax", "scan", "scan"),
    ("jax", "loop", "loop"),
    ("torch", "eager", "eager"),
    ("torch", "compiled", "compile"),
)
"""Side, what the table calls the mode, and the value of `execution.jax` or `execution.torch`."""

DEVICES = (2, 4, 8)
ROUNDS = 3
"""Timed runs of each way: a table that judges nothing, and 1,000 steps of the largest preset take half a minute."""

COMPARED = 50
"""Steps whose losses are compared before anything is timed."""

WHOLE = ["validate_every=0", "save.every=1000000"]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.torch.jit:DeprecationWarning")  # torch 2.13's own, on importing inductor
@pytest.mark.parametrize("preset", PRESETS)
def test_steps_per_second(benchmark: Any, preset: str) -> None:
    """Both sides in both of their modes, on one device."""
    need("jax", "torch")
    arms, short = [], []
    for side, mode, value in WAYS:
        spec = load(preset, overrides=[*WHOLE, f"execution.{side}={value}"])
        trains = {"model": preset, "side": side, "mode": mode, "devices": 1}
        arms.append(replace(twin_arm(side, spec, STEPS, f"{side} {mode}"), trains=trains))
        short.append(twin_arm(side, spec, COMPARED, f"{side} {mode}"))
    first, *others = run_all(short).values()
    for other in others:
        assert_same_work(first, other)
    run_paired(benchmark, arms, [], rounds=ROUNDS)


@pytest.mark.slow
@pytest.mark.parametrize("devices", DEVICES)
def test_steps_per_second_on_devices(benchmark: Any, devices: int) -> None:
    """Forced CPU devices, in a process of their own, on the smallest preset without dropout."""
    need("jax")
    with Worker("benchmarks.devices:arms", overrides=["dropout.rate=0.0"], devices=devices, steps=STEPS) as worker:
        arms: list[Arm] = []
        for mode in ("scan", "loop"):
            trains = {"model": "mlp-digits", "side": "jax", "mode": mode, "devices": devices}
            arms.append(replace(worker.arm(mode, mode, STEPS), trains=trains))
        run_paired(benchmark, arms, [], rounds=ROUNDS)
