"""`parity train --dir URL` on machines that have nothing: the newest or the best is fetched, and the run goes on."""

from __future__ import annotations

from pathlib import Path

import pytest

from parity.checkpoints.remote import read_head
from parity.cli import main
from parity.storage.stores import cache_of, open_store, parse_url
from tests.remote.server import Server
from tests.remote.test_runs import URL, all_whole, quickly, records, rows, words

__all__ = ["quickly"]

HOME = Path("parity", "runs", "s3", "bucket", "runs", "a")


def train(machine: Path, steps: int, *more: str, monkeypatch: pytest.MonkeyPatch) -> int:
    """Train by the URL alone, on a machine with a cache of its own."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(machine))
    return main([URL if word == "RUN" else word for word in words(Path("RUN"), steps, *more, url="")])


@pytest.fixture
def best_is_older(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Train to step 50 on one machine; step 10 is the best, as was measured after it was copied."""
    assert train(tmp_path / "one", 10, monkeypatch=monkeypatch) == 0
    assert main(["metric", str(tmp_path / "one" / HOME), "10", "0.0001"]) == 0
    assert train(tmp_path / "one", 50, monkeypatch=monkeypatch) == 0
    assert rows() == [10, 30, 40, 50]
    return tmp_path / "one" / HOME


def damage(server: Server, step: int) -> None:
    key = next(key for key in server.objects if f"/checkpoints/{step}/" in key and key.endswith("state.pt"))
    data = bytearray(server.objects[key])
    data[-1] ^= 1
    server.memory.write("bucket", key, bytes(data))


def test_a_metric_that_was_measured_later_decides_there_too(
    best_is_older: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    head = read_head(open_store(URL))
    assert head is not None
    assert head.checkpoints[10].metric == 0.0001
    assert head.checkpoints[10].epoch == 1, "it was not removed there and sent again"
    capsys.readouterr()
    for which, step in (("best", 10), ("latest", 50)):
        assert main(["path", URL, which]) == 0
        assert capsys.readouterr().out == f"{URL}/checkpoints/{step}\n"


def test_an_empty_machine_goes_on_from_the_newest(
    best_is_older: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    capsys.readouterr()
    assert train(tmp_path / "two", 60, monkeypatch=monkeypatch) == 0
    out = capsys.readouterr().out
    assert f"fetched step 50 from {URL}" in out
    assert "resumed from step 50 (latest)" in out
    assert rows() == [10, 40, 50, 60]
    assert all_whole()
    assert main(words(tmp_path / "whole", 60, url="")) == 0
    assert records(tmp_path / "two" / HOME) == records(tmp_path / "whole")


def test_an_empty_machine_goes_on_from_the_best_and_gives_up_what_came_later(
    best_is_older: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    capsys.readouterr()
    assert train(tmp_path / "two", 20, "--resume", "best", monkeypatch=monkeypatch) == 0
    out = capsys.readouterr().out
    assert f"fetched step 10 from {URL}" in out
    assert "resumed from step 10 (best)" in out
    assert "given up: 30, 40, 50, later than the step that was resumed from" in out
    assert rows() == [10, 20]
    assert all_whole()
    head = read_head(open_store(URL))
    assert head is not None
    assert [row.step for row in head.given_up] == [30, 40, 50]


def test_where_the_newest_is_damaged_the_one_before_is_taken_and_said(
    best_is_older: Path, server: Server, tmp_path: Path, capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    damage(server, 50)
    damage(server, 40)
    capsys.readouterr()
    assert train(tmp_path / "two", 60, monkeypatch=monkeypatch) == 0
    out = capsys.readouterr().out
    for step in (50, 40):
        assert f"{URL}: step {step} is damaged there, and the one before is taken" in out
    assert f"fetched step 30 from {URL}" in out
    assert "resumed from step 30 (latest)" in out
    assert rows() == [10, 40, 50, 60]
    assert all_whole(), "what was damaged there is replaced by what was trained again"


def test_where_the_best_is_damaged_the_next_best_is_taken_only_when_it_is_asked_for(
    best_is_older: Path, server: Server, tmp_path: Path, capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    damage(server, 10)
    capsys.readouterr()
    assert train(tmp_path / "two", 60, "--resume", "best", monkeypatch=monkeypatch) == 2
    assert "checkpoints/10/" in (err := capsys.readouterr().err)
    assert "is not what was sealed" in err
    assert not (tmp_path / "two" / HOME).exists()
    assert train(tmp_path / "two", 60, "--resume", "best", "--or-next", monkeypatch=monkeypatch) == 0
    out = capsys.readouterr().out
    assert "step 10 is damaged there" in out
    assert "resumed from step 50 (best)" in out


def test_nothing_whole_is_an_error_and_no_new_run(
    best_is_older: Path, server: Server, tmp_path: Path, capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    for step in rows():
        damage(server, step)
    before = {key: data for key, data in server.objects.items() if "/checkpoints/" in key}
    capsys.readouterr()
    assert train(tmp_path / "two", 60, monkeypatch=monkeypatch) == 2
    err = capsys.readouterr().err
    assert "no latest checkpoint" in err
    assert all(f"  {step}: " in err for step in (10, 30, 40, 50)), "each one is named with what is wrong"
    assert {key: data for key, data in server.objects.items() if "/checkpoints/" in key} == before


def test_two_urls_have_two_directories(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    places = {cache_of(parse_url(url)) for url in (URL, URL.replace("s3", "gs"), f"{URL}/b", "s3://other/runs/a")}
    assert len(places) == 4
    assert cache_of(parse_url(URL)) == tmp_path / HOME
