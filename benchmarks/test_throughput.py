"""Steps per second of each twin against the loop a person would write, over the same batches to the same losses.

The twin does more: it draws the data order, digests every batch, and makes a record of every step. The bare loops
cut the same batches out of the same arrays, chunk by chunk, and keep losses and norms until the end. Each side runs
as its preset says: PyTorch on `execution.threads` threads (1), XLA on its own pool over the CPUs of the process.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from benchmarks.bars import assert_same_losses, slowdown_allowed
from benchmarks.paired import Arm, faster, run_all, run_paired, slower
from parity import sides
from parity.contract import first_divergence
from parity.reference.across import EXACT, StepCurve, losses, run_from
from parity.spec import RunSpec, load, override
from parity.twins.speed import rewinding

STEPS = {"mlp-digits": 1000, "cnn-digits": 400, "gpt-text": 100}
"""Steps of one round: whole chunks, so that one length is compiled; several, as the first is not fetched ahead."""

SWEEP = {
    "hidden 16, batch 16": ([16], 16, 1000, 200),
    "hidden 128x2, batch 64": ([128, 128], 64, 1000, 200),
    "hidden 256x2, batch 256": ([256, 256], 256, 200, 100),
    "hidden 768x2, batch 384": ([768, 768], 384, 100, 50),
    "hidden 1536x2, batch 1024": ([1536, 1536], 1024, 10, 10),
}
"""Multilayer perceptrons whose JAX step takes some 20 microseconds to 200 ms on two cores: layers, batch, steps, and
steps of a chunk. A chunk costs about a millisecond besides its steps: it should take some tenths of a second."""

QUICK = ("mlp-digits", "hidden 16, batch 16")
"""What `make bench-quick` runs; the others are marked slow."""

PLAIN, NATIVE = ["dropout.rate=0.0"], ["dropout.generator=native"]


def marked(name: str, *values: Any, quick: bool = True) -> Any:
    return pytest.param(*values, id=name, marks=[] if quick and name in QUICK else pytest.mark.slow)


each_preset = pytest.mark.parametrize("preset", [marked(name, name) for name in STEPS])
each_size = pytest.mark.parametrize(
    ("hidden", "batch", "steps", "chunk"), [marked(name, *size) for name, size in SWEEP.items()]
)


@pytest.mark.parametrize("preset", ["mlp-digits", *(marked(name, name, quick=False) for name in list(STEPS)[1:])])
def test_jax_twin_against_a_bare_scan(benchmark: Any, preset: str) -> None:
    compare_jax(benchmark, load(preset), STEPS[preset])


@each_size
def test_jax_twin_against_a_bare_scan_by_size(
    benchmark: Any, hidden: list[int], batch: int, steps: int, chunk: int
) -> None:
    compare_jax(benchmark, mlp(hidden, batch, chunk), steps)


@pytest.mark.parametrize(
    "dropout", [PLAIN, pytest.param(NATIVE, marks=pytest.mark.slow)], ids=["plain", "native dropout"]
)
@each_preset
def test_torch_twin_against_a_bare_loop(benchmark: Any, preset: str, dropout: list[str]) -> None:
    """Without dropout, and with PyTorch's own: a loop by hand would not draw Threefry masks."""
    compare_torch(benchmark, load(preset, overrides=dropout), STEPS[preset])


@each_size
def test_torch_twin_against_a_bare_loop_by_size(
    benchmark: Any, hidden: list[int], batch: int, steps: int, chunk: int
) -> None:
    compare_torch(benchmark, mlp(hidden, batch, chunk), steps)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.torch.jit:DeprecationWarning")  # torch 2.13's own, on importing inductor
@pytest.mark.parametrize("preset", STEPS)
def test_compiled_torch_twin_against_a_bare_compiled_loop(benchmark: Any, preset: str) -> None:
    """Compiling takes a minute and a C++ compiler."""
    compare_torch(benchmark, load(preset, overrides=[*PLAIN, "execution.torch=compile"]), STEPS[preset])


@pytest.mark.slow
@pytest.mark.parametrize("preset", STEPS)
def test_shared_masks_against_native_dropout(benchmark: Any, preset: str) -> None:
    """What masks that are the same on both sides cost the PyTorch twin; other masks, so other losses."""
    need("torch")
    both = {"shared": [], "native": NATIVE}
    arms = [twin_arm("torch", load(preset, overrides=own), STEPS[preset], name) for name, own in both.items()]
    run_paired(benchmark, arms, [slower("shared", "native")])


