"""Checksums of a format: what they show is never converted, restored, or called whole, sealed or not."""

import json
from pathlib import Path

import pytest
import torch
import torch.distributed.checkpoint as dcp
from safetensors.torch import save_file

import torch_side
from parity.cli import main
from parity.errors import DamagedError

pytestmark = pytest.mark.filterwarnings("ignore:torch.distributed is disabled", "ignore::UserWarning")

MODEL = {"a.weight": torch.arange(6.0).reshape(2, 3) + 0.7, "a.bias": torch.ones(2)}
MOMENT = torch.arange(6.0).reshape(2, 3) + 0.3


def state() -> dict[str, object]:
    return {"model": MODEL, "step": 3}


def save_torch(home: Path) -> tuple[Path, Path]:
    torch.save(state(), home / "x.pt")
    return home / "x.pt", home / "x.pt"


def save_dcp(home: Path) -> tuple[Path, Path]:
    dcp.save(state(), checkpoint_id=home / "x", no_dist=True)
    return home / "x", home / "x" / "__0_0.distcp"


def save_hugging_face(home: Path) -> tuple[Path, Path]:
    folder = home / "checkpoint-5"
    folder.mkdir()
    save_file({"a.weight": MOMENT}, folder / "model.safetensors")
    torch.save({"state": {0: {"exp_avg": MODEL["a.weight"]}}, "param_groups": []}, folder / "optimizer.pt")
    (folder / "trainer_state.json").write_text(json.dumps({"global_step": 5}))
    (folder / "config.json").write_text("{}")
    return folder, folder / "optimizer.pt"


def flip(file: Path) -> None:
    """Change a bit of an array, where nothing but a checksum tells."""
    data = bytearray(file.read_bytes())
    data[data.index(MODEL["a.weight"].numpy().tobytes()) + 2] ^= 4
    file.write_bytes(data)


SAVES = (save_torch, save_dcp, save_hugging_face)


@pytest.mark.parametrize("save", SAVES)
@pytest.mark.parametrize("sealed", [False, True])
def test_what_a_checksum_shows_is_not_converted_nor_called_whole(tmp_path, capsys, save, sealed):
    source, file = save(tmp_path)
    flip(file)
    if sealed:
        assert main(["seal", str(source)]) == 0
    assert main(["verify", str(source)]) == 1
    assert "does not fit its CRC-32" in capsys.readouterr().out
    before = sorted(tmp_path.iterdir())
    assert main(["convert", str(source), str(tmp_path / "out.safetensors"), "--to", "safetensors"]) == 2
    assert "CRC-32" in capsys.readouterr().err
    assert sorted(tmp_path.iterdir()) == before


@pytest.mark.parametrize("save", SAVES)
@pytest.mark.parametrize("sealed", [False, True])
def test_what_is_whole_is_converted_and_verified(tmp_path, save, sealed):
    source, _ = save(tmp_path)
    if sealed:
        assert main(["seal", str(source)]) == 0
    assert main(["verify", str(source)]) == (0 if sealed else 4)
    out = tmp_path / "out.safetensors"
    assert main(["convert", str(source), str(out), "--to", "safetensors"]) == 0
    assert main(["verify", str(out)]) == 0


def test_a_file_that_was_written_without_checksums_is_converted(tmp_path):
    torch.serialization.set_crc32_options(False)
    try:
        source, file = save_torch(tmp_path)
    finally:
        torch.serialization.set_crc32_options(True)
    flip(file)
    assert main(["convert", str(source), str(tmp_path / "out.pt"), "--to", "torch"]) == 0


@pytest.mark.parametrize("sealed", [False, True])
def test_a_restore_takes_no_damage_that_the_format_shows(tmp_path, sealed):
    source, file = save_torch(tmp_path)
    flip(file)
    if sealed:
        assert main(["seal", str(source)]) == 0
    with pytest.raises(DamagedError, match="CRC-32"):
        torch_side.restore(source)
