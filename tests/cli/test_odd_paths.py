"""Paths that no checkpoint can have, names that would steer a terminal, and directories that are one checkpoint."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from parity.cli import main

COMMANDS = (["inspect"], ["verify"], ["seal"], ["convert", "--to", "torch"], ["compare"], ["path"])


def words(command: list[str], path: Path) -> list[str]:
    more = {"convert": ["out"], "compare": [str(path)], "path": ["best"]}.get(command[0], [])
    return [command[0], str(path), *more, *command[1:]]


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command[0])
@pytest.mark.parametrize("kind", ["loop", "long"])
def test_a_path_that_cannot_be_is_one_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], command: list[str], kind: str
) -> None:
    path = tmp_path / ("loop" if kind == "loop" else "a" * 300)
    if kind == "loop":
        path.symlink_to("loop")
    assert main(words(command, path)) == 2
    shown = capsys.readouterr()
    assert shown.err.startswith("parity: error: ")
    assert "Traceback" not in shown.err


def test_a_name_of_a_file_steers_no_terminal(tmp_path: Path) -> None:
    (tmp_path / "\x1b[31mred").write_text("x")
    command = [sys.executable, "-m", "parity", "inspect", str(tmp_path / "\x1b[31mred")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "\x1b" not in done.stderr
    assert r"\x1b[31mred" in done.stderr


def save_accelerate(folder: Path) -> None:
    folder.mkdir()
    save_file({"w": torch.ones(2)}, folder / "model.safetensors")
    torch.save({"state": {}, "param_groups": []}, folder / "optimizer.bin")
    torch.save({"step": 3}, folder / "random_states_0.pkl")


def test_the_files_of_a_checkpoint_are_no_checkpoints_of_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    save_accelerate(tmp_path / "x")
    assert main(["path", str(tmp_path / "x"), "latest", "--unread"]) == 2
    shown = capsys.readouterr()
    assert (shown.out, "is one checkpoint" in shown.err) == ("", True)


def test_the_checkpoints_within_a_folder_of_a_model_are_found(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """As the Trainer leaves it: the model at last, and the steps below."""
    save_file({"w": torch.ones(2)}, tmp_path / "model.safetensors")
    (tmp_path / "config.json").write_text("{}")
    for step in (5, 10):
        save_accelerate(tmp_path / f"checkpoint-{step}")
        (tmp_path / f"checkpoint-{step}" / "trainer_state.json").write_text(json.dumps({"global_step": step}))
    assert main(["path", str(tmp_path), "latest", "--unread"]) == 0
    assert capsys.readouterr().out.strip() == str(tmp_path / "checkpoint-10")
