"""Drafts of conversions: a dead process's are removed by the next one, a living one's never, and one writer wins."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from parity.cli import main
from parity.convert.drafts import draft_of
from parity.errors import CheckpointError

pytestmark = pytest.mark.takes_seconds

HOLD = """
import sys
from pathlib import Path
from parity.convert.drafts import draft_of
with draft_of(Path(sys.argv[1])) as draft:
    draft.path.mkdir()
    (draft.path / "part").write_text("some bytes")
    print("ready", flush=True)
    sys.stdin.read()
"""


def holder(target: Path) -> subprocess.Popen[str]:
    """Start a process that writes a draft and waits."""
    words = [sys.executable, "-c", HOLD, str(target)]
    child = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    assert child.stdout.readline() == "ready\n"
    return child


@pytest.fixture
def source(tmp_path: Path) -> Path:
    torch.save({"w": torch.randn(4)}, tmp_path / "a.pt")
    return tmp_path / "a.pt"


def names(path: Path) -> list[str]:
    return sorted(one.name for one in path.iterdir())


def test_the_next_conversion_removes_drafts_of_killed_ones_and_no_other(source: Path) -> None:
    home = source.parent
    (home / ".mine.7.draft").mkdir()
    (home / ".mine.7.draft" / "thesis.tex").write_text("mine")
    (home / ".note.8.draft").write_text("mine")
    dead, alive = holder(home / "dead"), holder(home / "alive")
    try:
        dead.kill()
        dead.wait()
        assert f".dead.{dead.pid}.draft" in names(home)
        assert main(["convert", str(source), str(home / "out.pt"), "--to", "torch.save"]) == 0
        kept = [f".alive.{alive.pid}.draft", ".mine.7.draft", ".note.8.draft"]
        assert names(home) == sorted([*kept, ".out.pt.seal.json", "a.pt", "out.pt"])
        assert (home / kept[0] / "content" / "part").read_text() == "some bytes"
    finally:
        for child in (dead, alive):
            child.communicate()
    assert f".alive.{alive.pid}.draft" not in names(home)


def test_a_target_that_another_process_writes_is_refused_in_one_line(
    source: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target = source.with_name("out.pt")
    other = holder(target)
    try:
        assert main(["convert", str(source), str(target), "--to", "torch.save"]) == 2
        said = capsys.readouterr().err
        assert f"is being written by another conversion (process {other.pid})" in said
        assert said.count("\n") == 1
        other.kill()
        other.wait()
        assert main(["convert", str(source), str(target), "--to", "torch.save"]) == 0
    finally:
        other.communicate()
    assert names(source.parent) == [".out.pt.seal.json", "a.pt", "out.pt"]


@pytest.mark.parametrize("to", ["safetensors", pytest.param("dcp", marks=pytest.mark.soak)])
def test_of_five_conversions_to_one_path_one_wins(tmp_path: Path, to: str) -> None:
    torch.save({"w": torch.randn(2_000_000)}, tmp_path / "a.pt")
    words = [sys.executable, "-m", "parity", "convert", str(tmp_path / "a.pt"), str(tmp_path / "out"), "--to", to]
    children = [
        subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) for _ in range(5)
    ]
    said = [child.communicate()[1] for child in children]
    assert sorted(child.returncode for child in children) == [0, 2, 2, 2, 2], said
    refused = [text for child, text in zip(children, said, strict=True) if child.returncode == 2]
    assert all(text.count("\n") == 1 and "error: " in text for text in refused)
    assert main(["verify", str(tmp_path / "out")]) == 0
    assert {one for one in names(tmp_path) if one.endswith("draft")} == set()


def test_a_target_that_appears_meanwhile_is_not_replaced(source: Path) -> None:
    target = source.with_name("out.pt")
    with draft_of(target) as draft:
        draft.path.write_text("ours")
        target.write_text("theirs")
        with pytest.raises(CheckpointError, match="exists already"), draft.turn():
            os.rename(draft.path, target)
    assert target.read_text() == "theirs"
    assert names(source.parent) == ["a.pt", "out.pt"]
