"""Files in which one of several processes saved its part of tensors that all hold together."""

from pathlib import Path

import pytest
import torch
from torch import distributed
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Shard, distribute_tensor

from parity.cli.main import main
from parity.formats import open_checkpoint


@pytest.fixture
def divided(tmp_path: Path):
    """Return a tensor of PyTorch that lies in a mesh of one process."""
    distributed.init_process_group("gloo", store=distributed.HashStore(), rank=0, world_size=1)
    try:
        yield distribute_tensor(torch.arange(6.0).reshape(3, 2), init_device_mesh("cpu", (1,)), [Shard(0)])
    finally:
        distributed.destroy_process_group()


@pytest.mark.parametrize("legacy", [False, True])
def test_a_tensor_of_several_processes_is_refused_with_the_call_that_saves_the_whole(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], divided: torch.Tensor, legacy: bool
) -> None:
    state = {"model": {"plain": torch.ones(2), "deep": [{"w": divided}]}, "step": 3}
    torch.save(state, tmp_path / "a.pt", _use_new_zipfile_serialization=not legacy)
    words = ["convert", str(tmp_path / "a.pt"), str(tmp_path / "b.safetensors"), "--to", "safetensors"]
    for asked in ([], ["--reset", "model.deep.0.w"]):  # what is plain beside it may be a part too
        assert main([*words, *asked]) == 2
        said = " ".join(capsys.readouterr().err.split())
        assert "model.deep.0.w is a DTensor" in said
        assert "full_state_dict=True" in said
        assert not (tmp_path / "b.safetensors").exists()


def test_a_file_of_whole_tensors_alone_is_none_of_a_process(tmp_path: Path) -> None:
    torch.save({"model": {"DTensor": torch.ones(2)}, "raw": torch.ones(2).untyped_storage()}, tmp_path / "a.pt")
    assert open_checkpoint(tmp_path / "a.pt").divided == ""
