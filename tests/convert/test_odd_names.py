"""Names that formats spell otherwise, or cannot spell: each leaf has its line, and comes back or is refused."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from parity.cli.main import main

HALF = chr(0xD800)
"""Half of a pair of UTF-16: PyTorch pickles it, UTF-8 has no such text."""


def _save(tmp_path: Path, tree: object) -> Path:
    path = tmp_path / "a.pt"
    torch.save(tree, path)
    return path


@pytest.mark.parametrize("to", ["torch.save", "safetensors", "dcp", "orbax", "flax-msgpack"])
def test_a_parameter_without_a_name_is_counted_and_comes_back(
    to: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = _save(tmp_path, {"": torch.ones(3), "x": torch.zeros(2)})
    assert main(["convert", str(path), str(tmp_path / "b"), "--to", to]) == 0
    assert "2 leaves: 2 copied" in capsys.readouterr().out
    assert main(["compare", str(path), str(tmp_path / "b")]) == 0
    assert "2 leaves: 2 equal bit for bit" in capsys.readouterr().out


def test_a_lone_array_is_compared_and_an_empty_dict_is_not(tmp_path: Path) -> None:
    path = _save(tmp_path, torch.ones(3))
    assert main(["compare", str(path), str(path)]) == 0
    path = _save(tmp_path, {})
    assert main(["compare", str(path), str(path)]) == 5


def test_keys_that_are_one_as_text_come_back_from_safetensors(tmp_path: Path) -> None:
    path = _save(tmp_path, {0: torch.ones(2), "0": torch.zeros(2), "__metadata__": torch.ones(1)})
    assert main(["convert", str(path), str(tmp_path / "b.safetensors"), "--to", "safetensors"]) == 0
    assert main(["convert", str(tmp_path / "b.safetensors"), str(tmp_path / "c.pt"), "--to", "torch.save"]) == 0
    back = torch.load(tmp_path / "c.pt", weights_only=True)
    assert list(back) == [0, "0", "__metadata__"]
    assert back[0].tolist() == [1, 1]
    assert back["0"].tolist() == [0, 0]


def test_a_flat_dict_of_names_stays_as_it_is(tmp_path: Path) -> None:
    path = _save(tmp_path, {"a.b": torch.ones(2), "c": torch.zeros(2)})
    assert main(["convert", str(path), str(tmp_path / "b.safetensors"), "--to", "safetensors"]) == 0
    assert set(load_file(tmp_path / "b.safetensors")) == {"a.b", "c"}
    assert b"parity.tree" not in (tmp_path / "b.safetensors").read_bytes()


@pytest.mark.parametrize("to", ["safetensors", "hugging-face", "orbax", "flax-msgpack"])
def test_a_name_that_is_no_text_is_refused(to: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = _save(tmp_path, {HALF: torch.ones(2), "x": torch.zeros(2)})
    assert main(["convert", str(path), str(tmp_path / "b"), "--to", to]) == 1
    assert "UTF-8" in capsys.readouterr().out
    assert not (tmp_path / "b").exists()


def test_a_model_folder_takes_no_two_names_that_are_one(tmp_path: Path) -> None:
    path = _save(tmp_path, {0: torch.ones(2), "0": torch.zeros(2)})
    assert main(["convert", str(path), str(tmp_path / "b"), "--to", "hugging-face"]) == 1


def test_nothing_is_never_called_sealed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = _save(tmp_path, {})
    assert main(["convert", str(path), str(tmp_path / "b"), "--to", "safetensors"]) == 5
    printed = capsys.readouterr()
    assert "sealed" not in printed.out
    assert "nothing was converted" in printed.err


def test_an_array_beside_the_only_state_dict_stops_the_way_to_jax(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = _save(tmp_path, {"model": {"encoder": {"weight": torch.ones(2, 2)}, "queue": torch.ones(3)}})
    assert main(["convert", str(path), str(tmp_path / "b"), "--to", "orbax"]) == 2
    said = capsys.readouterr().err
    assert "model.queue beside it may be a parameter too" in said
    assert "--keys model.encoder" in said
    assert main(["convert", str(path), str(tmp_path / "b"), "--to", "orbax", "--keys", "model.encoder"]) == 0
    path = _save(tmp_path, {"net": {"weight": torch.ones(2, 2)}, "best_metric": torch.tensor(0.5)})
    assert main(["convert", str(path), str(tmp_path / "c"), "--to", "orbax"]) == 0


def test_a_model_of_objects_is_not_called_enough(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = _save(tmp_path, {"weight": torch.eye(3).to_sparse(), "bias": torch.ones(3)})
    assert main(["inspect", str(path)]) == 0
    said = capsys.readouterr().out
    assert "not read: 1 of their leaves" in said
    assert "enough for inference" not in said
    path = _save(tmp_path, {"weight": torch.eye(3), "bias": torch.ones(3)})
    assert main(["inspect", str(path)]) == 0
    assert "enough for inference" in capsys.readouterr().out
