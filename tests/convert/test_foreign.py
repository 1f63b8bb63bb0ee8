"""`parity verify` and `parity path` of other tools' checkpoints: what is known, unproven or damaged."""

from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from parity.cli import main


def test_verify_says_what_was_checked_and_what_is_unknown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    torch.save({"w": torch.arange(64.0)}, tmp_path / "a.pt")
    assert main(["verify", str(tmp_path / "a.pt")]) == 4
    shown = capsys.readouterr().out
    assert "unverified" in shown
    assert "the CRC-32 of every record fits" in shown
    assert "unknown: whether the directory of the archive" in shown
    save_file({"w": torch.ones(3)}, tmp_path / "m.safetensors")
    assert main(["verify", str(tmp_path / "m.safetensors")]) == 4
    assert "no checksum to compare with" in capsys.readouterr().out


def test_verify_finds_a_flipped_bit_and_names_the_record(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "a.pt"
    torch.save({"w": torch.arange(64.0)}, path)
    data = bytearray(path.read_bytes())
    data[data.index(torch.arange(64.0).numpy().tobytes()) + 9] ^= 4
    path.write_bytes(data)
    assert main(["verify", str(path)]) == 1
    assert "data/0: does not fit its CRC-32" in capsys.readouterr().out


def test_verify_of_nothing_and_of_a_truncated_file_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["verify", str(tmp_path / "gone.pt")]) == 2
    torch.save({"w": torch.ones(900)}, tmp_path / "a.pt")
    (tmp_path / "a.pt").write_bytes((tmp_path / "a.pt").read_bytes()[:-50])
    assert main(["verify", str(tmp_path / "a.pt")]) == 2
    assert "truncated" in capsys.readouterr().err


def filled(tmp_path: Path, *names: str) -> Path:
    for name in names:
        torch.save({"w": torch.ones(1)}, tmp_path / name)
    return tmp_path


def path_of(folder: Path, which: str, capsys: pytest.CaptureFixture[str]) -> tuple[int, str, str]:
    code = main(["path", str(folder), which])
    shown = capsys.readouterr()
    return code, shown.out.strip().rpartition("/")[2], shown.err


@pytest.mark.parametrize(
    ("names", "latest"),
    [
        (["step_9.pt", "step_100.pt", "step_20.pt"], "step_100.pt"),
        (["epoch=1-step=900.ckpt", "epoch=2-step=1800.ckpt"], "epoch=2-step=1800.ckpt"),
        (["model_3.pt", "model_12.pt", "final.pt"], "model_12.pt"),
    ],
)
def test_the_latest_has_the_largest_number(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], names: list[str], latest: str
) -> None:
    filled(tmp_path, *names)
    (tmp_path / "step_999.pt.tmp").write_bytes((tmp_path / names[0]).read_bytes())
    code, found, said = path_of(tmp_path, "latest", capsys)
    assert (code, found) == (0, latest)
    assert "that it is whole is unknown" in said


def test_two_of_the_largest_number_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    filled(tmp_path, "a_5.pt", "b_5.pt", "c_4.pt")
    code, _, said = path_of(tmp_path, "latest", capsys)
    assert code == 2
    assert "names 2 of them: a_5.pt, b_5.pt" in said
    assert path_of(tmp_path, "4", capsys)[:2] == (0, "c_4.pt")
    assert "7 is not among 4, 5" in path_of(tmp_path, "7", capsys)[2]


def test_the_best_is_what_lightning_recorded(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    filled(tmp_path, "epoch=0-step=10.ckpt")
    callbacks = {"ModelCheckpoint{'monitor': 'loss'}": {"best_model_path": "/elsewhere/epoch=0-step=10.ckpt"}}
    torch.save({"callbacks": callbacks, "state_dict": {}}, tmp_path / "epoch=1-step=20.ckpt")
    code, found, said = path_of(tmp_path, "best", capsys)
    assert (code, found) == (0, "epoch=0-step=10.ckpt")
    assert "best_model_path in epoch=1-step=20.ckpt" in said
    (tmp_path / "epoch=0-step=10.ckpt").unlink()
    assert "it is not in" in path_of(tmp_path, "best", capsys)[2]


def test_a_best_that_nobody_recorded_is_unknown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    filled(tmp_path, "step_1.pt", "step_2.pt")
    code, _, said = path_of(tmp_path, "best", capsys)
    assert code == 2
    assert "which checkpoint is the best is unknown" in said


@pytest.mark.parametrize(
    ("content", "message"),
    [("../evil", "no directory beside it"), ("global_step9", "which is not there"), ("", "no directory beside it")],
)
def test_a_pointer_of_deepspeed_is_followed_and_checked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], content: str, message: str
) -> None:
    filled(tmp_path, "step_3.pt")
    (tmp_path / "latest").write_text(content)
    code, _, said = path_of(tmp_path, "latest", capsys)
    assert code == 2
    assert message in said
    (tmp_path / "latest").write_text("step_3.pt\n")
    assert path_of(tmp_path, "latest", capsys)[:2] == (0, "step_3.pt")


def test_nothing_there_is_no_success(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert path_of(tmp_path / "gone", "latest", capsys)[0] == 2
    assert path_of(tmp_path, "latest", capsys)[0] == 2
    (tmp_path / "notes.txt").write_text("x")
    code, _, said = path_of(tmp_path, "latest", capsys)
    assert code == 2
    assert "no checkpoint with a number in its name; there are notes.txt" in said


def test_a_run_of_ours_that_lost_its_spec_is_not_taken_for_another_tools(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "checkpoints" / "3").mkdir(parents=True)
    code, _, said = path_of(tmp_path, "latest", capsys)
    assert code == 2
    assert "spec.toml" in said
