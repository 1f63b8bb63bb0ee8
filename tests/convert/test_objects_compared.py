"""Objects that only code could rebuild are equal where all of their bytes were compared, and never otherwise."""

from __future__ import annotations

import collections
import pickle
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from parity.cli.main import main
from parity.convert import compare_sources, open_any
from parity.convert.objects_compared import compare_objects
from parity.formats import InMemory, Opaque, Source


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """PyTorch warns of quantized, nested and compressed tensors, which it will have otherwise one day."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def _quantized(value: float, scale: float = 0.5) -> Any:
    return torch.quantize_per_tensor(torch.full((4,), value), scale, 0, torch.qint8)


def _per_channel(scale: float) -> Any:
    scales = torch.tensor([0.1, scale])
    return torch.quantize_per_channel(torch.ones(2, 2), scales, torch.zeros(2), 0, torch.qint8)


def _nested(value: float) -> torch.Tensor:
    return torch.nested.nested_tensor([torch.ones(2), torch.full((3,), value)])


def _module(value: float) -> torch.nn.Module:
    module = torch.nn.Linear(2, 2)
    torch.nn.init.constant_(module.weight, value)
    torch.nn.init.zeros_(module.bias)
    return module


PAIRS: dict[str, Callable[[float], Any]] = {
    "a sparse tensor": lambda x: (torch.eye(3) * x).to_sparse(),
    "a sparse tensor by rows": lambda x: (torch.eye(3) * x).to_sparse_csr(),
    "a quantized tensor": _quantized,
    "the scale of a quantized tensor": lambda x: _quantized(1.0, x),
    "a scale of a channel": _per_channel,
    "a nested tensor": _nested,
    "a storage": lambda x: torch.full((3,), x).untyped_storage(),
    "a tensor in a deque": lambda x: collections.deque([torch.full((2,), x)]),
    "a module": _module,
    "objects of NumPy": lambda x: np.array([x, "a"], dtype=object),
    "records of NumPy": lambda x: np.full(2, x, np.float32).view([("x", "f4")]),
    "times of NumPy": lambda x: np.array([int(x)]).astype("M8[D]"),
    "texts of NumPy": lambda x: np.array([str(x)]),
}


@pytest.mark.parametrize("kind", PAIRS)
def test_an_object_is_equal_where_its_bytes_are(kind: str, tmp_path: Path) -> None:
    make = PAIRS[kind]
    paths = []
    for number, value in enumerate((1.0, 1.0, 2.0)):
        paths.append(tmp_path / f"{number}.pt")
        torch.save({"w": torch.ones(2), "x": make(value)}, paths[-1])
    first, copy, other = map(open_any, paths)
    assert "x" in {".".join(map(str, keys)) for keys in first.opaque()}
    assert compare_sources(first, copy).same
    assert [leaf.name for leaf in compare_sources(first, other).of("different")] == ["x"]


def test_units_and_fields_are_compared_too() -> None:
    def read(value: Any) -> Any:
        from parity.formats.numpy_pickled import NUMPY_CALLS
        from parity.formats.symbolic import PLAIN_CALLS, read_pickle

        return read_pickle(pickle.dumps(value, 2), "a file", {**PLAIN_CALLS, **NUMPY_CALLS})

    days, seconds = (read(np.array([3]).astype(f"M8[{unit}]")) for unit in "Ds")
    assert compare_objects(days, seconds) == "different"
    x, y = (read(np.zeros(2, np.float32).view([(name, "f4")])) for name in "xy")
    assert compare_objects(x, y) == "different"
    assert compare_objects(days, read(np.array([3]).astype("M8[D]"))) == "equal"


def test_the_order_of_a_set_is_no_difference() -> None:
    def of(*items: Any) -> Opaque:
        return Opaque("builtins.set", list(items))

    assert compare_objects(of("a", "b"), of("b", "a")) == "equal"
    assert compare_objects(of("a", "b"), of("a", "c")) == "different"


def test_what_was_not_read_is_inconclusive(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    trees = [{"w": InMemory(np.full(2, x)), "o": Opaque("mine.Item", ["a"], hidden=True)} for x in (1.0, 1.0, 2.0)]
    a, copy, other = (Source(path=tmp_path, format="orbax", tree=tree) for tree in trees)
    found = compare_sources(a, copy)
    assert (found.same, found.undecided) == (False, True)
    assert not compare_sources(a, other).undecided
    for n in (1, 2):
        torch.save({"w": torch.ones(2), "s": torch.eye(2).to_sparse()}, tmp_path / f"{n}.pt")
    assert main(["compare", str(tmp_path / "1.pt"), str(tmp_path / "2.pt")]) == 0
    monkeypatch.setattr("parity.formats.torch_file.Storage.content", lambda storage: None)
    torch.save({"w": torch.ones(2), "s": torch.ones(2).untyped_storage()}, tmp_path / "3.pt")
    capsys.readouterr()
    assert main(["compare", str(tmp_path / "3.pt"), str(tmp_path / "3.pt")]) == 4
    assert "1 not read, so that nothing shows them to be equal" in capsys.readouterr().out


class Scaled(torch.Tensor):
    """A subclass whose code may make other values of its elements."""


def test_a_subclass_read_as_a_plain_tensor_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "a.pt"
    torch.save({"w": torch.ones(2).as_subclass(Scaled)}, path)
    assert any(f"{__name__}.Scaled are read as plain ones" in note for note in open_any(path).notes)
    assert main(["compare", str(path), str(path)]) == 0
    assert "are read as plain ones" in capsys.readouterr().err
    torch.save({"w": torch.nn.Parameter(torch.ones(2)), "b": torch.nn.Buffer(torch.ones(2))}, path)
    assert open_any(path).notes == ("1 tensors that are parameters or require gradients are read as plain ones",)
    torch.save({"b": torch.nn.Buffer(torch.ones(2))}, path)
    assert open_any(path).notes == ()


class Made:
    """An object that a method of its class makes again, as sharded tensors of PyTorch are."""

    def __init__(self, value: float) -> None:
        self.value = value

    @classmethod
    def of(cls, value: float) -> Made:
        return cls(value)

    def __reduce__(self) -> Any:
        return Made.of, (self.value,)


def test_an_object_that_a_method_makes_is_one_beside_which_all_else_is_read(tmp_path: Path) -> None:
    paths = [tmp_path / f"{n}.pt" for n in range(3)]
    for path, value in zip(paths, (1.0, 1.0, 2.0), strict=True):
        torch.save({"w": torch.ones(2), "o": Made(value)}, path)
    first, copy, other = map(open_any, paths)
    assert first.tree["w"].load().tolist() == [1, 1]
    assert isinstance(first.tree["o"], Opaque)
    assert compare_sources(first, copy).same
    assert [leaf.name for leaf in compare_sources(first, other).of("different")] == ["o"]


def test_parts_that_are_shared_a_billion_times_end_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    def shared() -> Opaque:
        parts: list[Any] = [1]
        for _ in range(60):
            parts = [parts, parts]
        return Opaque("mine.Item", parts)

    assert compare_objects(shared(), shared()) == "equal"
    monkeypatch.setattr("parity.convert.objects_compared.MOST_PAIRS", 1000)
    wide = [Opaque("mine.Item", [[n] for n in range(2000)]) for _ in range(2)]
    assert compare_objects(*wide) == "not read"
