"""Checkpoints that several processes send: shares, pieces at the store, and what another process cannot send."""

from __future__ import annotations

import random
import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from parity.checkpoints import Seal, commit
from parity.checkpoints.remote import (
    HEAD,
    FilePart,
    Lease,
    Wrote,
    divide,
    drop,
    fetch,
    head_text,
    parse_head,
    read_head,
    send,
    verify_remote,
)
from parity.checkpoints.remote.shares import part_key
from parity.contract import Place
from parity.errors import CheckpointError, DamagedError, LeaseLostError, StoreError
from parity.runs import carriers
from parity.runs.carriers import Others, follow_copies
from parity.runs.channel import connect, gather
from parity.runs.peers import Peers
from parity.storage import BLOCK
from parity.storage.stores import Objects, open_store, parse_url, transfer
from tests.remote.server import Request, Server
from tests.support.ports import free_port
from tests.support.sealed import flip

SIZES = {"state.pt": 2 * BLOCK + 1000, "meta.json": 20, "empty": 0}


def saved(home: Path, step: int = 10) -> Path:
    """Return a sealed checkpoint whose large file has three blocks."""
    draft = home / "draft"
    draft.mkdir(parents=True)
    for name, size in SIZES.items():
        (draft / name).write_bytes(random.Random(name).randbytes(size))
    (home / "checkpoints").mkdir(exist_ok=True)
    final = home / "checkpoints" / str(step)
    commit(draft, final, Seal(step=step, metric=None, saved_at=5.0, side="mine", spec_hash="a1"))
    return final


class Group:
    """Two processes of a run, as threads of this one: what process 0 sends by, and what the other one does."""

    def __init__(self, first: Peers, second: Peers, place: Place) -> None:
        self.lines: list[str] = []
        self.first, self.second = first, second
        self.others = Others(first, place, lambda step: {"state.pt": {0: BLOCK}}, self.lines.append)


@contextmanager
def group(checkpoints: Path | None, wrote: Wrote | None = None) -> Iterator[Group]:
    """Yield both; without a directory, the second answers nothing by itself."""
    address = f"127.0.0.1:{free_port()}"
    places = [Place(address=address, index=index, count=2) for index in range(2)]
    found: list[Peers] = []

    def come() -> None:
        hellos, connection = connect(places[1], {"pid": 2, "host": "there"}, lambda: None)
        found.append(Peers(places[1], hellos, {0: connection}))

    other = threading.Thread(target=come)
    other.start()
    hellos, connections = gather(places[0], {"pid": 1, "host": "here"}, lambda: None)
    first = Peers(places[0], hellos, connections)
    other.join(10)
    if checkpoints is not None:
        follow_copies(found[0], checkpoints, lambda step: wrote or {"state.pt": {1: BLOCK, 2: 1000}})
    parting = threading.Thread(target=found[0].part)
    try:
        yield Group(first, found[0], places[0])
    finally:
        parting.start()
        first.part()
        parting.join(10)


@pytest.fixture(autouse=True)
def quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(carriers, "POLL_SECONDS", 0.02)