@pytest.mark.slow
@pytest.mark.parametrize("preset", STEPS)
def test_jax_twin_against_torch_twin(benchmark: Any, preset: str) -> None:
    """JAX (scan) and PyTorch (eager), each from its warm start, over the same batches."""
    need("jax", "torch")
    arms = [twin_arm(side, load(preset), STEPS[preset]) for side in ("jax", "torch")]
    assert_same_work(*run_all(arms).values())
    run_paired(benchmark, arms, [faster("jax", "torch")])


def mlp(hidden: list[int], batch: int, chunk: int) -> RunSpec:
    own = [f"model.hidden={hidden}", f"batch={batch}", "validate_every=0", "save.every=1000000"]
    return load("mlp-digits", overrides=[*PLAIN, *own, f"execution.chunk={chunk}"])


def compare_jax(benchmark: Any, spec: RunSpec, steps: int) -> None:
    need("jax")
    import jax

    from benchmarks.bare_jax import BareScan

    twin = twin_arm("jax", spec, steps, name="twin")
    trainer: Any = sides.load("jax").build(spec)
    start = jax.tree.map(np.array, (trainer.state.params, trainer.state.buffers))
    bares = {"bare": BareScan(spec, steps, *start), "flat": BareScan(spec, steps, *start, flat=True)}
    arms = [twin, *(Arm(name=k, run=bare.run, reset=bare.reset, steps=steps) for k, bare in bares.items())]
    check(arms, steps)
    judge(benchmark, arms, spec, steps, extra=["flat"], most=1.02)


def compare_torch(benchmark: Any, spec: RunSpec, steps: int) -> None:
    need("torch")
    import torch

    from benchmarks.bare_torch import BareLoop

    twin = twin_arm("torch", spec, steps, name="twin")
    trainer: Any = sides.load("torch").build(spec)
    device = next(trainer.model.parameters()).device.type
    rng = trainer.export_state().arrays.get(f"rng.native.torch_{device}")
    bare = BareLoop(
        spec,
        steps,
        trainer.model.state_dict(),
        None if rng is None else torch.from_numpy(rng),
        compiled=spec.execution.torch == "compile",
    )
    arms = [twin, Arm(name="bare", run=bare.run, reset=bare.reset, steps=steps)]
    check(arms, steps)
    judge(benchmark, arms, spec, steps, extra=[], most=1.03)


def check(arms: list[Arm], steps: int) -> None:
    """Fail unless twin and bare loop give the same losses; what is `flat` rounds otherwise, by XLA's leave."""
    twin, bare, *others = run_all(arms).values()
    expected = list(losses(twin).values())
    assert_same_losses({"twin": expected, "bare": bare}, steps)
    for other in others:
        np.testing.assert_allclose(other[:10], expected[:10], rtol=1e-5)


def judge(benchmark: Any, arms: list[Arm], spec: RunSpec, steps: int, *, extra: list[str], most: float) -> None:
    """Run the arms, and note what the twin adds to a step."""
    bar = slower("twin", "bare", lambda seconds: slowdown_allowed(seconds["bare"] / steps, most))
    measured = run_paired(benchmark, arms, [bar, *(slower("twin", other) for other in extra)], rounds=9)
    if measured.enabled:
        times = {arm.name: 1e6 * measured.median(arm.name) / steps for arm in arms}
        over = times["twin"] - times["bare"]
        measured.note("twin", microseconds_per_step=times, microseconds_over_bare=over, batch=spec.batch)


def twin_arm(side: str, spec: RunSpec, steps: int, name: str | None = None) -> Arm:
    """Return a trainer as an arm; a run of it returns its curve.

    A run ends with these steps, so nothing is fetched ahead after them; the data order is drawn anew in each.
    """
    trainer: Any = sides.load(side).build(override(spec, [f"steps={steps}"]))
    return Arm(name=name or side, run=lambda: run_from(trainer, steps), reset=rewinding(trainer), steps=steps)


def need(*names: str) -> None:
    for name in names:
        if name not in sides.installed():
            pytest.skip(f"{name} is not installed")


def assert_same_work(a: StepCurve, b: StepCurve) -> None:
    """Fail unless both took the same batches at the same rates, and start on the same losses up to rounding.

    Later losses drift apart in float32, as they must; the checks judge by how much, not a benchmark.
    """
    assert first_divergence(a, b, EXACT) is None
    first = range(1, 11)
    np.testing.assert_allclose([a[s].loss for s in first], [b[s].loss for s in first], rtol=1e-4)
