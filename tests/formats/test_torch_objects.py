"""What a file of `torch.save` may hold beside tensors: bare storages, NumPy's values, keys of each type."""

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
