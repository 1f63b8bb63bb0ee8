"""One writer for each prefix: races have one winner, and what was stopped and woken adds no checkpoint."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from parity.checkpoints import FILE
from parity.checkpoints.remote import Lease, clean, drop, read_head, send, sending, verify_remote
from parity.errors import LeaseLostError, LockedError, StoreError
from parity.storage.stores import Objects, open_store
from tests.remote.server import Request, Server
from tests.support.sealed import save


def race(who: int, url: str, barrier: threading.Barrier, won: list[Lease], refused: list[LockedError]) -> None:
    store = open_store(url)
    barrier.wait()
    try:
        won.append(Lease.take(store, f"token {who}"))
    except LockedError as error:
        refused.append(error)


def test_a_hundred_races_for_a_lease_have_one_winner_each(server: Server) -> None:
    """Half of them for a new prefix, half for one whose lease was given back."""
    for number in range(50):
        url = f"s3://bucket/r{number}"
        for round_ in range(2):
            won: list[Lease] = []
            refused: list[LockedError] = []
            barrier = threading.Barrier(2)

            threads = [threading.Thread(target=race, args=(who, url, barrier, won, refused)) for who in range(2)]
            for one in threads:
                one.start()
            for one in threads:
                one.join()
            assert (len(won), len(refused)) == (1, 1), (number, round_)
            assert "process " in refused[0].owner
            won[0].close()


def test_an_expired_lease_is_taken_by_the_clock_of_the_store(store: Objects, server: Server) -> None:
    first = Lease.take(store, "first", seconds=1000)
    with pytest.raises(LockedError, match=r"renewed its lease \d+ s ago; without renewal it ends in"):
        Lease.take(open_store(store.url), "second")
    assert sorted(key.rpartition("/")[2] for key in server.objects) == ["parity-run.json"], "no clock is left"
    now = server.memory.now
    server.memory.now = lambda: now() + 1001  # type: ignore[method-assign]
    second = Lease.take(open_store(store.url), "second")
    assert (first.head.epoch, second.head.epoch) == (1, 2)
    with pytest.raises(LeaseLostError, match=r"lost the lease \(epoch 1\).*to process"):
        first.change(lambda head: head)
    with pytest.raises(LeaseLostError):
        first.require()
    first.stop()
    second.close()


def test_a_lease_that_is_renewed_stays(server: Server) -> None:
    store = open_store("s3://bucket/a")
    lease = Lease.take(store, "first", seconds=2)
    time.sleep(3.2)
    with pytest.raises(LockedError):
        Lease.take(open_store(store.url), "second", seconds=2)
    lease.require()
    lease.close()
    Lease.take(open_store(store.url), "second").close()


def stopped_and_woken(server: Server, home: Path, url: str, after: int) -> None:
    """Stop a writer before one of its requests, let another take over and send, and wake the first."""
    store = open_store(url)
    first = Lease.take(store, "first", seconds=1e6)
    path = save(home / "checkpoints", 10)
    asleep, awake = threading.Event(), threading.Event()
    begun = len(server.requests)
    sent = threading.Thread(target=lambda: send_quietly(first, path, failures), name="sender")
    failures: list[Exception] = []

    def hold(request: Request) -> None:
        if request.number == begun + after:
            asleep.set()
            assert awake.wait(20)

    server.trouble = hold  # type: ignore[assignment]
    sent.start()
    assert asleep.wait(20) or not sent.is_alive()
    server.trouble = lambda request: None
    now = server.memory.now
    server.memory.now = lambda: now() + 2e6  # type: ignore[method-assign]
    second = Lease.take(open_store(url), "second", seconds=1e6)
    other = save(home / "other", 10, saved_at=77.0)
    send(second, other, None, {})
    awake.set()
    sent.join(20)
    assert not sent.is_alive()
    head = read_head(open_store(url))
    assert head is not None
    assert [(row.epoch, row.saved_at) for row in head.checkpoints.values()] == [(2, 77.0)]
    assert verify_remote(open_store(url), head.checkpoints[10]).whole
    assert [type(error) for error in failures] == [LeaseLostError]
    assert "process " in str(failures[0])
    third = Lease.take(open_store(url), "second")
    clean(third)
    assert not [key for key in server.objects if "/10/1/" in key], "what the first left is removed"
    for one in (first, second, third):
        one.stop()


def test_what_a_probe_or_a_clock_left_is_removed_when_it_is_old(server: Server) -> None:
    store, now = open_store("s3://bucket/a"), server.memory.now
    server.memory.now = lambda: now() - 700  # type: ignore[method-assign]
    for key in ("clocks/x", "probe-1/reads/x", "mine/probe-1", "notes.txt"):
        store.put(key, b"old")
    server.memory.now = now  # type: ignore[method-assign]
    store.put("clocks/y", b"new")
    lease = Lease.take(store, "first")
    assert clean(lease) == 2
    assert sorted(store.list()) == ["clocks/y", "mine/probe-1", "notes.txt", "parity-run.json"]
    lease.stop()


def send_quietly(lease: Lease, path: Path, failures: list[Exception]) -> None:
    try:
        send(lease, path, None, {})
    except (StoreError, LeaseLostError) as error:
        failures.append(error)


@pytest.mark.parametrize("after", [1, 4, 8, 9])
def test_what_was_stopped_in_the_middle_of_an_upload_and_woken_is_no_checkpoint(
    after: int, server: Server, tmp_path: Path
) -> None:
    stopped_and_woken(server, tmp_path, "s3://bucket/a", after)


@pytest.mark.soak
def test_the_same_at_fifty_moments(tmp_path: Path, server: Server) -> None:
    draw = random.Random(5)
    for number in range(50):
        (home := tmp_path / str(number)).mkdir()
        server.memory.buckets["bucket"].clear()
        server.memory.now = time.time  # type: ignore[method-assign]
        stopped_and_woken(server, home, f"s3://bucket/{number}", draw.randrange(1, 10))


def test_a_kill_at_every_request_of_upload_and_removal_leaves_whole_checkpoints_alone(
    server: Server, tmp_path: Path
) -> None:
    """From the n-th request on nothing arrives, as of a process that was killed there; every n."""
    first, second = save(tmp_path / "checkpoints", 1), save(tmp_path / "checkpoints", 2)
    lost = half = 0
    number = 0
    while True:
        number += 1
        server.trouble = lambda request: None
        server.memory.buckets["bucket"].clear()
        store = open_store("s3://bucket/a")
        lease = Lease.take(store, "first")
        send(lease, first, None, {})
        begun = len(server.requests)
        server.trouble = lambda request, end=begun + number: "503" if request.number >= end else None
        done = True
        try:
            send(lease, second, None, {})
            drop(lease, [1])
        except StoreError:
            done = False
        server.trouble = lambda request: None
        lease.stop()
        head = read_head(open_store(store.url))
        assert head is not None
        lost += not head.checkpoints
        half += sum(not verify_remote(store, row).whole for row in head.checkpoints.values())
        after = Lease.take(open_store(store.url), "first")
        clean(after)
        kept = {row.folder for row in after.head.checkpoints.values()}
        folders = {"/".join(key.split("/")[1:4]) for key in server.objects if "/checkpoints/" in key}
        assert folders == kept, number
        after.stop()
        if done:
            break
    assert (lost, half) == (0, 0)
    assert number > 12, "every request was one to be killed at"


def test_a_row_without_its_objects_would_be_seen(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A planted fault: the row of the head before what it names is half a checkpoint."""
    real, path = sending.upload, save(tmp_path / "checkpoints", 1)

    def only_seals(store: Objects, files: Mapping[str, Path], go_on: Any) -> None:
        real(store, {key: file for key, file in files.items() if key == FILE}, go_on)

    for upload in (lambda *given: None, only_seals):
        monkeypatch.setattr(sending, "upload", upload)
        lease = Lease.take(open_store("s3://bucket/a"), "first")
        send(lease, path, None, {})
        assert not verify_remote(lease.store, lease.head.checkpoints[1]).whole
        drop(lease, [1])
        lease.close()


def test_an_unfenced_writer_would_be_seen(server: Server, tmp_path: Path) -> None:
    """A planted fault: without conditions, the one that was woken replaces what the other wrote."""
    store = open_store("s3://bucket/a")
    store.conditional = False
    first = Lease.take(store, "first")
    Lease.take(open_store(store.url), "first").stop()
    send(first, save(tmp_path / "checkpoints", 10), None, {})
    head = read_head(open_store(store.url))
    assert head is not None
    assert (head.epoch, list(head.checkpoints)) == (1, [10])
    first.stop()
