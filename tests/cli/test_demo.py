"""`parity demo`: a clean loop holds, its bug is named, and what it writes is a trainer that can be changed."""

from pathlib import Path

import pytest

from parity.cli.main import main


@pytest.mark.takes_seconds
def test_it_shows_a_green_and_a_red_verdict_with_what_was_lost(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["demo"]) == 0
    out = capsys.readouterr().out
    green, red = out.index("resumes exactly: train"), out.index("resume is broken: train")
    assert out.index("def train(") < green < red < out.index("where     velocity, at the resume")


@pytest.mark.takes_seconds
def test_what_it_writes_is_judged_by_a_test_of_ones_own(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    import parity

    file = tmp_path / "written_by_the_demo.py"
    assert main(["demo", "--write", str(file)]) == 0
    assert f"wrote {file}" in capsys.readouterr().out
    monkeypatch.syspath_prepend(tmp_path)
    from written_by_the_demo import STEPS, train  # type: ignore[import-not-found]

    assert parity.resumes(train, steps=STEPS, mode="inline").verdict == "holds"
    file.write_text(file.read_text().replace("velocity=velocity, step", "velocity=0 * velocity, step"))
    monkeypatch.delitem(__import__("sys").modules, "written_by_the_demo")
    from written_by_the_demo import train as forgetful  # type: ignore[import-not-found]

    assert parity.resumes(forgetful, steps=STEPS, mode="inline").verdict == "broken"


def test_a_file_that_is_there_is_left_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "mine.py"
    file.write_text("mine")
    assert main(["demo", "--write", str(file)]) == 2
    assert file.read_text() == "mine"
    assert "exists already" in capsys.readouterr().err
