"""A scan over the steps against a Python loop over the same jitted step, the same work bit for bit."""

from __future__ import annotations

from typing import Any

import pytest

from benchmarks.bars import assert_same_losses, speedup_wanted
from benchmarks.devices import twin
from benchmarks.paired import Arm, faster, run_all, run_paired, slower
from benchmarks.worker import Worker
from parity import sides
from parity.spec import RunSpec, load

jax = pytest.importorskip("jax")

STEPS = 1000
PLAIN = ["dropout.rate=0.0", "validate_every=0", "save.every=1000000"]
SIZES = {
    "hidden 8, batch 8": (["model.hidden=[8]", "batch=8"], STEPS),
    "hidden 32, batch 32": (["model.hidden=[32]", "batch=32"], STEPS),
    "hidden 64x2, batch 32": (["model.hidden=[64,64]", "batch=32"], STEPS),
    "hidden 256x2, batch 256": (["model.hidden=[256,256]", "batch=256"], 200),
    "hidden 768x2, batch 384": (["model.hidden=[768,768]", "batch=384"], 50),
}
PRESETS = {"mlp-digits": STEPS, "cnn-digits": STEPS, "gpt-text": 100}
QUICK = ("mlp-digits", "hidden 32, batch 32")
"""What `make bench-quick` runs; the others are marked slow."""

SMALL = SIZES["hidden 32, batch 32"][0]
CHUNKS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000)
DEVICES = (1, 2, 4, 8)


@pytest.mark.parametrize("name", [pytest.param(n, marks=() if n in QUICK else pytest.mark.slow) for n in PRESETS])
def test_scan_against_loop(benchmark: Any, name: str) -> None:
    compare(benchmark, load(name), PRESETS[name])


@pytest.mark.parametrize(
    ("overrides", "steps"),
    [pytest.param(*size, id=name, marks=() if name in QUICK else pytest.mark.slow) for name, size in SIZES.items()],
)
def test_scan_against_loop_by_size(benchmark: Any, overrides: list[str], steps: int) -> None:
    compare(benchmark, load("mlp-digits", overrides=[*PLAIN, *overrides]), steps)


def compare(benchmark: Any, spec: RunSpec, steps: int) -> None:
    """The jitted step alone, its batches on the device before the clock starts.

    `loop` is the best one Python can do: it never waits before the end. `waiting loop` reads each loss.
    """
    from benchmarks.bare_jax import BareScan, BareSteps

    trainer: Any = sides.load("jax").build(spec)
    start = (spec, steps, trainer.state.params, trainer.state.buffers)
    bares = {"scan": BareScan(*start), "loop": BareSteps(*start), "waiting loop": BareSteps(*start, wait=True)}
    for bare in bares.values():
        bare.place()
    arms = [Arm(name=name, run=bare.run, reset=bare.reset, steps=steps) for name, bare in bares.items()]
    assert_same_losses(run_all(arms), steps)
    ratios = [faster("scan", "loop", lambda s: speedup_wanted(s["scan"] / steps)), faster("scan", "waiting loop")]
    measured = run_paired(benchmark, arms, ratios, rounds=5)
    if measured.enabled:
        times = {arm.name: 1e6 * measured.median(arm.name) / steps for arm in arms}
        measured.note("scan", microseconds_per_step=times, batch=spec.batch)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["mlp-digits", "small"])
def test_trainer_scan_against_loop(benchmark: Any, name: str) -> None:
    """The whole twin, data and records included, in its two modes (`execution.jax`).

    The loop waits for every step, as the twin's does.
    """
    own = [] if name == "mlp-digits" else [*PLAIN, *SMALL]
    arms = [twin(mode, [*own, f"execution.jax={mode}"], STEPS) for mode in ("scan", "loop")]
    assert_same_losses(run_all(arms), STEPS)
    run_paired(benchmark, arms, [faster("scan", "loop")])


@pytest.mark.slow
def test_chunk_lengths(benchmark: Any) -> None:
    """The twin on a small model, the same 1,000 steps in chunks of 1 to 1,000: what one call costs."""
    arms = [twin(f"chunk {n}", [*PLAIN, *SMALL, f"execution.chunk={n}"], STEPS) for n in reversed(CHUNKS)]
    assert_same_losses(run_all(arms), STEPS)
    measured = run_paired(benchmark, arms, [slower(f"chunk {n}", "chunk 1000") for n in CHUNKS[:-1]])
    calls = [(STEPS / n, measured.median(f"chunk {n}")) for n in CHUNKS]
    measured.note_growth("chunk 1000", "time by calls", "chunks of 1,000 steps", "seconds", calls)


@pytest.mark.slow
@pytest.mark.parametrize("devices", DEVICES)
def test_devices(benchmark: Any, devices: int) -> None:
    """Forced CPU devices, in a process of their own: scan, the twin's loop, and `pmap` as it used to be done."""
    steps = 200
    with Worker("benchmarks.devices:arms", overrides=[*PLAIN, *SMALL], devices=devices, steps=steps) as worker:
        arms = [worker.arm(name, name, steps) for name in ("scan", "loop", "pmap")]
        measured = run_paired(benchmark, arms, [faster("scan", "loop"), faster("scan", "pmap")])
        measured.note("scan", devices=devices)
