"""A checkpoint of Orbax that is one array, which has no name; and files of DCP whose save was not finished."""

from pathlib import Path

import numpy as np
import orbax.checkpoint as ocp
import pytest
import torch
import torch.distributed.checkpoint as dcp

from parity.cli import main
from parity.errors import CheckpointError
from parity.formats import Array, open_checkpoint

VALUES = np.arange(6, dtype=np.float32).reshape(2, 3)


def save(path: Path, layout: str) -> Path:
    handler = ocp.PyTreeCheckpointHandler(use_ocdbt=layout != "zarr", use_zarr3=layout == "zarr3")
    with ocp.Checkpointer(handler) as checkpointer:
        checkpointer.save(path, VALUES)
    return path


@pytest.mark.parametrize("layout", ["zarr", "ocdbt", "zarr3"])
def test_an_array_without_a_name_is_read_as_orbax_reads_it(tmp_path: Path, layout: str) -> None:
    path = save(tmp_path / "x", layout)
    found = open_checkpoint(path).tree
    assert isinstance(found, Array)
    assert np.array_equal(found.load(), ocp.PyTreeCheckpointer().restore(path))
    assert main(["inspect", str(path)]) == 0
    assert main(["verify", str(path)]) == 4


def test_its_lost_chunk_is_named(tmp_path: Path) -> None:
    path = save(tmp_path / "x", "zarr")
    (path / "0.0").unlink()
    with pytest.raises(CheckpointError, match=r"0\.0 is missing: a chunk of the array"):
        open_checkpoint(path)


@pytest.mark.filterwarnings("ignore:torch.distributed is disabled", "ignore::UserWarning")
def test_a_save_of_dcp_that_was_not_finished_is_said_to_be_one(tmp_path: Path) -> None:
    dcp.save({"w": torch.ones(2)}, checkpoint_id=tmp_path / "x", no_dist=True)
    (tmp_path / "x" / ".metadata").unlink()
    with pytest.raises(CheckpointError, match=r"without \.metadata, which a save writes last"):
        open_checkpoint(tmp_path / "x")
