"""`verify`, `path` and `compare` on checkpoints of other tools in a folder called `checkpoints`."""

from pathlib import Path

import orbax.checkpoint as ocp
import pytest
import torch

import torch_side
from parity.cli import main
from parity.convert import choosing
from tests.support.sealed import flip


@pytest.fixture(params=["checkpoints", "saved"])
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A folder of files, as Lightning's `checkpoints` has them: its name tells nothing."""
    folder = tmp_path / str(request.param)
    folder.mkdir()
    for epoch in (1, 2):
        torch.save({"w": torch.ones(3) * epoch, "step": epoch}, folder / f"epoch={epoch}.ckpt")
    return folder


def test_a_file_of_another_tool_is_verified_wherever_it_lies(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["verify", str(folder / "epoch=1.ckpt")]) == 4
    assert "the CRC-32 of every record fits" in capsys.readouterr().out


def test_each_file_of_a_folder_is_verified_and_the_rest_is_named(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "hparams.yaml").write_text("lr: 1")
    assert main(["seal", str(folder / "epoch=1.ckpt")]) == 0
    capsys.readouterr()
    assert main(["verify", str(folder)]) == 4
    said = capsys.readouterr()
    assert [line.split()[0] for line in said.out.splitlines() if line[0] != " "] == ["whole", "unverified"]
    assert "hparams.yaml" in said.err
    (folder / "epoch=1.ckpt").write_bytes(b"")  # no longer of any format
    assert main(["verify", str(folder)]) == 1
    assert "damaged" in capsys.readouterr().out


def test_path_compares_what_has_a_seal_with_it(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["path", str(folder), "latest"]
    assert main(words) == 0
    assert "it has no seal" in capsys.readouterr().err
    assert main(["seal", str(folder / "epoch=2.ckpt")]) == 0
    assert main(words) == 0
    assert "every byte is as it was sealed" in capsys.readouterr().err
    flip(folder / "epoch=2.ckpt", 300)
    assert main(words) == 2
    said = capsys.readouterr()
    assert not said.out
    assert "epoch=2.ckpt is not what was sealed" in said.err
    assert main([*words, "--unread"]) == 0
    assert "--unread did not compare it" in capsys.readouterr().err


def test_steps_of_orbax_are_read_wherever_they_lie(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for step in (1, 2):
        ocp.PyTreeCheckpointer().save(tmp_path / "checkpoints" / str(step), {"w": torch.ones(3).numpy() * step})
    first, second = (str(tmp_path / "checkpoints" / name) for name in "12")
    assert main(["compare", first, first]) == 0
    assert main(["compare", first, second]) == 1
    assert main(["verify", first]) == 4
    assert "the form of every chunk fits" in capsys.readouterr().out


def test_in_a_run_of_ours_an_unsealed_checkpoint_stays_unverified(tmp_path: Path) -> None:
    ocp.PyTreeCheckpointer().save(tmp_path / "checkpoints" / "1", {"w": torch.ones(3).numpy()})
    (tmp_path / "latest.json").write_text("{}")
    step = str(tmp_path / "checkpoints" / "1")
    assert main(["compare", step, step]) == 4


def test_a_link_to_a_sealed_directory_is_followed_unless_it_lies_in_a_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ocp.PyTreeCheckpointer().save(tmp_path / "ckpt_5", {"w": torch.ones(3).numpy()})
    assert main(["seal", str(tmp_path / "ckpt_5")]) == 0
    (tmp_path / "latest").symlink_to("ckpt_5")
    link = str(tmp_path / "latest")
    assert main(["verify", link]) == 0
    assert main(["inspect", link]) == 0
    assert main(["compare", link, str(tmp_path / "ckpt_5")]) == 0
    assert main(["convert", link, str(tmp_path / "o"), "--to", "orbax"]) == 0
    steps = tmp_path / "run" / "checkpoints"
    steps.mkdir(parents=True)
    (tmp_path / "run" / "latest.json").write_text("{}")
    (steps / "5").symlink_to(tmp_path / "ckpt_5")
    capsys.readouterr()
    assert main(["verify", str(steps / "5")]) == 1
    assert "is a link" in capsys.readouterr().out


def versions_of_lightning(folder: Path, *versions: int) -> Path:
    """Make what Lightning's logger makes: a folder for each run, whose checkpoints lie in `checkpoints`."""
    for version in versions:
        held = folder / f"version_{version}" / "checkpoints"
        held.mkdir(parents=True)
        (held.parent / "hparams.yaml").write_text("lr: 1")
        torch.save({"w": torch.ones(3), "step": 3}, held / "epoch=1-step=3.ckpt")
    return folder


@pytest.mark.parametrize("which", ["latest", "best", "3"])
def test_above_the_folders_of_checkpoints_the_error_names_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], which: str
) -> None:
    logs = versions_of_lightning(tmp_path / "logs", 0, 1)
    assert main(["path", str(logs), which]) == 2
    said = capsys.readouterr().err
    folders = [str(logs / f"version_{number}" / "checkpoints") for number in (0, 1)]
    assert f"give one of the folders that hold them: {', '.join(folders)}" in " ".join(said.split())
    assert main(["path", str(logs / "version_0"), which]) == 2
    said = capsys.readouterr().err
    assert f"give the folder that holds them: {folders[0]}" in " ".join(said.split())
    assert "spec.toml" not in said
    if which == "latest":
        assert main(["path", folders[0], which]) == 0
    assert main(["verify", str(logs)]) == 5
    assert folders[0] in capsys.readouterr().err
    assert main(["verify", str(logs / "version_0")]) == 5


