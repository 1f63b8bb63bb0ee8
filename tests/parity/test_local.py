"""Runs are kept on local file systems: a URL is refused, in a command as in Python; a colon elsewhere is a name."""

from pathlib import Path

import pytest

from parity.cli import main
from parity.errors import RunDirectoryError
from parity.runs import RunDirectory, train
from parity.spec import preset
from parity.storage import local_path

URLS = ["s3://bucket/run", "gs://b/r", "file:///tmp/run", "hf://u/m", "S3://B/r", "abfs+x://a", "s3:/bucket/run"]
LOCAL = [
    "run",
    "/tmp/run",
    "C:/runs/a",
    "c:\\runs\\a",
    "runs/lr:0.1/a",
    "runs/s3:/a",
    "lr:0.1/run",
    "a:b",
    "./s3",
    "s3",
]


@pytest.mark.parametrize("url", URLS)
@pytest.mark.parametrize("kind", [str, Path])
def test_a_url_is_refused_and_named_even_as_a_path(url: str, kind: type) -> None:
    with pytest.raises(
        RunDirectoryError, match=r"^[\w+]+:/.* is a URL \([\w+]+\), not a local path; remote storage is"
    ):
        local_path(kind(url))


@pytest.mark.parametrize("name", LOCAL)
def test_a_colon_elsewhere_is_part_of_a_name(name: str) -> None:
    assert local_path(name) == Path(name)


def test_neither_a_run_directory_nor_training_takes_a_url(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for directory in (Path("s3://bucket/run"), "s3://bucket/run"):
        with pytest.raises(RunDirectoryError, match=r"^s3://?bucket/run is a URL \(s3\), not a local path"):
            RunDirectory(directory)  # type: ignore[arg-type]
        with pytest.raises(RunDirectoryError, match=r"^s3://?bucket/run is a URL \(s3\), not a local path"):
            train(None, "torch", preset("mlp-digits"), directory)  # type: ignore[arg-type]
    assert list(tmp_path.iterdir()) == []


URL = "s3://bucket/x.toml"
OTHER = "hf://bucket/x"
"""A URL that is of no store that is known, for what takes those of stores (tests/remote)."""
COMMANDS: list[list[str]] = [
    ["train", "--side", "torch", "--spec", "mlp-digits", "--dir", OTHER],
    ["train", "--side", "jax", "--spec", "mlp-digits", "--dir", "abfs://bucket/run"],
    ["train", "--side", "torch", "--spec", URL, "--dir", "run"],
    ["train", "--side", "torch", "--spec", "gpt-text", "--dir", "run", "--set", f"data.path={URL}"],
    ["verify", OTHER],
    ["verify", ".", "--against", URL],
    ["path", OTHER, "latest"],
    ["export", OTHER, "latest", "copy"],
    ["export", ".", "latest", URL],
    ["metric", URL, "1", "0.5"],
    ["check", "--report", URL],
    ["check", "--spec", URL],
    ["report", URL],
    ["report", "r.json", "--html", URL],
    ["report", "r.json", "--markdown", URL],
    ["report", "--compare", "r.json", URL],
    ["policy", "simulate", URL],
    ["bench", "run", "--side", "torch", "-o", URL],
    ["bench", "run", "--side", "torch", "--spec", "mlp-digits", "--output", URL],
]


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_every_path_of_every_command_refuses_a_url_in_one_line_and_writes_nothing(
    command: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    try:
        code = main(command)
    except SystemExit as stop:  # how argparse refuses
        code = stop.code  # type: ignore[assignment]
    assert code == 2
    out, err = capsys.readouterr()
    assert out == ""
    last = err.splitlines()[-1]
    assert "error: " in last
    assert "://bucket/" in last
    assert "is a URL (" in last
    assert list(tmp_path.iterdir()) == []
