"""The hand-written loops give the twins' losses bit for bit, and one that does other work is found out."""

from dataclasses import replace

import numpy as np
import pytest

from benchmarks.bars import assert_same_losses, slowdown_allowed, speedup_wanted
from benchmarks.batches import Batches
from parity import sides
from parity.reference.across import losses, run_from
from parity.spec import RunSpec, load
from parity.twins import open_stream

STEPS = 20
PRESETS = {"mlp-digits": [], "cnn-digits": [], "gpt-text": ["model.layers=1", "model.width=16", "model.context=8"]}
SMALL = ["execution.chunk=10"]
PLAIN, NATIVE = ["dropout.rate=0.0"], ["dropout.generator=native"]


def twin_losses(trainer):
    return np.array(list(losses(run_from(trainer, STEPS)).values()), np.float32)


def torch_loop(spec: RunSpec, trainer, of: RunSpec | None = None):
    import torch

    from benchmarks.bare_torch import BareLoop

    rng = trainer.export_state().arrays.get("rng.native.torch_cpu")
    return BareLoop(of or spec, STEPS, trainer.model.state_dict(), None if rng is None else torch.from_numpy(rng))


def jax_loops(spec: RunSpec, trainer, of: RunSpec | None = None):
    from benchmarks.bare_jax import BareScan, BareSteps

    start = (of or spec, STEPS, trainer.state.params, trainer.state.buffers)
    loops = [BareScan(*start), BareSteps(*start), BareSteps(*start, wait=True)]
    for loop in loops[1:]:
        loop.place()
    return loops


@pytest.mark.parametrize("dropout", [PLAIN, NATIVE], ids=["plain", "native"])
@pytest.mark.parametrize("preset", PRESETS)
def test_the_bare_torch_loop_gives_the_twins_losses_and_again_after_a_reset(preset, dropout):
    spec = load(preset, overrides=[*PRESETS[preset], *SMALL, *dropout])
    trainer = sides.load("torch").build(spec)
    start = trainer.export_state()
    loop = torch_loop(spec, trainer)
    trainer.import_state(start)  # making another model drew from the generator
    expected = twin_losses(trainer)
    for _ in range(2):
        loop.reset()
        assert loop.run().tobytes() == expected.tobytes()


@pytest.mark.parametrize(
    "preset", ["mlp-digits", "cnn-digits"]
)  # the benchmark itself checks the GPT: it compiles long
def test_the_bare_jax_loops_give_the_twins_losses_and_again_after_a_reset(preset):
    spec = load(preset, overrides=[*PRESETS[preset], *SMALL])
    trainer = sides.load("jax").build(spec)
    loops = jax_loops(spec, trainer)
    expected = twin_losses(trainer)
    for loop in loops:
        for _ in range(2):
            loop.reset()
            assert loop.run().tobytes() == expected.tobytes(), type(loop).__name__


def test_the_bare_loops_are_fed_the_twins_batches():
    spec = load("mlp-digits", overrides=SMALL)
    batches = Batches.of(spec, 40)
    stream = open_stream(spec, batches.dataset).take(40)
    inputs, targets, rates = (np.concatenate(column) for column in zip(*batches.chunks(), strict=True))
    assert np.array_equal(inputs[:, 0], stream.inputs)
    assert np.array_equal(targets[:, 0], stream.targets)
    assert len(rates) == 40


FAULTS = {
    "another rate": lambda s: replace(s, optimizer=replace(s.optimizer, lr=s.optimizer.lr * (1 + 1e-6))),
    "no clipping": lambda s: replace(s, clip_norm=1e9),
    "other batches": lambda s: replace(s, seed=1),
    "no decay": lambda s: replace(s, optimizer=replace(s.optimizer, weight_decay=0.0)),
}


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("side", ["torch", "jax"])
def test_a_loop_that_does_other_work_is_not_compared(side, fault):
    spec = load("mlp-digits", overrides=[*SMALL, *PLAIN, "clip_norm=0.1"])
    trainer = sides.load(side).build(spec)
    other = FAULTS[fault](spec)
    loop = torch_loop(spec, trainer, other) if side == "torch" else jax_loops(spec, trainer, other)[0]
    expected = twin_losses(trainer)
    loop.reset()
    with pytest.raises(AssertionError, match="bare parts from twin at step"):
        assert_same_losses({"twin": expected, "bare": loop.run()}, STEPS)


def test_a_run_that_is_too_short_is_not_compared():
    whole = np.ones(STEPS, np.float32)
    assert_same_losses({"a": whole, "b": whole.copy()}, STEPS)
    for a, b, who in ((whole[1:], whole[1:], "a"), (whole, whole[1:], "b")):
        with pytest.raises(AssertionError, match=f"{who} took 19 steps of 20"):
            assert_same_losses({"a": a, "b": b}, STEPS)


@pytest.mark.parametrize(
    ("microseconds", "factor"), [(1, 10), (10, 10), (20, 3), (200, 1.1), (201, 0.97), (1e5, 0.97)]
)
def test_what_a_scan_must_gain_is_the_table_at_its_times(microseconds, factor):
    assert speedup_wanted(microseconds * 1e-6) == pytest.approx(factor)


def test_what_a_scan_must_gain_falls_with_the_time_of_a_step():
    wanted = [speedup_wanted(t * 1e-6) for t in (5, 10, 12, 15, 20, 40, 100, 200, 300)]
    assert wanted == sorted(wanted, reverse=True)


@pytest.mark.parametrize(("step", "bar"), [(1.0, 1.02), (1e-3, 1.02), (0.5e-3, 1.02), (1e-4, 1.1), (2e-5, 1.5)])
def test_a_twin_may_add_a_proportion_from_a_millisecond_on_and_ten_microseconds_below(step, bar):
    assert slowdown_allowed(step, 1.02) == pytest.approx(bar)