def test_what_is_left_of_a_run_is_no_folder_of_another_tool(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its seals say whose they are, whatever else went."""
    torch_side.save(tmp_path / "checkpoints" / "3", {"w": torch.ones(3)})
    assert main(["path", str(tmp_path), "latest"]) == 2
    assert "spec.toml" in capsys.readouterr().err


def test_folders_without_checkpoints_below_get_no_advice(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "a" / "notes.txt").write_text("none")
    assert main(["path", str(tmp_path), "latest"]) == 2
    assert "give" not in capsys.readouterr().err


@pytest.mark.parametrize("command", ["inspect", "convert"])
def test_a_folder_that_is_no_checkpoint_names_those_in_it(
    folder: Path, capsys: pytest.CaptureFixture[str], command: str
) -> None:
    (folder / "cfg.json").write_text("{}")
    words = [command, str(folder), *([str(folder.parent / "o"), "--to", "orbax"] if command == "convert" else [])]
    both = f"{folder / 'epoch=1.ckpt'}, {folder / 'epoch=2.ckpt'}"
    assert main(words) == 2
    assert f"is no checkpoint itself; give one of those in it: {both}" in " ".join(capsys.readouterr().err.split())
    (folder / "epoch=1.ckpt").unlink()
    assert main(words) == 2
    assert "give the one in it" in " ".join(capsys.readouterr().err.split())
    (folder / "epoch=2.ckpt").unlink()
    assert main(words) == 2
    assert "known are" in " ".join(capsys.readouterr().err.split())


def test_of_a_thousand_files_only_those_that_may_be_meant_are_looked_into(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    torch.save({"w": torch.ones(3)}, tmp_path / "step_1.pt")
    content = (tmp_path / "step_1.pt").read_bytes()
    for step in range(2, 1001):
        (tmp_path / f"step_{step}.pt").write_bytes(content)
    (tmp_path / "step_1000.pt").write_bytes(b"half of it")
    looked: list[Path] = []
    real = choosing.is_checkpoint
    monkeypatch.setattr(choosing, "is_checkpoint", lambda path: looked.append(path) or real(path))
    for which, step in (("latest", 999), ("77", 77)):
        assert main(["path", str(tmp_path), which]) == 0
        assert capsys.readouterr().out.strip() == str(tmp_path / f"step_{step}.pt")
    assert len(looked) < 10
    assert main(["path", str(tmp_path), "2000"]) == 2
    assert "number 2000 is not among 992, 993" in " ".join(capsys.readouterr().err.split())


def test_where_none_is_a_checkpoint_each_is_looked_into_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for step in range(20):
        (tmp_path / f"step_{step}").mkdir()
    looked: list[Path] = []
    real = choosing.is_checkpoint
    monkeypatch.setattr(choosing, "is_checkpoint", lambda path: looked.append(path) or real(path))
    assert main(["path", str(tmp_path), "latest"]) == 2
    assert "holds no checkpoint with a number in its name" in capsys.readouterr().err
    assert sorted(one.name for one in looked if one != tmp_path) == sorted(one.name for one in tmp_path.iterdir())
