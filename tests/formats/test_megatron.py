"""Checkpoints of Megatron: ranks as they lie, iterations by the file that names the newest, and torch_dist."""

from __future__ import annotations

import argparse
import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

from parity.cli import main
from parity.errors import CheckpointError
from parity.formats import open_checkpoint, recognise, steps_of

DIST = Path(__file__).parent / "fixtures" / "megatron"


def state(rank: int, iteration: int, **sizes: int) -> dict[str, Any]:
    """Return what Megatron saves of one rank with `--ckpt-format torch`."""
    names = {name: sizes.get(name, 1) for name in ("tensor", "pipeline", "expert")}
    args = argparse.Namespace(**{f"{name}_model_parallel_size": size for name, size in names.items()}, lr=0.01)
    return {
        "args": args,
        "checkpoint_version": 3.0,
        "iteration": iteration,
        "model": {"decoder.layers.0.mlp.weight": torch.arange(6.0).reshape(2, 3) + 10 * rank},
        "optimizer": {
            "state": {0: {"exp_avg": torch.ones(2, 3), "exp_avg_sq": torch.ones(2, 3)}},
            "param_groups": [{"lr": 0.01, "params": [0]}],
        },
        "opt_param_scheduler": {"num_steps": iteration * 8, "max_lr": 0.01},
        "rng_state": [{"torch_rng_state": torch.get_rng_state()}],
    }


def save_rank(folder: Path, name: str, rank: int = 0, iteration: int = 10, **sizes: int) -> None:
    (folder / name).mkdir(parents=True, exist_ok=True)
    torch.save(state(rank, iteration, **sizes), folder / name / "model_optim_rng.pt")


@pytest.fixture
def alone(tmp_path: Path) -> Path:
    save_rank(tmp_path / "run" / "iter_0000010", "mp_rank_00")
    return tmp_path / "run" / "iter_0000010"


@pytest.fixture
def two(tmp_path: Path) -> Path:
    for rank in (0, 1):
        save_rank(tmp_path / "two" / "iter_0000010", f"mp_rank_{rank:02d}", rank, tensor=2)
    return tmp_path / "two" / "iter_0000010"


