"""The commands on checkpoints take the directory of a manager as that of a run, sealed or not: one answer."""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from parity.checkpoints import read_seal, verify
from parity.cli import main
from parity.cli.homes import Home
from parity.policy import Rules
from parity.storage import remove_tree
from tests.support.sealed import flip
from tests.support.tree_states import array, side_of

METRICS = {10: 0.5, 20: 0.9, 30: 0.7, 40: None}


@pytest.fixture(scope="module", params=["jax", "torch"])
def made(request: Any, tmp_path_factory: Any) -> Path:
    """Return the directory of a manager that saved four steps and kept three."""
    home: Path = tmp_path_factory.mktemp(request.param) / "mine"
    with side_of(request.param).CheckpointManager(home, keep=Rules(mode="max", keep_latest=3)) as manager:
        for step, metric in METRICS.items():
            w = array(request.param, np.full(2000, step))
            manager.save(step, {"model": {"w": w}, "config": {"lr": 0.1}}, metric)
    return home


@pytest.fixture
def mine(made: Path, tmp_path: Path) -> Path:
    return shutil.copytree(made, tmp_path / "mine")


@pytest.fixture
def parity(capsys: pytest.CaptureFixture[str]) -> Any:
    """Return what runs a command and returns its exit code, what it printed, and what it said of errors."""

    def run(*words: Any) -> tuple[int, str, str]:
        capsys.readouterr()
        code = main([str(word) for word in words])
        out, err = capsys.readouterr()
        return code, out, err

    return run


@pytest.mark.takes_seconds
def test_a_managers_directory_is_verified_named_exported_measured_and_inspected(mine: Path, parity: Any) -> None:
    for path in (mine, mine / "checkpoints"):
        code, out, _ = parity("verify", path)
        assert (code, out.count("whole      ")) == (0, 3)
    steps = mine / "checkpoints"
    assert [parity("path", mine, which)[1].strip() for which in ("best", "latest", 30)] == [
        str(steps / name) for name in ("20", "40", "30")
    ]
    assert parity("metric", mine, 30, 0.95)[:2] == (0, "step 30: metric 0.95\n")
    assert parity("path", mine, "best")[1].strip() == str(steps / "30")
    assert parity("export", mine, "best", mine.parent / "out")[0] == 0
    assert (read_seal(mine.parent / "out").step, verify(mine.parent / "out").whole) == (30, True)
    code, out, _ = parity("inspect", mine)
    assert code == 0
    assert f"{steps / '40'}" in out
    assert "float32[2000]" in out
    assert "config.lr" in out


def test_what_is_measured_later_counts_for_the_manager_too(mine: Path, parity: Any) -> None:
    side = read_seal(mine / "checkpoints" / "20").side
    assert parity("metric", mine, 40, 2.5)[0] == 0
    assert side_of(side).CheckpointManager(mine, keep=Rules(mode="max")).best_step() == 40
    for value in ("inf", "-inf"):
        code, _, err = parity("metric", mine, 40, "--", value)
        assert code == 2
        assert "metric must be finite, or nan" in err
    assert parity("metric", mine, 40, "nan")[0] == 0
    assert parity("metric", mine, 99, "0.5")[0] == 2


def test_one_without_a_seal_is_said_to_be_and_never_chosen_by_itself(mine: Path, parity: Any) -> None:
    newest = mine / "checkpoints" / "40"
    (newest / "seal.json").unlink()
    code, out, _ = parity("verify", mine)
    assert (code, out.count("whole  "), out.count("unverified ")) == (4, 2, 1)
    assert parity("verify", newest)[0] == 4
    code, out, err = parity("path", mine, "latest")
    assert (code, out) == (2, "")
    assert "the next one that is: step 30" in err
    code, out, err = parity("path", mine, 40)
    assert (code, out.strip()) == (0, str(newest))
    assert "unverified" in err
    assert "has no seal" in err
    assert parity("export", mine, 40, mine.parent / "out")[0] == 2
    for step in ("20", "30"):
        (mine / "checkpoints" / step / "seal.json").unlink()
    assert parity("verify", mine)[0] == 4
    code, out, err = parity("inspect", mine)
    assert code == 0
    assert "has no seal" in err
    assert "float32[2000]" in out


