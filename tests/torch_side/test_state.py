"""Native streams of PyTorch cross in a state, and the file form of a state is safe to read and exact."""

import io
import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import torch_side
from parity.errors import StateError
from parity.spec import PRECISIONS, Precision
from parity.state import TrainingState, compare_states
from tests.support.small import NAMES, bits_of, overflowing, small, state_of, with_leaf, without_leaf
from torch_side.state import file_state, load_file_state

NATIVE = ("mlp-digits", "float32", "dropout.generator=native")
Spoil = Callable[[TrainingState], TrainingState]


def at_step_3(*overrides: str) -> Any:
    trainer = torch_side.build(small("mlp-digits", "float32", "steps=50", *overrides))
    list(trainer.steps(3))
    return trainer


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
    host = {"schedule.step", "data.position", "counters.step", "counters.updates", "counters.epoch"}
    after = state_of(trainer)
    assert {leaf for leaf in before if before[leaf] != after[leaf]} <= host | {STREAM}
