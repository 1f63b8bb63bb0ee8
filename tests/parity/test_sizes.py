"""What a spec needs of memory is a lower bound of what a run takes, and a spec that cannot fit names its field."""

import sys
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

import torch_side
from parity.errors import SpecError
from parity.spec import PRECISIONS, Precision, RunSpec, load, override
from parity.twins import (
    activations,
    describe_data,
    gigabytes,
    host_needs,
    load_dataset,
    open_stream,
    physical_memory,
    require_memory,
    sizes,
)
from tests.support.small import NAMES, small


class Largest(TorchDispatchMode):
    """Remembers the largest tensor that any operation returned, in bytes."""

    def __init__(self) -> None:
        super().__init__()
        self.size = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        for value in out if isinstance(out, tuple | list) else (out,):
            if isinstance(value, torch.Tensor):
                self.size = max(self.size, value.numel() * value.element_size())
        return out


@pytest.mark.parametrize("optimizer", ["adamw", "sgd"])
@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("name", NAMES)
def test_the_state_takes_what_it_is_said_to(name: str, precision: Precision, optimizer: str) -> None:
    spec = small(name, precision, f"optimizer.kind={optimizer}")
    state = torch_side.build(spec).export_state()
    exact = sum(a.nbytes for key, a in state.arrays.items() if key.startswith(("model.params.", "optimizer.")))
    (need, _) = host_needs(spec)
    assert need.size == exact


@pytest.mark.parametrize("steps", [1, 20])
@pytest.mark.parametrize("name", NAMES)
def test_a_chunk_takes_at_least_what_it_is_said_to(name: str, steps: int) -> None:
    spec = replace(small(name), steps=steps, execution=replace(small(name).execution, chunk=steps))
    chunk = open_stream(spec, load_dataset(spec)).take(steps)
    batches = chunk.inputs.nbytes + chunk.targets.nbytes + 8 * spec.batch * steps
    digests = sum(sys.getsizeof(digest) for digest in chunk.digests)
    (_, need) = host_needs(spec)
    assert batches <= need.size <= batches + digests + 20 * steps, "20: index (int32), rate and factor (float64)"


@pytest.mark.parametrize("validates", [False, True])
@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("name", NAMES)
def test_some_tensor_is_at_least_as_large_as_each_activation(
    name: str, precision: Precision, validates: bool
) -> None:
    spec = small(name, precision, "steps=1", f"validate_every={int(validates)}", "execution.chunk=1")
    trainer = torch_side.build(spec)
    with Largest() as largest:
        list(trainer.steps(1))
        if validates:
            trainer.evaluate()
    assert all(0 < need.size <= largest.size for need in activations(spec))


CASES: list[tuple[str, list[str], str, str]] = [
    ("mlp-digits", ["model.hidden=[100000, 100000]"], "model.hidden", "parameters and optimizer state"),
    ("mlp-digits", ["model.classes=100000000"], "model.classes", "parameters and optimizer state"),
    ("cnn-digits", ["model.channels=[2000000, 8]"], "model.channels", "a convolution of 360 samples"),
    ("gpt-text", ["model.width=400000"], "model.width", "parameters and optimizer state"),
    ("gpt-text", ["model.vocabulary=2147483647"], "model.vocabulary", "parameters and optimizer state"),
    ("gpt-text", ["model.layers=10000", "model.width=1024"], "model.layers", "parameters and optimizer state"),
    ("gpt-text", ["model.context=300000"], "model.context", "attention scores of 128 samples"),
    ("mlp-digits", ["batch=1000000000"], "batch", "the batches of a chunk of 100 steps"),
    ("mlp-digits", ["data.validation=1000000000"], "data.validation", "a hidden layer of 1000000000 samples"),
    (
        "mlp-digits",
        ["execution.chunk=2000000000", "save.every=2000000000", "validate_every=0", "steps=2000000000"],
        "execution.chunk",
        "the batches of a chunk of 2000000000 steps",
    ),
]


@pytest.mark.parametrize(("name", "texts", "field", "what"), CASES)
@pytest.mark.takes_seconds
def test_what_cannot_fit_names_the_field_what_it_needs_and_what_there_is(
    name: str, texts: list[str], field: str, what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sizes, "physical_memory", lambda: 24 * 10**9)
    spec = load(name, "float32", texts)
    message = rf"needs at least [\d,]+\.\d GB for {what}, this machine has 24\.0 GB$"
    with pytest.raises(SpecError, match=message) as caught:
        require_memory([*host_needs(spec), *activations(spec)])
    assert caught.value.field == field


def fits(spec: RunSpec) -> None:
    require_memory([*host_needs(spec), *activations(spec)])


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("name", NAMES)
def test_a_preset_fits_into_64_megabytes(name: str, precision: Precision, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sizes, "physical_memory", lambda: 64 * 10**6)
    fits(load(name, precision))


def test_a_chunk_is_judged_by_its_stops(monkeypatch: pytest.MonkeyPatch) -> None:
    """Cut at every save and validation, a chunk of any number of steps is short."""
    monkeypatch.setattr(sizes, "physical_memory", lambda: 64 * 10**6)
    fits(load("mlp-digits", "float32", ["execution.chunk=2147483647", "steps=2147483647"]))


def test_a_check_describes_the_data_of_a_spec_whose_steps_it_will_not_take() -> None:
    long = ["execution.chunk=2147483647", "save.every=2147483647", "validate_every=0", "steps=2147483647"]
    spec = load("mlp-digits", "float32", long)
    with pytest.raises(SpecError, match=r"^execution\.chunk: needs at least "):
        load_dataset(spec)
    assert describe_data(spec) == describe_data(load("mlp-digits"))


def test_nothing_is_refused_where_the_system_does_not_say_what_it_has(monkeypatch: pytest.MonkeyPatch) -> None:
    spec = load("mlp-digits", "float32", ["model.hidden=[2147483647, 2147483647]"])
    for answer in (ValueError, OSError, AttributeError):
        monkeypatch.setattr("os.sysconf", lambda name, answer=answer: (_ for _ in ()).throw(answer()))
        assert physical_memory() is None
        fits(spec)
    monkeypatch.setattr("os.sysconf", lambda name: -1 if "PHYS" in name else 4096)
    assert physical_memory() is None


def test_gigabytes_are_decimal() -> None:
    assert gigabytes(1_234_500_000_000) == "1,234.5 GB"


def test_the_data_is_not_cut_into_samples_that_are_not_there(tmp_path: Any) -> None:
    file = tmp_path / "short.txt"
    file.write_text("x" * 32)
    spec = override(load("gpt-text"), [f"data.path={file}"])
    with pytest.raises(SpecError, match=r"^model\.context: 32, but the text has 32 bytes: not one sample$"):
        load_dataset(spec)
    file.write_bytes(b"a\r\nb\rc\n" * 2000)
    windows = load_dataset(override(spec, ["batch=2", "data.validation=2"])).inputs
    assert 13 not in windows, "line ends are those of Python's text files"