def test_a_path_is_never_that_of_one_that_verify_finds_damaged(
    mine: Path, parity: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where the damage is a bit of a large file, and in what an error lists as whole."""
    monkeypatch.setattr("parity.checkpoints.seal.SMALL", -1)  # as with files of gigabytes, which a scan does not read
    for step in ("20", "40"):
        path = mine / "checkpoints" / step
        flip(max((one for one in path.rglob("*") if one.is_file()), key=lambda one: one.stat().st_size), 3000)
    assert parity("verify", mine)[0] == 1
    for which, found in (("best", "20"), ("latest", "40")):
        code, out, err = parity("path", mine, which)
        assert (code, out) == (2, "")
        assert f"of step {found}" in err
        assert parity("path", mine, which, "--or-next")[1].strip() == str(mine / "checkpoints" / "30")
        code, out, err = parity("path", mine, which, "--unread")
        assert (code, out.strip()) == (0, str(mine / "checkpoints" / found))
        assert "--unread read no more" in err
    code, _, err = parity("path", mine, 40)
    assert code == 2
    assert "40 is not what was sealed" in err
    code, _, err = parity("path", mine, 50)
    assert code == 2
    assert "whole steps: 30)" in err, "every byte was read to say which are whole"


def test_a_path_that_is_named_after_a_look_is_noticed(
    mine: Path, parity: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("parity.cli.homes.Home.chosen", Home.choose)
    with pytest.raises(AssertionError):
        test_a_path_is_never_that_of_one_that_verify_finds_damaged(mine, parity, monkeypatch)


def test_a_best_without_a_mode_is_the_one_that_is_named_and_has_no_next(mine: Path, parity: Any) -> None:
    """As a manager wrote the file before it said by what."""
    pointer = json.loads((mine / "best.json").read_text())
    assert pointer.pop("mode") == "max"
    (mine / "best.json").write_text(json.dumps(pointer))
    assert parity("path", mine, "best")[1].strip() == str(mine / "checkpoints" / "20")
    code, _, err = parity("metric", mine, 30, 0.95)
    assert code == 2
    assert "--mode max or --mode min" in err
    assert parity("metric", mine, 30, 0.95, "--mode", "max")[0] == 0
    assert json.loads((mine / "best.json").read_text()) == {
        "step": 30,
        "metric": 0.95,
        "path": "checkpoints/30",
        "mode": "max",
    }
    (mine / "best.json").write_text(json.dumps(pointer))
    shutil.rmtree(mine / "checkpoints" / "20")
    code, _, err = parity("path", mine, "best", "--or-next")
    assert code == 2
    assert "which one is the next is unknown" in err


def test_a_manager_whose_checkpoints_are_gone_misses_them(mine: Path, parity: Any) -> None:
    shutil.rmtree(mine / "checkpoints")
    code, out, _ = parity("verify", mine)
    assert (code, out.count("missing")) == (1, 2)
    code, _, err = parity("path", mine, "latest")
    assert code == 2
    assert "no whole latest checkpoint" in err


def test_a_best_that_no_file_names_is_unknown(mine: Path, parity: Any) -> None:
    (mine / "best.json").write_text("{")
    code, _, err = parity("path", mine, "best")
    assert code == 2
    assert "is the best is unknown: best.json is missing or unreadable" in err


def test_a_manager_that_saved_nothing_has_nothing_to_verify(tmp_path: Path, parity: Any) -> None:
    with side_of("torch").CheckpointManager(tmp_path / "mine") as manager:
        manager._open()
    assert parity("verify", tmp_path / "mine")[0] == 5
    assert parity("path", tmp_path / "mine", "latest")[0] == 2


def test_one_that_is_removed_while_it_is_verified_is_not_damaged(
    mine: Path, parity: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from parity.cli import checkpoints

    def verified(path: Path, expected: Any) -> Any:
        if path.name == "20":
            remove_tree(path)
        return verify(path, expected)

    monkeypatch.setattr(checkpoints, "verify", verified)
    code, out, _ = parity("verify", mine)
    assert "gone       " in out
    assert "removed or replaced while it was read" in out
    assert "damaged" not in out
    assert code == 1, "best.json names it"


def test_parameters_alone_of_a_manager_are_unknown(mine: Path, parity: Any) -> None:
    code, _, err = parity("export", mine, "best", mine.parent / "out", "--only", "params")
    assert code == 2
    assert "which item of a manager's checkpoint is the model is unknown" in err
    assert not (mine.parent / "out").exists()
