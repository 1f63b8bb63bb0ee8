"""Files of PyTorch that are code rather than data: said what they are, and what to save instead."""

from pathlib import Path

import pytest
import torch

from parity.cli import main


def refused(capsys: pytest.CaptureFixture[str], *words: object) -> str:
    capsys.readouterr()
    assert main([str(word) for word in words]) == 2
    return capsys.readouterr().err


@pytest.mark.parametrize("to", ["torch.save", "safetensors", "orbax"])
@pytest.mark.parametrize("legacy", [False, True])
def test_a_whole_module_is_refused_with_what_to_save(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], to: str, legacy: bool
) -> None:
    module = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.BatchNorm1d(3))
    torch.save(module, tmp_path / "m.pt", _use_new_zipfile_serialization=not legacy)
    said = refused(capsys, "convert", tmp_path / "m.pt", tmp_path / "out", "--to", to)
    assert "object of torch.nn.modules.container.Sequential as a whole" in said
    assert "save its state_dict() instead" in said
    assert [one.name for one in tmp_path.iterdir()] == ["m.pt"]


@pytest.mark.filterwarnings("ignore")
def test_torchscript_is_called_by_its_name(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    torch.jit.trace(torch.nn.Linear(2, 3), torch.zeros(1, 2)).save(tmp_path / "m.pt")
    for words in (["inspect"], ["verify"], ["convert", tmp_path / "out", "--to", "torch.save"]):
        said = refused(capsys, words[0], tmp_path / "m.pt", *words[1:])
        assert "is a TorchScript archive, which is code; save a state dict" in said
