"""What a file of `torch.save` may hold beside tensors: bare storages, NumPy's values, keys of each type."""

import datetime
from collections import OrderedDict, defaultdict
from enum import Enum
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from parity.cli.main import main
from parity.formats import Opaque, open_checkpoint

MODEL = {"w": torch.arange(4.0)}


@pytest.mark.parametrize("legacy", [False, True])
@pytest.mark.parametrize("to", ["torch.save", "orbax", "dcp", "safetensors"])
def test_a_bare_storage_is_refused_by_its_name_and_the_flag_that_leaves_it_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], to: str, legacy: bool
) -> None:
    state = {"model": MODEL, "extra": {"raw": torch.ones(4).untyped_storage()}, "step": 1}
    torch.save(state, tmp_path / "a.pt", _use_new_zipfile_serialization=not legacy)
    assert isinstance(open_checkpoint(tmp_path / "a.pt").tree["extra"]["raw"], Opaque)
    words = ["convert", str(tmp_path / "a.pt"), str(tmp_path / "b"), "--to", to]
    assert main(words) == 1
    said = " ".join(capsys.readouterr().out.split())
    assert "extra.raw an object of torch.storage.UntypedStorage" in said
    assert "--reset extra.raw leaves it out" in said
    assert main([*words, "--reset", "extra.raw"]) == 0


