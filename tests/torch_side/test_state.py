"""A PyTorch trainer takes a whole state or none of it, and its file form is safe to read and exact."""

import io
import random
from typing import Any

import numpy as np
import pytest
import torch

import jax_side
import torch_side
from parity.contract import TrainingState, compare_states, leaf_digests
from parity.errors import StateError
from parity.spec import PRECISIONS, Precision
from tests.jax_side.test_state import BAD, CNN_BAD, NATIVE, Spoil, assert_refused_and_unchanged
from tests.parity.small import NAMES, bits_of, overflowing, small, state_of, with_leaf, without_leaf
from torch_side.state import file_state, load_file_state

EXTRA: dict[str, tuple[Spoil, str]] = {
    "a type that PyTorch has not": (
        lambda state: with_leaf(
            state, "model.params.layers.0.bias", state.arrays["model.params.layers.0.bias"].astype("S4")
        ),
        r"^model\.params\.layers\.0\.bias: ",
    )
}
CNN_ONLY_JAX = {"counter too large"}  # PyTorch's counter has 64 bits


def at_step_3(*overrides: str) -> Any:
    trainer = torch_side.build(small("mlp-digits", "float32", "steps=50", *overrides))
    list(trainer.steps(3))
    return trainer


@pytest.mark.parametrize(("spoil", "message"), {**BAD, **EXTRA}.values(), ids={**BAD, **EXTRA})
def test_a_bad_state_is_refused_and_changes_nothing(spoil: Spoil, message: str) -> None:
    trainer, reference = at_step_3(), at_step_3()
    for each in (trainer, reference):
        each.fetch_next(0)
    assert_refused_and_unchanged(trainer, reference, spoil(trainer.export_state()), message)


@pytest.mark.parametrize("case", [name for name in CNN_BAD if name not in CNN_ONLY_JAX])
def test_bad_convolutions_and_statistics_are_refused(case: str) -> None:
    spoil, message = CNN_BAD[case]
    trainer = torch_side.build(small("cnn-digits"))
    before = trainer.export_state()
    with pytest.raises(StateError, match=message):
        trainer.import_state(spoil(before))
    assert compare_states(before, trainer.export_state()) == []


def test_a_missing_scaler_is_named() -> None:
    trainer = torch_side.build(small("mlp-digits", "float16"))
    for leaf in ("scaler.scale", "scaler.growth_tracker"):
        with pytest.raises(StateError, match=rf"{leaf}: is missing"):
            trainer.import_state(without_leaf(trainer.export_state(), leaf))


def test_a_native_jax_stream_is_refused_in_one_line() -> None:
    state = jax_side.build(small(*NATIVE)).export_state()
    trainer = torch_side.build(small(*NATIVE))
    before = state_of(trainer)
    with pytest.raises(StateError, match=r"^rng\.native: a native JAX stream has no meaning in PyTorch; use [^\n]*$"):
        trainer.import_state(state)
    assert state_of(trainer) == before


STREAM = "rng.native.torch_cpu"
NATIVE_BAD: dict[str, Spoil] = {
    "missing": lambda state: without_leaf(state, STREAM),
    "too short": lambda state: with_leaf(state, STREAM, state.arrays[STREAM][:10]),
    "of another type": lambda state: with_leaf(state, STREAM, state.arrays[STREAM].astype(np.int64)),
    "beside another": lambda state: with_leaf(state, "rng.native.torch_tpu", state.arrays[STREAM]),
    "under another name": lambda state: with_leaf(
        without_leaf(state, STREAM), "rng.native.torch_tpu", np.zeros(8, np.uint8)
    ),
}


@pytest.mark.parametrize("spoil", NATIVE_BAD.values(), ids=NATIVE_BAD)
def test_a_bad_native_stream_is_refused_and_changes_nothing(spoil: Spoil) -> None:
    first, second = at_step_3("dropout.generator=native"), torch_side.build(small(*NATIVE, "steps=50"))
    state = first.export_state()
    before = second.export_state()
    with pytest.raises(StateError, match=r"rng\.native"):
        second.import_state(spoil(state))
    assert compare_states(before, second.export_state()) == []


def test_native_dropout_goes_on_from_its_stream() -> None:
    first = at_step_3("dropout.generator=native")
    state = first.export_state()
    expected = bits_of(list(first.steps(8)))
    second = torch_side.build(small(*NATIVE, "steps=50"))
    torch.manual_seed(12345)
    second.import_state(state)
    assert bits_of(list(second.steps(8))) == expected


def test_an_export_is_a_copy_and_an_import_copies_too() -> None:
    trainer = at_step_3()
    state = trainer.export_state()
    before = leaf_digests(state)
    list(trainer.steps(6))
    assert leaf_digests(state) == before
    other = torch_side.build(small("mlp-digits", "float32", "steps=50"))
    other.import_state(state)
    for value in state.arrays.values():
        value[...] = 0
    assert state_of(other) == before


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("name", NAMES)
def test_going_on_from_an_imported_state_is_bitwise_the_same(name: str, precision: Precision) -> None:
    first = torch_side.build(small(name, precision, "steps=50", *overflowing(precision, 2, 5)))
    list(first.steps(3))
    state = first.export_state()
    expected = bits_of(list(first.steps(8)))
    second = torch_side.build(small(name, precision, "steps=50", *overflowing(precision, 2, 5)))
    list(second.steps(1))  # it has lived before
    second.import_state(state)
    assert bits_of(list(second.steps(8))) == expected
    assert compare_states(first.export_state(), second.export_state()) == []


def test_the_file_form_is_read_without_running_code_and_keeps_every_stream() -> None:
    trainer = at_step_3("dropout.generator=native")
    random.seed(5)
    np.random.seed(5)  # noqa: NPY002 - the legacy stream is one that user code may draw from
    file = io.BytesIO()
    torch.save(file_state(trainer.state), file)
    expected = random.random(), float(np.random.rand()), float(torch.rand(()))  # noqa: NPY002
    before = state_of(trainer)
    list(trainer.steps(6))
    file.seek(0)
    saved = torch.load(file, weights_only=True)
    scalars = TrainingState(arrays={}, scalars=saved["scaler"])
    assert scalars.arrays == {}
    load_file_state(trainer.state, saved)
    assert (random.random(), float(np.random.rand()), float(torch.rand(()))) == expected  # noqa: NPY002
    host = {"data.position", "counters.step", "counters.updates", "counters.epoch"}
    after = state_of(trainer)
    assert {leaf for leaf in before if before[leaf] != after[leaf]} <= host | {STREAM}
