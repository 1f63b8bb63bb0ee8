"""A run with `save.remote`: copied while it trains, continued on another machine, never delayed, never by two."""

from __future__ import annotations

import json
import shutil
import threading
from pathlib import Path
from typing import Any

import pytest

from parity.checkpoints.remote import HEAD, Lease, parse_head, read_head, verify_remote
from parity.cli import main
from parity.runs import copies
from parity.storage.stores import open_store, parse_url, require_safe
from tests.remote.conftest import lead_to
from tests.remote.mutants import IgnoresIfMatch
from tests.remote.server import Refusal, Request, Server, every
from tests.support.sealed import flip

URL = "s3://bucket/runs/a"


def words(directory: Path, steps: int = 30, *more: str, url: str = URL) -> list[str]:
    settings = ["batch=16", "execution.chunk=5", "save.every=10", "validate_every=10", f"save.remote={url}"]
    sets = [word for one in settings for word in ("--set", one)]
    spec = ["train", "--side", "torch", "--spec", "linear-regression", "--dir", str(directory)]
    return [*spec, *sets, "--steps", str(steps), *more]


def rows(url: str = URL) -> list[int]:
    head = read_head(open_store(url))
    assert head is not None
    return list(head.checkpoints)


def all_whole(url: str = URL) -> bool:
    store = open_store(url)
    head = read_head(store)
    assert head is not None
    return all(verify_remote(store, row).whole for row in head.checkpoints.values())


def records(directory: Path) -> list[Any]:
    return [json.loads(line)["loss"] for line in (directory / "steps.jsonl").read_text().splitlines()]


@pytest.fixture(autouse=True)
def quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(copies, "POLL_SECONDS", 0.02)
    monkeypatch.setattr(copies, "PATIENCE_SECONDS", 1.0)
    monkeypatch.setattr("parity.checkpoints.remote.opening.require_safe", lambda store: None)