@pytest.mark.parametrize("legacy", [False, True])
def test_values_of_numpy_keep_their_value_and_that_their_type_changes_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], legacy: bool
) -> None:
    state = {"model": MODEL, "loss": np.float64(3.1), "n": np.int64(7), "rows": np.arange(3), "step": 1}
    torch.save(state, tmp_path / "a.pt", _use_new_zipfile_serialization=not legacy)
    assert main(["convert", str(tmp_path / "a.pt"), str(tmp_path / "b.pt"), "--to", "torch.save"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "2 scalars of NumPy are read as numbers of Python and 1 arrays of NumPy are read as tensors" in said
    found = torch.load(tmp_path / "b.pt", weights_only=True)
    assert (found["loss"], found["n"], found["rows"].tolist()) == (3.1, 7, [0, 1, 2])
    assert main(["convert", str(tmp_path / "b.pt"), str(tmp_path / "c.pt"), "--to", "torch.save"]) == 0
    assert "NumPy" not in capsys.readouterr().out


DIGITS: dict[str, Any] = {
    "texts": {"0": {"w": torch.ones(2), "best": 1.5}, "1": {"w": torch.ones(3), "best": 2.5}},
    "numbers": {0: torch.ones(2), 1: 3},
    "list": [torch.ones(2), {"0": 1, "1": torch.ones(1)}],
    "tuple": (1, {"1": 2, "0": 3}),
}


@pytest.mark.parametrize("to", ["torch.save", "orbax", "dcp", "safetensors", "flax-msgpack"])
def test_keys_that_are_digits_come_back_as_they_were(tmp_path: Path, to: str) -> None:
    torch.save({"model": MODEL, **DIGITS}, tmp_path / "a.pt")
    assert main(["convert", str(tmp_path / "a.pt"), str(tmp_path / "o"), "--to", to]) == 0
    assert main(["convert", str(tmp_path / "o"), str(tmp_path / "b.pt"), "--to", "torch.save"]) == 0
    found = torch.load(tmp_path / "b.pt", weights_only=True)
    assert repr({key: found[key] for key in DIGITS}) == repr(DIGITS)


class Scaled(torch.Tensor):
    """A subclass whose objects have an attribute."""


def scaled() -> torch.Tensor:
    made = torch.ones(2).as_subclass(Scaled)
    made.scale = 7  # type: ignore[attr-defined]
    return made


def quantized() -> torch.Tensor:
    return torch.quantize_per_tensor(torch.randn(3), 0.1, 3, torch.qint8)


OBJECTS: dict[str, Any] = {
    "numpy.datetime64": np.datetime64("2020-01-01"),
    "numpy.timedelta64": np.timedelta64(5, "s"),
    "numpy.void": np.void(b"abc"),
    "numpy.longdouble": np.longdouble("1.5"),
    "numpy.dtype": np.dtype("f4"),
    "numpy.ndarray": np.array([1, None, "x"], object),
    "numpy.ndarray of datetime64": np.array(["2020-01-01"], "M8[D]"),
    "numpy.ndarray of void": np.array([(1, 2.0)], dtype=[("a", "i4"), ("b", "f8")]),
}


@pytest.mark.parametrize("legacy", [False, True])
@pytest.mark.parametrize("name", OBJECTS)
def test_what_is_no_number_is_an_object_and_never_another_value(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, legacy: bool
) -> None:
    """A time of NumPy was written as None, a duration without its unit; others made the file unreadable."""
    state = {"model": MODEL, "x": OBJECTS[name], "step": 1}
    torch.save(state, tmp_path / "a.pt", _use_new_zipfile_serialization=not legacy)
    found = open_checkpoint(tmp_path / "a.pt").tree
    assert isinstance(found["x"], Opaque)
    assert found["x"].name.startswith(name.split(" of ")[0].removesuffix("void").removesuffix("longdouble"))
    assert found["model"]["w"].load().tolist() == [0, 1, 2, 3]
    words = ["convert", str(tmp_path / "a.pt"), str(tmp_path / "b.pt"), "--to", "torch.save"]
    assert main(words) == 1
    assert "--reset x leaves it out" in " ".join(capsys.readouterr().out.split())
    assert main([*words, "--reset", "x"]) == 0


@pytest.mark.parametrize("legacy", [False, True])
@pytest.mark.filterwarnings("ignore::UserWarning", "ignore::DeprecationWarning")
def test_a_quantized_tensor_is_an_object_beside_which_all_else_is_read(tmp_path: Path, legacy: bool) -> None:
    state = {"model": MODEL, "q": quantized(), "step": 1}
    torch.save(state, tmp_path / "a.pt", _use_new_zipfile_serialization=not legacy)
    found = open_checkpoint(tmp_path / "a.pt").tree
    assert isinstance(found["q"], Opaque)
    assert (found["model"]["w"].load().tolist(), found["step"]) == ([0, 1, 2, 3], 1)


@pytest.mark.parametrize("protocol", [2, 5])
def test_empty_bytes_and_empty_arrays_of_numpy_are_what_they_are(tmp_path: Path, protocol: int) -> None:
    state = {"b": b"", "ba": bytearray(b"ab"), "e": np.empty((0, 2)), "u": np.str_("abc")}
    state["f"] = np.arange(6).reshape(2, 3).T
    torch.save(state, tmp_path / "a.pt", pickle_protocol=protocol)
    found = open_checkpoint(tmp_path / "a.pt").tree
    assert (found["b"], found["ba"], found["u"], found["e"].shape) == (b"", b"ab", "abc", (0, 2))
    assert found["f"].load().tolist() == [[0, 3], [1, 4], [2, 5]]


@pytest.mark.parametrize("legacy", [False, True])
def test_keys_and_attributes_that_do_not_cross_are_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], legacy: bool
) -> None:
    table = {(0, 1): 3.0, 1.5: 2, 7: 1, "8": 0}
    state = {"model": MODEL, "table": table, "s": scaled(), "b": torch.nn.Buffer(MODEL["w"])}
    torch.save(state, tmp_path / "a.pt", _use_new_zipfile_serialization=not legacy)
    assert main(["convert", str(tmp_path / "a.pt"), str(tmp_path / "b.pt"), "--to", "torch.save"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "2 keys that are neither text nor integers are read as text" in said
    assert "attributes of 1 tensors are left out" in said
    assert main(["convert", str(tmp_path / "b.pt"), str(tmp_path / "c.pt"), "--to", "torch.save"]) == 0
    assert "left out" not in capsys.readouterr().out


def test_a_single_tensor_is_said_to_have_no_name(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    torch.save(torch.ones(3), tmp_path / "a.pt")
    assert main(["convert", str(tmp_path / "a.pt"), str(tmp_path / "b.pt"), "--to", "torch.save"]) == 2
    assert "is one array, float32[3], without a name" in capsys.readouterr().err


class Color(Enum):
    RED = 1


KEYS: dict[str, Any] = {
    "enum": {Color.RED: 1},
    "in a tuple": {(Color.RED, 2): 1},
    "set": {frozenset([2, 1]): 1},
    "date": {datetime.date(2020, 1, 1): 1},
}


@pytest.mark.parametrize("protocol", [2, 4])
@pytest.mark.parametrize("name", KEYS)
def test_a_key_that_is_an_object_is_read_as_text(tmp_path: Path, name: str, protocol: int) -> None:
    """It made the whole file unreadable."""
    torch.save({"model": MODEL, "by": KEYS[name]}, tmp_path / "a.pt", pickle_protocol=protocol)
    found = open_checkpoint(tmp_path / "a.pt")
    (key,) = found.tree["by"]
    assert any(part in key for part in (f"{__name__}.Color(1)", "frozenset(1, 2)", "datetime.date(b"))
    assert "1 keys that are neither text nor integers are read as text" in " ".join(found.notes)


PLAINER: dict[str, tuple[Any, Any]] = {
    "devices are read as text": (torch.device("cpu"), "cpu"),
    "paths are read as text": (Path("/runs/a"), "/runs/a"),
    "sizes (torch.Size) are read as tuples": (torch.Size([2, 3]), (2, 3)),
    "dicts with a default (defaultdict) are read as plain ones": (defaultdict(list, a=1), {"a": 1}),
    "byte arrays are read as bytes": (bytearray(b"ab"), b"ab"),
}


@pytest.mark.parametrize("legacy", [False, True])
@pytest.mark.parametrize("said", PLAINER)
def test_what_is_read_as_something_plainer_is_said(tmp_path: Path, said: str, legacy: bool) -> None:
    value, plain = PLAINER[said]
    state = {"model": MODEL, "x": value, "same": OrderedDict(a=1)}
    torch.save(state, tmp_path / "a.pt", _use_new_zipfile_serialization=not legacy)
    found = open_checkpoint(tmp_path / "a.pt")
    assert repr(found.tree["x"]) == repr(plain)
    assert found.notes == (f"1 {said}",)
