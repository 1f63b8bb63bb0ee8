"""Files that hold nothing, are of no known format, or have a broken part beside their arrays."""

import json
from pathlib import Path

import jax.numpy as jnp
import orbax.checkpoint as ocp
import pytest
import torch
from safetensors.torch import save_file

from parity.cli import main


def test_nothing_is_not_sealed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    torch.save({"a": {}, "b": []}, tmp_path / "empty.pt")
    assert main(["seal", str(tmp_path / "empty.pt")]) == 2
    assert "holds nothing: there is nothing to seal" in capsys.readouterr().err
    assert [one.name for one in tmp_path.iterdir()] == ["empty.pt"]


def test_a_single_number_is_sealed(tmp_path: Path) -> None:
    torch.save({"a": {}, "step": 3}, tmp_path / "one.pt")
    assert main(["seal", str(tmp_path / "one.pt")]) == 0


@pytest.mark.parametrize("head", [b"\x89HDF\r\n\x1a\n", b"GGUF\x03\0\0\0"])
def test_a_file_of_no_known_format_is_not_said_to_be_a_bad_result(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], head: bytes
) -> None:
    (tmp_path / "a").write_bytes(head + bytes(100))
    assert main(["compare", str(tmp_path / "a"), str(tmp_path / "a")]) == 2
    said = capsys.readouterr().err
    assert "neither JSON, as a result is, nor a checkpoint" in said
    assert "known are" in said


@pytest.mark.parametrize(
    "damage", [b"", b"{", b"[]", b'{"!": "{}"}', b'{"YQ==": "{"}', b'{"YQ==": 3}'], ids=lambda one: one.decode()
)
def test_a_broken_sharding_file_is_damage(tmp_path: Path, capsys: pytest.CaptureFixture[str], damage: bytes) -> None:
    with ocp.StandardCheckpointer() as checkpointer:
        checkpointer.save(tmp_path / "saved", {"a": jnp.ones(3)})
    assert main(["verify", str(tmp_path / "saved")]) == 4
    (tmp_path / "saved" / "_sharding").write_bytes(damage)
    assert main(["verify", str(tmp_path / "saved")]) == 1
    assert "_sharding: cannot be read" in capsys.readouterr().out


@pytest.mark.parametrize("whole_folder", [False, True])
@pytest.mark.parametrize(("said", "told"), [(24, False), (23, True), ("24", True), (None, False)])
def test_a_total_size_that_does_not_fit_is_said_and_is_no_damage(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], said: object, told: bool, whole_folder: bool
) -> None:
    shard = "model-00001-of-00001.safetensors"
    save_file({"w": torch.ones(2, 3)}, tmp_path / shard)
    index = tmp_path / "model.safetensors.index.json"
    index.write_text(json.dumps({"metadata": {"total_size": said}, "weight_map": {"w": shard}}))
    assert main(["verify", str(tmp_path if whole_folder else index)]) == 4
    assert ("has the total_size" in capsys.readouterr().out) == told
