"""The whole training state crosses from side to side and back with every bit, and a bad one is refused whole."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import jax_side
import torch_side
from parity import sides
from parity.errors import StateError
from parity.spec import PRECISIONS, Precision, RunSpec, override
from parity.state import TrainingState, compare_states, leaf_digests
from tests.support.small import NAMES, bits_of, overflowing, small, state_of, with_leaf, without_leaf

OPTIMIZERS = {
    "adam": ["optimizer.kind=adam"],
    "adamw": ["optimizer.kind=adamw"],
    "momentum": ["optimizer.kind=sgd"],
    "sgd": ["optimizer.kind=sgd", "optimizer.lr=0.01"],
}


def with_optimizer(spec: RunSpec, kind: str) -> RunSpec:
    spec = override(spec, OPTIMIZERS[kind])
    return override(spec, ["optimizer.momentum=0"]) if kind == "sgd" else spec


def assert_crosses(spec: RunSpec, steps: int = 3) -> None:
    """Train on PyTorch, cross to JAX and back; then the other way, from that very state."""
    first, jax_twin, last = torch_side.build(spec), jax_side.build(spec), torch_side.build(spec)
    list(first.steps(steps))
    start = first.export_state()
    assert start.scalars["counters.step"] == steps
    jax_twin.import_state(start)
    crossed = jax_twin.export_state()
    assert compare_states(start, crossed) == []
    last.import_state(crossed)
    assert compare_states(start, last.export_state()) == []


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("name", NAMES)
def test_every_preset_crosses_in_every_precision(name: str, precision: Precision) -> None:
    assert_crosses(small(name, precision))


@pytest.mark.parametrize("kind", OPTIMIZERS)
def test_every_optimizer_crosses(kind: str) -> None:
    assert_crosses(with_optimizer(small("mlp-digits"), kind))


@pytest.mark.takes_seconds
def test_a_tied_head_crosses_as_one_leaf() -> None:
    spec = small("gpt-text", "float32", "model.tied=true")
    assert_crosses(spec)
    state = jax_side.build(spec).export_state()
    assert "model.params.head.weight" not in state.arrays
    assert "optimizer.first_moment.head.weight" not in state.arrays


@pytest.mark.takes_seconds
@pytest.mark.parametrize("precision", ["float64", "float16"])
@pytest.mark.parametrize("name", NAMES)
def test_a_state_trained_in_jax_crosses_to_torch_and_back(name: str, precision: Precision) -> None:
    spec = small(name, precision, *overflowing(precision, 2))
    first, torch_twin, last = jax_side.build(spec), torch_side.build(spec), jax_side.build(spec)
    records = list(first.steps(5))
    start = first.export_state()
    torch_twin.import_state(start)
    crossed = torch_twin.export_state()
    assert compare_states(start, crossed) == []
    last.import_state(crossed)
    assert compare_states(start, last.export_state()) == []
    assert sum(r.skipped for r in records) == (precision == "float16")


def test_every_group_of_a_state_really_moved() -> None:
    """A round trip of zeros would prove nothing."""
    spec = small("cnn-digits", "float16", "scaler.growth_interval=2", "scaler.init_scale=8")
    trainer = torch_side.build(spec)
    before = trainer.export_state()
    list(trainer.steps(3))
    after = trainer.export_state()
    changed = {difference.leaf for difference in compare_states(before, after)}
    same = {leaf for leaf in after.arrays if leaf not in changed}
    assert same == set()
    kept = {"rng.init", "rng.data", "rng.dropout", "config.spec", "config.hash", "best"}
    assert {leaf for leaf in after.scalars if leaf not in changed} == kept | {
        "counters.epoch",
        "counters.skips_in_row",
    }


each_side = pytest.mark.parametrize("side", ["jax", "torch"])


@pytest.mark.takes_seconds
@each_side
def test_an_export_is_a_copy_and_an_import_copies_too(side: str) -> None:
    trainer, other = (sides.load(side).build(small("mlp-digits", "float32", "steps=50")) for _ in range(2))
    list(trainer.steps(3))
    state = trainer.export_state()
    before = leaf_digests(state)
    list(trainer.steps(8))
    assert leaf_digests(state) == before
    assert leaf_digests(trainer.export_state()) != before
    other.import_state(state)
    for value in state.arrays.values():
        value[...] = 0
    assert leaf_digests(other.export_state()) == before


# What is refused, by both sides.

Spoil = Callable[[TrainingState], TrainingState]
WEIGHT = "model.params.layers.0.weight"
MOMENT = "optimizer.second_moment.layers.1.bias"


def cast(leaf: str, dtype: Any) -> Spoil:
    return lambda state: with_leaf(state, leaf, state.arrays[leaf].astype(dtype))


def reshaped(leaf: str, shape: tuple[int, ...]) -> Spoil:
    return lambda state: with_leaf(state, leaf, np.zeros(shape, state.arrays[leaf].dtype))


def lost(leaf: str) -> Spoil:
    return lambda state: without_leaf(state, leaf)


def put(leaf: str, value: Any) -> Spoil:
    return lambda state: with_leaf(state, leaf, value)


POSITION = {"epoch": 0, "batch": 3, "samples": 48, "batch_size": 16}
OTHER_RUN = put("config.hash", "0" * 32)

BAD: dict[str, tuple[Spoil, str]] = {
    "parameter missing": (lost(WEIGHT), r"model\.params\.layers\.0\.weight: is missing; found 3 of 4 leaves"),
    "moment missing": (lost(MOMENT), r"optimizer\.second_moment\.layers\.1\.bias: is missing"),
    "unexpected parameter": (
        put("model.params.layers.9.weight", np.zeros(1)),
        r"model\.params\.layers\.9\.weight: unexpected leaf: this",
    ),
    "unexpected group": (put("ema.layers.0.weight", np.zeros(1)), r"ema\.layers\.0\.weight: unexpected leaf: this"),
    "unexpected slot": (
        put("optimizer.momentum.layers.0.weight", np.zeros(1)),
        r"optimizer\.momentum\.layers\.0\.weight: unexpected leaf: this",
    ),
    "parameter dtype": (
        cast(WEIGHT, np.float64),
        r"^model\.params\.layers\.0\.weight: expected .*float32.*, got .*float64",
    ),
    "moment dtype": (
        cast(MOMENT, np.float16),
        r"^optimizer\.second_moment\.layers\.1\.bias: expected .*float32.*, got .*float16",
    ),
    "parameter shape": (
        reshaped(WEIGHT, (16, 63)),
        r"^model\.params\.layers\.0\.weight: expected .*\(16, 64\).*, got .*\(16, 63\)",
    ),
    "transposed parameter": (reshaped(WEIGHT, (64, 16)), r"^model\.params\.layers\.0\.weight: expected "),
    "flat parameter": (reshaped(WEIGHT, (16 * 64,)), r"^model\.params\.layers\.0\.weight: expected "),
    "scalar missing": (lost("optimizer.step"), r"optimizer\.step: is missing"),
    "counter missing": (lost("counters.updates"), r"counters\.updates: is missing"),
    "schedule missing": (lost("schedule.step"), r"schedule\.step: is missing"),
    "best missing": (lost("best"), "best: is missing"),
    "unexpected scalar": (put("counters.tokens", 5), r"counters\.tokens: unexpected leaf: this"),
    "unexpected scaler": (put("scaler.scale", 1.0), r"scaler\.scale: unexpected leaf: this"),
    "other run": (OTHER_RUN, r"config\.hash: belongs to a run of another model, data, optimizer or seed"),
    "other seed": (
        put("rng.dropout", {"generator": "shared", "seed": 5}),
        r"rng\.dropout: expected .*'seed': 0.*, got .*'seed': 5",
    ),
    "other data order": (put("rng.data", 5), r"rng\.data: expected 0, got 5"),
    "other position": (put("data.position", {**POSITION, "batch_size": 32}), r"data\.position: .*does not fit"),
    "no position": (put("data.position", {"next_index": 3}), r"data\.position: is not a position"),
    "counter of a wrong type": (put("counters.step", "3"), r"counters\.step: "),
    "schedule of a wrong type": (put("schedule.step", None), r"schedule\.step: "),
    "optimizer step of a wrong type": (put("optimizer.step", "3"), r"optimizer\.step: "),
    "best of a wrong type": (put("best", [1]), "best: "),
    "a type that no framework has": (cast("model.params.layers.0.bias", "S4"), r"^model\.params\.layers\.0\.bias: "),
}
"""Spoiled states of a small MLP run at step 3: what was done, and what the error says."""


def assert_refused_and_unchanged(trainer: Any, reference: Any, bad: TrainingState, message: str) -> None:
    """A refused state leaves the trainer as it was: its state, and every step it then takes."""
    before = trainer.export_state()
    with pytest.raises(StateError, match=message):
        trainer.import_state(bad)
    assert compare_states(before, trainer.export_state()) == []
    assert bits_of(list(trainer.steps(6))) == bits_of(list(reference.steps(6)))
    assert compare_states(trainer.export_state(), reference.export_state()) == []


@pytest.fixture(scope="module", params=["jax", "torch"])
def twins(request: Any) -> tuple[Any, Any, TrainingState]:
    """Return two equal trainers at step 3, with a chunk fetched ahead, and their state; compiled once."""
    spec = small("mlp-digits", "float32", "steps=50")
    pair = [sides.load(request.param).build(spec) for _ in range(2)]
    for trainer in pair:
        list(trainer.steps(3))
    return (*pair, pair[0].export_state())


@pytest.mark.parametrize(("spoil", "message"), BAD.values(), ids=BAD)
def test_a_bad_state_is_refused_and_changes_nothing(twins: Any, spoil: Spoil, message: str) -> None:
    trainer, reference, state = twins
    for each in (trainer, reference):  # both from step 3, and each with the chunk of step 4 fetched ahead
        each.import_state(state)
        each.fetch_next(0)
    assert_refused_and_unchanged(trainer, reference, spoil(state), message)


COUNTER = "model.buffers.norms.0.num_batches_tracked"
CNN_BAD: dict[str, tuple[Spoil, str]] = {
    "flat convolution": (reshaped("model.params.convs.0.weight", (4, 9)), r"^model\.params\.convs\.0\.weight: "),
    "counter dtype": (cast(COUNTER, np.float32), r"^model\.buffers\.norms\.0\.num_batches_tracked: "),
    "counter too large": (put(COUNTER, np.array(2**40)), r"^model\.buffers\.norms\.0\.num_batches_tracked: "),
    "statistics missing": (
        lost("model.buffers.norms.0.running_var"),
        r"model\.buffers\.norms\.0\.running_var: is missing",
    ),
}


@pytest.mark.parametrize("case", CNN_BAD)
@each_side
def test_bad_convolutions_and_statistics_are_refused(side: str, case: str) -> None:
    if (side, case) == ("torch", "counter too large"):
        return  # PyTorch's counter has 64 bits
    spoil, message = CNN_BAD[case]
    trainer = sides.load(side).build(small("cnn-digits"))
    before = trainer.export_state()
    with pytest.raises(StateError, match=message):
        trainer.import_state(spoil(before))
    assert compare_states(before, trainer.export_state()) == []


@each_side
def test_a_missing_scaler_is_named(side: str) -> None:
    trainer = sides.load(side).build(small("mlp-digits", "float16"))
    for leaf in ("scaler.scale", "scaler.growth_tracker"):
        with pytest.raises(StateError, match=rf"{leaf}: is missing"):
            trainer.import_state(without_leaf(trainer.export_state(), leaf))


NATIVE = ("mlp-digits", "float32", "dropout.generator=native")


@pytest.mark.takes_seconds
@pytest.mark.parametrize(("side", "other", "words"), [("jax", "torch", "PyTorch"), ("torch", "jax", "JAX")])
def test_a_native_stream_of_the_other_side_is_refused_in_one_line(side: str, other: str, words: str) -> None:
    state = sides.load(other).build(small(*NATIVE)).export_state()
    trainer: Any = sides.load(side).build(small(*NATIVE))
    before = state_of(trainer)
    with pytest.raises(
        StateError, match=rf"^rng\.native: a native {words} stream has no meaning in \w+; use [^\n]*$"
    ):
        trainer.import_state(state)
    assert state_of(trainer) == before


@pytest.mark.takes_seconds
def test_a_native_run_crosses_to_itself_and_without_its_stream_is_refused() -> None:
    first, second = jax_side.build(small(*NATIVE)), jax_side.build(small(*NATIVE))
    list(first.steps(3))
    state = first.export_state()
    streams = [leaf for leaf in state.arrays if leaf.startswith("rng.native.jax.")]
    assert streams
    second.import_state(state)
    assert compare_states(state, second.export_state()) == []
    for bad in (
        without_leaf(state, streams[0]),
        with_leaf(state, "rng.native.jax.extra", np.zeros(2, np.uint32)),
        with_leaf(state, streams[0], np.zeros(7, np.float32)),
    ):
        with pytest.raises(StateError, match=r"rng\.native\.jax"):
            second.import_state(bad)
        assert compare_states(state, second.export_state()) == []