def test_a_process_sends_what_it_wrote_and_no_more_than_a_share() -> None:
    sizes = {"a": 4 * BLOCK, "b": 10}
    first: Wrote = {"a": dict.fromkeys(range(4), BLOCK)}
    own, other = divide(sizes, [first, {}])
    assert own == [FilePart("a", 0, 2 * BLOCK), FilePart("b", 0, 10)]
    assert other == [FilePart("a", 2 * BLOCK, 2 * BLOCK)]
    second: Wrote = {"a": {0: BLOCK, 2: BLOCK - 1}}
    own, other = divide(sizes, [{"a": {1: BLOCK, 2: 1, 3: BLOCK}}, second])
    assert [part.start // BLOCK for part in other if part.file == "a"] == [0, 2]
    assert divide({"x": 0, "y": 5}, [{}]) == [[FilePart("x", 0, 0), FilePart("y", 0, 5)]]


def test_every_byte_is_in_exactly_one_share() -> None:
    draw = random.Random(3)
    for _ in range(300):
        sizes = {f"f{number}": draw.choice([0, 1, BLOCK, draw.randrange(6 * BLOCK)]) for number in range(4)}
        wrote: list[Wrote] = [
            {
                name: {draw.randrange(9): draw.randrange(1, BLOCK) for _ in range(3)}
                for name in sizes
                if draw.random() < 0.6
            }
            for _ in range(draw.randrange(1, 5))
        ]
        shares = divide(sizes, wrote)
        assert len(shares) == len(wrote)
        for name, size in sizes.items():
            parts = sorted(part for one in shares for part in one if part.file == name)
            assert parts[0].start == 0
            assert all(a.start + a.size == b.start for a, b in pairwise(parts))
            assert parts[-1].start + parts[-1].size == size
            assert all(part.start % BLOCK == 0 for part in parts)
            assert len({part_key(part, size) for part in parts}) == len(parts)
        fair = sum(sizes.values()) / len(wrote)
        assert all(sum(part.size for part in one) <= fair + 2 * BLOCK for one in shares)


@pytest.fixture
def sent(store: Objects, server: Server, tmp_path: Path) -> Iterator[Lease]:
    """Return the lease of a place with one checkpoint that two processes have sent."""
    path = saved(tmp_path / "run")
    lease = Lease.take(store, "mine")
    with group(path.parent) as both:
        send(lease, path, 0.5, {}, both.others)
        assert both.lines == []
    yield lease
    lease.close()


def below(server: Server) -> dict[str, bytes]:
    return {key.partition("/10/1/")[2]: data for key, data in server.objects.items() if "/10/1/" in key}


def test_what_two_processes_sent_is_fetched_as_it_was(sent: Lease, server: Server, tmp_path: Path) -> None:
    found = below(server)
    assert sorted(found) == [
        "files/empty",
        "files/meta.json",
        f"pieces/state.pt/0-{BLOCK}",
        f"pieces/state.pt/{BLOCK}-{BLOCK + 1000}",
        "seal.json",
    ]
    head = read_head(sent.store)
    assert head is not None
    row = head.checkpoints[10]
    assert row.pieces == {"state.pt": (BLOCK, BLOCK + 1000)}
    assert parse_head(head_text(head).encode(), sent.store.url) == head
    assert verify_remote(sent.store, row).whole
    (tmp_path / "draft").mkdir()
    fetch(sent.store, row, tmp_path / "draft")
    for name in SIZES:
        assert (tmp_path / "draft" / "files" / name).read_bytes() == (
            tmp_path / "run" / "checkpoints" / "10" / name
        ).read_bytes()
    drop(sent, [10])
    assert below(server) == {}


def test_a_flipped_byte_a_cut_or_a_lost_piece_is_named(sent: Lease, server: Server, tmp_path: Path) -> None:
    bucket = server.memory.buckets["bucket"]
    row = sent.head.checkpoints[10]
    for name, held in below(server).items():
        key = next(key for key in bucket if key.endswith(f"/10/1/{name}"))
        before = bucket[key]
        damages = [held[:at] + bytes([held[at] ^ 1]) + held[at + 1 :] for at in (0, len(held) // 2)] if held else []
        for damage in [*damages, *([held[:-1]] if held else [])]:
            server.memory.write("bucket", key, damage)
            assert not verify_remote(sent.store, row).whole, name
        del bucket[key]
        found = verify_remote(sent.store, row)
        assert name.split("/")[0] in found.faults[0].file
        shutil.rmtree(tmp_path / "draft", ignore_errors=True)
        (tmp_path / "draft").mkdir()
        with pytest.raises(DamagedError):
            fetch(sent.store, row, tmp_path / "draft")
        bucket[key] = before
    assert verify_remote(sent.store, row).whole


def test_a_head_with_other_pieces_is_refused_or_its_checkpoint_called_damaged(sent: Lease) -> None:
    row = sent.head.checkpoints[10]
    size = BLOCK + 1000
    others: list[tuple[object, ...]] = [(BLOCK,), (BLOCK, 1000), (BLOCK, size, 8), (BLOCK + 1, BLOCK + 999)]
    refused = 0
    for pieces in [*others, (), (0, 2 * BLOCK + 1000), ("x",), (-1, size), (True, size), (size, BLOCK), (2**63,)]:
        changed: Any = {"state.pt": pieces}
        head = sent.head.with_checkpoints({10: replace(row, pieces=changed)})
        try:
            again = parse_head(head_text(head).encode(), sent.store.url)
        except CheckpointError:
            refused += 1
            continue
        assert not verify_remote(sent.store, again.checkpoints[10]).whole, pieces
    assert refused == 9


def failing(part: str, error: Exception) -> object:
    """Return what sends in place of `upload_range`, and fails in the thread of the second process."""
    real = transfer.upload_range

    def sending(store: Objects, key: str, path: Path, start: int, size: int) -> list[bytes]:
        if threading.current_thread().name == part:
            raise error
        return real(store, key, path, start, size)

    return sending


def test_what_another_process_cannot_send_process_0_sends_and_says_so_once(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = parse_url("s3://bucket/runs/a")
    error = StoreError(url, "the store cannot be reached to write it", transient=True)
    monkeypatch.setattr("parity.checkpoints.remote.shares.upload_range", failing("copies", error))
    lease = Lease.take(open_store(url), "mine")
    with group(tmp_path / "run" / "checkpoints") as both:
        for step in (10, 20, 30):
            send(lease, saved(tmp_path / "run", step), None, {}, both.others)
    assert len(both.lines) == 1
    assert "process 1 of 2 could not send its share of a copy" in both.lines[0]
    assert "cannot be reached" in both.lines[0]
    rows = lease.head.checkpoints
    assert list(rows) == [10, 20, 30]
    assert all(verify_remote(lease.store, row).whole for row in rows.values())
    assert [bool(row.pieces) for row in rows.values()] == [True, False, True], "it is left out for one, then asked"
    lease.close()


def test_a_process_that_sees_another_directory_or_other_bytes_spoils_nothing(server: Server, tmp_path: Path) -> None:
    """As of a directory of the network whose content another machine still remembers."""
    lease = Lease.take(open_store("s3://bucket/runs/a"), "mine")
    path = saved(tmp_path / "run")
    shutil.copytree(tmp_path / "run" / "checkpoints", tmp_path / "stale")
    flip(tmp_path / "stale" / "10" / "state.pt", 2 * BLOCK + 5)
    with group(tmp_path / "stale") as both:
        send(lease, path, None, {}, both.others)
    assert verify_remote(lease.store, lease.head.checkpoints[10]).whole
    path = saved(tmp_path / "run", 20)
    with group(tmp_path / "nowhere") as both:
        send(lease, path, None, {}, both.others)
    assert "No such file" in both.lines[0]
    assert verify_remote(lease.store, lease.head.checkpoints[20]).whole
    lease.close()


@pytest.mark.parametrize("name", SIZES)
def test_what_is_damaged_here_is_not_sent(name: str, server: Server, tmp_path: Path) -> None:
    lease = Lease.take(open_store("s3://bucket/runs/a"), "mine")
    path = saved(tmp_path / "run")
    if SIZES[name]:
        flip(path / name, SIZES[name] - 1)
    else:
        (path / name).write_bytes(b"x")
    with group(path.parent) as both, pytest.raises(DamagedError, match=name):
        send(lease, path, None, {}, both.others)
    assert read_head(lease.store).checkpoints == {}  # type: ignore[union-attr]
    assert below(server) == {}, "what was sent before it was noticed is removed"
    lease.close()


def test_a_lease_that_is_lost_while_others_send_ends_the_copy(server: Server, tmp_path: Path) -> None:
    lease = Lease.take(open_store("s3://bucket/runs/a"), "mine", seconds=1000)
    path = saved(tmp_path / "run")
    with group(None) as both:
        asked = threading.Event()

        def answer() -> None:
            for _ in range(2):
                message = both.second.asides.get()[1]
                assert message is not None
                if "wrote" in message:
                    both.second.aside(0, {"number": message["number"], "wrote": {}})
            asked.set()

        threading.Thread(target=answer, daemon=True).start()
        failures: list[Exception] = []

        def sending() -> None:
            try:
                send(lease, path, None, {}, both.others)
            except LeaseLostError as error:
                failures.append(error)

        thread = threading.Thread(target=sending)
        thread.start()
        assert asked.wait(10)
        now = server.memory.now
        server.memory.now = lambda: now() + 2000  # type: ignore[method-assign]
        second = Lease.take(open_store("s3://bucket/runs/a"), "other")
        with pytest.raises(LeaseLostError):
            lease.change(lambda head: head)
        thread.join(10)
        assert not thread.is_alive()
        assert len(failures) == 1
        assert second.head.checkpoints == {}
        second.close()


def test_an_answer_to_what_was_given_up_is_passed_over(server: Server, tmp_path: Path) -> None:
    """Process 0 fails with its own share while the other sends; the next try is not confused by the late answer."""
    lease = Lease.take(open_store("s3://bucket/runs/a"), "mine")
    path = saved(tmp_path / "run")
    held = threading.Event()

    def trouble(request: Request) -> str | None:
        if request.method != "PUT" and request.method != "POST":
            return None
        if f"{BLOCK}-{BLOCK + 1000}" in request.key:
            assert held.wait(10)
        return "500" if f"pieces/state.pt/0-{BLOCK}" in request.key else None

    server.trouble = trouble
    with group(path.parent) as both:
        with pytest.raises(StoreError, match="could not write it now"):
            send(lease, path, None, {}, both.others)
        server.trouble = lambda request: None
        held.set()
        send(lease, path, None, {}, both.others)
        assert both.lines == [], "each answer is that to its own request"
    assert verify_remote(lease.store, lease.head.checkpoints[10]).whole
    lease.close()


def test_a_stop_at_any_request_leaves_nothing_half(server: Server, tmp_path: Path) -> None:
    path = saved(tmp_path / "run")
    for number in range(1, 40):
        store = open_store(f"s3://bucket/{number}")
        lease = Lease.take(store, "mine")
        begun = len(server.requests)
        server.trouble = lambda request, last=begun + number: "500" if request.number >= last else None  # type: ignore[misc]
        whole = False
        with group(path.parent) as both:
            try:
                send(lease, path, None, {}, both.others)
                whole = True
            except StoreError:
                pass
        server.trouble = lambda request: None
        lease.stop()
        head = read_head(open_store(store.url))
        assert head is not None
        assert all(verify_remote(store, row).whole for row in head.checkpoints.values())
        if whole:
            assert 10 in head.checkpoints
            return
    raise AssertionError("it never came through")


def test_requests_are_cut_to_what_a_message_holds(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(carriers, "MOST_BLOCKS", 1)
    monkeypatch.setattr(carriers, "MOST_PARTS", 1)
    lease = Lease.take(open_store("s3://bucket/runs/a"), "mine")
    path = saved(tmp_path / "run")
    with group(path.parent) as both:
        send(lease, path, None, {}, both.others)
    assert lease.head.checkpoints[10].pieces == {"state.pt": (BLOCK, BLOCK, 1000)}
    assert verify_remote(lease.store, lease.head.checkpoints[10]).whole
    lease.close()


def test_the_head_of_one_process_is_as_it_was(server: Server, tmp_path: Path) -> None:
    lease = Lease.take(open_store("s3://bucket/runs/a"), "mine")
    send(lease, saved(tmp_path / "run"), None, {})
    assert b"pieces" not in server.objects[f"runs/a/{HEAD}"]
    assert not [key for key in server.objects if "/pieces/" in key]
    lease.close()


def test_objects_beyond_eighty_gigabytes_have_parts_that_the_store_takes() -> None:
    for size in (1, BLOCK, 10_000 * BLOCK, 10_000 * BLOCK + 1, 5 << 40):
        part = transfer.part_size(size)
        assert part >= BLOCK
        assert -(-size // part) <= 10_000
    assert transfer.part_size(10_000 * BLOCK) == BLOCK
