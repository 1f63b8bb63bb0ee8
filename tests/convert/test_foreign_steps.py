"""Steps and items that lost files: nothing that cannot be read is called whole, and each step is looked at."""

import shutil
from pathlib import Path

import numpy as np
import pytest

from parity.cli.main import main

TREE = {"params": {"w": np.arange(6.0).reshape(2, 3)}, "step": 3}


@pytest.fixture
def manager(tmp_path: Path) -> Path:
    """Return a directory of three steps as Orbax's manager leaves it."""
    import orbax.checkpoint as ocp

    with ocp.CheckpointManager(tmp_path / "m", options=ocp.CheckpointManagerOptions(max_to_keep=9)) as made:
        for step in (1, 2, 10):
            made.save(step, args=ocp.args.StandardSave(TREE))
        made.wait_until_finished()
    return tmp_path / "m"


@pytest.mark.parametrize("command", ["inspect", "verify"])
@pytest.mark.parametrize("where", ["single", "step", "composite"])
def test_an_item_without_its_description_is_not_whole(
    tmp_path: Path, manager: Path, capsys: pytest.CaptureFixture[str], command: str, where: str
) -> None:
    import orbax.checkpoint as ocp

    if where == "single":
        path = tmp_path / "single"
        ocp.PyTreeCheckpointer().save(path, TREE)
        (path / "_METADATA").unlink()
    else:
        path = manager / "10"
        (path / "default" / "_METADATA").unlink()
        if where == "composite":
            (path / "extra").mkdir()
            (path / "extra" / "metadata").write_text('{"epoch": 1}')
    assert main([command, str(path)]) == 2
    said = " ".join(capsys.readouterr().err.split())
    assert "has no _METADATA, which names its arrays: it is not whole" in said
    assert main(["convert", str(path), str(tmp_path / "b.msgpack"), "--to", "flax-msgpack"]) == 2


def test_a_checkpoint_of_which_nothing_can_be_read_is_no_success(
    manager: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (manager / "10" / "_CHECKPOINT_METADATA").write_text("{}")
    shutil.rmtree(manager / "10" / "default")
    (manager / "10" / "iterator").mkdir()
    (manager / "10" / "iterator" / "process_0-of-1.bin").write_bytes(b"??")
    assert main(["inspect", str(manager / "10")]) == 5
    assert main(["verify", str(manager / "10")]) == 5
    assert "nothing was verified" in capsys.readouterr().err


@pytest.mark.parametrize("lost", ["2/default/_METADATA", "2/_CHECKPOINT_METADATA", "1/default/manifest.ocdbt"])
def test_each_step_is_verified_and_the_damaged_one_is_named(
    manager: Path, capsys: pytest.CaptureFixture[str], lost: str
) -> None:
    assert main(["verify", str(manager)]) == 4
    said = capsys.readouterr().out
    assert [said.count(f"unverified {manager}/{step}:") for step in (1, 2, 10)] == [1, 1, 1]
    (manager / lost).unlink()
    assert main(["verify", str(manager)]) == 1
    said = capsys.readouterr().out
    assert f"damaged    {manager}/{lost[0]}\n" in said
    assert said.count("unverified") == 2


def test_steps_with_a_seal_are_compared_with_it(
    manager: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["convert", str(manager / "2"), str(tmp_path / "two"), "--to", "orbax"]) == 0
    shutil.rmtree(manager / "2")
    (tmp_path / "two").rename(manager / "2")
    assert main(["verify", str(manager)]) == 4
    assert f"whole      {manager}/2:" in capsys.readouterr().out
    with (manager / "2" / "_METADATA").open("a") as file:
        file.write(" ")
    assert main(["verify", str(manager)]) == 1


def test_each_file_of_a_directory_of_flax_is_verified(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from flax.serialization import to_bytes

    (tmp_path / "f").mkdir()
    for step in (1, 2):
        (tmp_path / "f" / f"checkpoint_{step}").write_bytes(to_bytes(TREE))
    assert main(["verify", str(tmp_path / "f")]) == 4
    file = tmp_path / "f" / "checkpoint_1"
    file.write_bytes(file.read_bytes()[:-9])
    assert main(["verify", str(tmp_path / "f")]) == 1
    assert f"damaged    {file}" in capsys.readouterr().out