def test_the_only_rank_is_read_as_its_file(alone: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = open_checkpoint(alone)
    assert (source.format, source.detail, source.divided) == ("megatron", "Megatron, 1 rank", "")
    assert source.tree["model"]["decoder.layers.0.mlp.weight"].load().tolist() == [[0, 1, 2], [3, 4, 5]]
    assert source.tree["iteration"] == 10
    assert main(["inspect", str(alone), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    text = json.dumps(found)
    assert "decoder.layers.0.mlp.weight" in text
    assert "exp_avg" in text


def test_each_of_several_ranks_is_shown_and_none_is_converted(
    two: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = open_checkpoint(two)
    assert source.detail == "Megatron, 2 ranks"
    assert source.tree["mp_rank_01"]["model"]["decoder.layers.0.mlp.weight"].load().tolist()[0] == [10, 11, 12]
    assert main(["inspect", str(two)]) == 0
    assert "mp_rank_01.model.decoder" in capsys.readouterr().out
    assert main(["convert", str(two), str(tmp_path / "x.safetensors"), "--to", "safetensors"]) == 2
    err = capsys.readouterr().err
    assert "is not converted: each rank holds its parts of the parameters" in err
    assert "--ckpt-format torch_dist" in err
    assert err.count("\n") == 1
    assert not (tmp_path / "x.safetensors").exists()


@pytest.mark.parametrize("which", ["alone", "two"])
def test_it_is_sealed_and_every_change_is_noticed(
    which: str, request: pytest.FixtureRequest, capsys: pytest.CaptureFixture[str]
) -> None:
    path: Path = request.getfixturevalue(which)
    assert main(["verify", str(path)]) == 4
    assert "that its files are of one save" in (out := capsys.readouterr().out)
    assert "that all ranks are there" not in out, "the arguments in the file say how many"
    assert main(["seal", str(path)]) == 0
    assert main(["verify", str(path)]) == 0
    file = sorted(path.rglob("*.pt"))[-1]
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.write_bytes(data)
    assert main(["verify", str(path)]) == 1
    assert f"{file.parent.name}/model_optim_rng.pt" in capsys.readouterr().out


def test_a_damaged_record_is_found_without_a_seal(two: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = two / "mp_rank_01" / "model_optim_rng.pt"
    data = bytearray(file.read_bytes())
    at = data.index(torch.tensor([10.0, 11.0]).numpy().tobytes())
    data[at] ^= 1
    file.write_bytes(data)
    assert main(["verify", str(two)]) == 1
    assert "mp_rank_01/model_optim_rng.pt" in capsys.readouterr().out


def test_one_rank_is_converted_like_a_file_of_torch_save(
    alone: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    only = ["--only", "params"]
    assert main(["convert", str(alone), str(tmp_path / "m.safetensors"), "--to", "safetensors", *only]) == 0
    assert list(open_checkpoint(tmp_path / "m.safetensors").tree) == ["decoder.layers.0.mlp.weight"]
    torch.save({"optimizer": {}}, alone / "mp_rank_00" / "distrib_optim.pt")
    capsys.readouterr()
    assert open_checkpoint(alone).detail == "Megatron, 1 rank, with distrib_optim.pt"
    assert main(["convert", str(alone), str(tmp_path / "n.safetensors"), "--to", "safetensors", *only]) == 2
    assert "is not converted" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("names", "sizes", "said"),
    [
        (["mp_rank_00"], {"tensor": 2}, "mp_rank_01 is missing"),
        (["mp_rank_01"], {"tensor": 2}, "mp_rank_00 is missing"),
        (["mp_rank_00", "mp_rank_02"], {"tensor": 3}, "mp_rank_01 is missing"),
        (["mp_rank_00_000", "mp_rank_01_001"], {"tensor": 2, "pipeline": 2}, "mp_rank_00_001 and 1 more is missing"),
        (["mp_rank_00_000"], {"expert": 2}, "mp_rank_00_001 is missing"),
        (["mp_rank_00", "mp_rank_01"], {}, "mp_rank_01 is of another save"),
        (["mp_rank_00", "mp_rank_01_000"], {}, "has ranks of two saves"),
    ],
)
def test_a_rank_that_is_missing_is_named(names: list[str], sizes: dict[str, int], said: str, tmp_path: Path) -> None:
    for rank, name in enumerate(names):
        save_rank(tmp_path / "x", name, rank, **sizes)
    with pytest.raises(CheckpointError, match=said):
        open_checkpoint(tmp_path / "x")


def test_ranks_of_three_kinds_are_all_read(tmp_path: Path) -> None:
    names = [f"mp_rank_{t:02d}_{p:03d}_{e:03d}" for t in (0, 1) for p in (0, 1) for e in (0, 1)]
    for rank, name in enumerate(names):
        save_rank(tmp_path / "x", name, rank, tensor=2, pipeline=2, expert=2)
    assert list(open_checkpoint(tmp_path / "x").tree) == names
    (tmp_path / "x" / names[-1] / "model_optim_rng.pt").unlink()
    with pytest.raises(CheckpointError, match=r"names the file model_optim_rng\.pt, which is missing"):
        open_checkpoint(tmp_path / "x")


def test_without_arguments_it_is_said_that_ranks_may_be_missing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "x" / "mp_rank_00").mkdir(parents=True)
    torch.save({"model": {"w": torch.ones(2)}}, tmp_path / "x" / "mp_rank_00" / "model_optim_rng.pt")
    assert main(["verify", str(tmp_path / "x")]) == 4
    assert "that all ranks are there: no file says how many there were" in capsys.readouterr().out


def test_a_directory_of_iterations_is_opened_at_the_one_that_its_file_names(
    alone: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = alone.parent
    shutil.copytree(DIST, run / "iter_0000020")
    shutil.copytree(DIST, run / "iter_0000030")
    (run / "latest_checkpointed_iteration.txt").write_text("20")  # 30 is being written
    assert recognise(run).name == "megatron"
    assert [one.name for one in steps_of(run)] == ["iter_0000010", "iter_0000020", "iter_0000030"]
    source = open_checkpoint(run)
    assert (source.path, source.format) == (run / "iter_0000020", "dcp")
    assert source.detail.startswith("iter_0000020 of 3: latest_checkpointed_iteration.txt names it; DCP 1.0.0")
    assert source.tree["model.weight"].shape == (4, 6)
    assert main(["inspect", str(run)]) == 0
    assert main(["path", str(run), "latest"]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == str(run / "iter_0000020")
    assert main(["verify", str(run)]) == 4
    assert capsys.readouterr().out.count("unverified") == 3
    assert main(["seal", str(run)]) == 2
    assert "holds 3 checkpoints" in capsys.readouterr().err
    for said, problem in (("40", "names iter_0000040, which is not there"), ("ten", "is no number of an iteration")):
        (run / "latest_checkpointed_iteration.txt").write_text(said)
        with pytest.raises(CheckpointError, match=problem):
            open_checkpoint(run)
        assert main(["path", str(run), "latest"]) == 2
    (run / "latest_checkpointed_iteration.txt").unlink()
    assert open_checkpoint(run).path == run / "iter_0000030"


def test_a_release_is_an_iteration(alone: Path) -> None:
    run = alone.parent
    alone.rename(run / "release")
    (run / "latest_checkpointed_iteration.txt").write_text("release\n")
    assert open_checkpoint(run).path == run / "release"


def test_torch_dist_is_sealed_verified_and_converted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "iter_0000020"
    shutil.copytree(DIST, path)
    assert main(["seal", str(path)]) == 0
    assert main(["verify", str(path)]) == 0
    assert main(["convert", str(path), str(tmp_path / "x.pt"), "--to", "torch.save"]) == 0
    held = torch.load(tmp_path / "x.pt", weights_only=True)
    assert held["model.weight"].tolist() == torch.arange(24.0).reshape(4, 6).tolist()
    capsys.readouterr()
    (path / "common.pt").write_bytes(b"")
    assert main(["verify", str(path)]) == 1
    assert "common.pt" in capsys.readouterr().out