@pytest.mark.parametrize("scheme", ["s3", "gs"])
def test_a_run_goes_on_where_nothing_of_it_is_and_ends_as_one_that_nothing_stopped(
    scheme: str, server: Server, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    url = URL.replace("s3", scheme)
    assert main(words(tmp_path / "one", 30, url=url)) == 0
    out = capsys.readouterr().out
    assert f"copied step 30 to {url}" in out
    assert rows(url) == [10, 20, 30]
    assert all_whole(url)
    assert main(words(tmp_path / "two", 60, url=url)) == 0
    out = capsys.readouterr().out
    assert f"fetched step 30 from {url}" in out
    assert "resumed from step 30 (latest)" in out
    assert rows(url) == sorted(int(one.name) for one in (tmp_path / "two" / "checkpoints").iterdir())
    assert all_whole(url)
    assert main(["verify", str(tmp_path / "two")]) == 0
    assert main(words(tmp_path / "whole", 60, url="")) == 0
    assert records(tmp_path / "two") == records(tmp_path / "whole")
    kept = {row.folder for row in read_head(open_store(url)).checkpoints.values()}  # type: ignore[union-attr]
    below = parse_url(url).key + "/"
    folders = {"/".join(key.removeprefix(below).split("/")[:3]) for key in server.objects}
    assert folders == kept | {HEAD}, "what the policy does not keep is gone"


def test_nothing_of_a_credential_is_written(
    server: Server, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(words(tmp_path / "one", 10)) == 0
    server.refusal = Refusal(403, "InvalidAccessKeyId", "<AWSAccessKeyId>AKIASECRETNAME</AWSAccessKeyId>")
    assert main(words(tmp_path / "two", 10)) == 2
    told = capsys.readouterr()
    written = [file.read_bytes() for file in tmp_path.rglob("*") if file.is_file()]
    written += [*server.objects.values(), told.out.encode(), told.err.encode()]
    for secret in (b"AKIASECRETNAME", b"the-secret-itself", b"the-token-itself"):
        assert not [data for data in written if secret in data]


@pytest.mark.parametrize("damaged", ["files/state.pt", "records/steps.jsonl", "seal.json"])
def test_a_damaged_newest_is_passed_over_and_said(
    damaged: str, server: Server, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(words(tmp_path / "one", 30)) == 0
    key = next(key for key in server.objects if "/checkpoints/30/" in key and key.endswith(damaged))
    data = bytearray(server.objects[key])
    data[len(data) // 2] ^= 1
    server.memory.write("bucket", key, bytes(data))
    assert main(words(tmp_path / "two", 40, "--resume", "30")) == 2
    assert "not what was sealed" in (said := capsys.readouterr().err) or "not hold the bytes" in said
    assert main(words(tmp_path / "two", 40)) == 0
    out = capsys.readouterr().out
    assert "step 30 is damaged there, and the one before is taken" in out
    assert "resumed from step 20" in out


def test_a_store_that_is_gone_meanwhile_delays_nothing_and_is_caught_up_with(
    server: Server, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(copies, "PATIENCE_SECONDS", 20.0)
    gone = threading.Event()

    def while_gone(request: Request) -> str | None:
        if "/checkpoints/10/" in request.key and not gone.is_set():
            gone.set()
            threading.Timer(1.0, back.set).start()
        return "503" if gone.is_set() and not back.is_set() else None

    back = threading.Event()
    server.trouble = while_gone
    assert main(words(tmp_path / "one", 30)) == 0
    out = capsys.readouterr().out
    assert "training continues, and checkpoints are copied later" in out
    assert "the store answers again" in out
    assert rows() == [10, 20, 30]
    assert all_whole()


def test_a_store_that_stays_away_is_a_failure_at_the_end_and_the_next_start_copies(
    server: Server, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(words(tmp_path / "one", 10)) == 0
    server.trouble = every(1, "503")
    assert main(words(tmp_path / "one", 30)) == 3
    assert "the next start of the run copies them" in capsys.readouterr().err
    assert main(["verify", str(tmp_path / "one")]) == 0
    assert main(words(tmp_path / "new", 30)) == 3, "whether there is something to continue from is unknown"
    assert not (tmp_path / "new").exists()
    server.trouble = lambda request: None
    assert main(words(tmp_path / "one", 40)) == 0
    assert rows() == [20, 30, 40]


@pytest.mark.parametrize("fault", ["500", "503", "429", "cut", "lost"])
def test_every_seventh_request_fails_and_nothing_is_lost(fault: str, server: Server, tmp_path: Path) -> None:
    server.trouble = every(7, fault) if fault != "lost" else every(11, fault)
    try:
        code = main(words(tmp_path / "one", 30))
    finally:
        server.trouble = lambda request: None
    assert main(words(tmp_path / "one", 30)) == 0 if code else True
    assert main(words(tmp_path / "one", 40)) == 0
    assert rows() == [20, 30, 40]
    assert all_whole()


def test_a_store_is_asked_once_and_refused_where_it_keeps_no_condition(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("parity.checkpoints.remote.opening.require_safe", require_safe)
    with Server(IgnoresIfMatch()) as server:
        lead_to(server, monkeypatch, tmp_path)
        assert main(words(tmp_path / "one", 10)) == 2
        assert "this store does not keep what checkpoints need" in capsys.readouterr().err
        assert (server.objects, (tmp_path / "one").exists()) == ({}, False)
        assert main(words(tmp_path / "one", 10, "--remote-unsafe")) == 0
        assert "without one writer for each prefix, as was asked" in capsys.readouterr().out
        assert all_whole()
    with Server() as server:
        lead_to(server, monkeypatch, tmp_path)
        assert main(words(tmp_path / "two", 10)) == 0
        asked = [request for request in server.requests if "/probe-" in request.key]
        assert main(words(tmp_path / "two", 20)) == 0
        assert asked == [request for request in server.requests if "/probe-" in request.key]
        assert len(asked) > 50


def test_two_processes_on_one_prefix_are_refused_by_name(
    server: Server, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = open_store(URL)
    lease = Lease.take(store, "another machine")
    assert main(words(tmp_path / "one", 10)) == 2
    err = capsys.readouterr().err
    assert f"{URL} has a writer already: process " in err
    assert "which renewed its lease" in err
    lease.close()
    assert main(words(tmp_path / "one", 10)) == 0


def test_a_run_whose_lease_was_taken_stops_and_names_the_owner(
    server: Server, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The other one takes over as if this one had not renewed: its swap is the first thing to fail here."""

    def take_over(request: Request) -> None:
        if "/checkpoints/10/" in request.key and request.method == "PUT" and not taken:
            taken.append(1)
            key = f"{parse_url(URL).key}/{HEAD}"
            text = server.objects[key].decode()
            head = parse_head(text.encode(), parse_url(URL))
            other = type(head)(**{**vars(head), "epoch": head.epoch + 1, "owner": _other(head.owner)})
            from parity.checkpoints.remote import head_text

            server.memory.write("bucket", key, head_text(other).encode())

    taken: list[int] = []
    server.trouble = take_over  # type: ignore[assignment]
    assert main(words(tmp_path / "one", 200)) == 3
    err = capsys.readouterr().err
    assert "this process lost the lease (epoch 1)" in err
    assert "process 7 on elsewhere" in err
    assert rows() == []
    assert main(["verify", str(tmp_path / "one")]) == 0
    taken.clear()
    server.memory.buckets["bucket"].clear()
    assert main(words(tmp_path / "two", 200, "--on-error", "continue")) == 3
    assert capsys.readouterr().err.count("this process lost the lease") == 1
    assert main(["verify", str(tmp_path / "two")]) == 0


def _other(owner: Any) -> Any:
    return type(owner)(host="elsewhere", pid=7, since="now", command="parity", token="other")


def test_a_killed_process_is_followed_at_once_in_its_directory_and_later_elsewhere(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(Lease, "close", Lease.stop)  # as if killed: the lease is not given back
    assert main(words(tmp_path / "one", 10)) == 0
    assert main(words(tmp_path / "one", 20)) == 0
    assert main(words(tmp_path / "two", 30)) == 2
    assert "has a writer already" in capsys.readouterr().err
    now = server.memory.now
    monkeypatch.setattr(server.memory, "now", lambda: now() + 100)
    assert main(words(tmp_path / "two", 30)) == 0
    assert main(words(tmp_path / "one", 30)) == 2, "the first machine is behind now, and its lease is gone"


def test_an_older_directory_is_not_continued_beside_newer_copies(
    server: Server, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(words(tmp_path / "one", 20)) == 0
    shutil.copytree(tmp_path / "one", tmp_path / "old")
    assert main(words(tmp_path / "one", 40)) == 0
    capsys.readouterr()
    assert main(words(tmp_path / "old", 50)) == 2
    assert "has step 40, and the newest in" in capsys.readouterr().err
    assert rows() == [20, 30, 40]
    assert main(words(tmp_path / "old", 30, "--resume", "20")) == 0
    assert "given up: 30, 40, later than the step that was resumed from" in capsys.readouterr().out
    assert rows() == [20, 30] or rows() == [10, 20, 30]
    head = read_head(open_store(URL))
    assert head is not None
    assert [row.step for row in head.given_up] == [30, 40]
    assert all_whole()


def test_a_prefix_of_another_run_is_refused(
    server: Server, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(words(tmp_path / "one", 10)) == 0
    assert main(words(tmp_path / "two", 10, "--set", "seed=5")) == 2
    assert "started with another specification" in capsys.readouterr().err
    assert not (tmp_path / "two").exists()
    assert main(words(tmp_path / "two", 10, "--set", "seed=5", url="")) == 0
    assert main(words(tmp_path / "two", 20, "--set", "seed=5")) == 2
    assert "holds another run (other model, data, optimizer or seed)" in capsys.readouterr().err
    assert rows() == [10]


def test_a_damaged_checkpoint_is_not_sent(
    server: Server, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("parity.checkpoints.seal.SMALL", 0)  # as if the file were large: a look does not read it
    assert main(words(tmp_path / "one", 30, url="")) == 0
    flip(tmp_path / "one" / "checkpoints" / "20" / "state.pt", -5)
    assert main(words(tmp_path / "one", 40)) == 3
    assert "step 20 is not copied" in capsys.readouterr().out
    assert 20 not in rows()
    assert all_whole()


def test_the_last_of_a_record_that_is_being_written_is_left_out(tmp_path: Path) -> None:
    for text, expected in (
        ("a\nb\nhalf", "a\nb\n"),
        ("half", ""),
        ("", ""),
        ("a\n", "a\n"),
        ("a\n" + "x" * 9000, "a\n"),
    ):
        (tmp_path / "x").write_text(text)
        copies._cut_last_line(tmp_path / "x")
        assert (tmp_path / "x").read_text() == expected
