"""What a run leaves in archives, databases, streams and event files is compared, whatever times they hold."""

import io
import json
import pickle
import sqlite3
import struct
import tarfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import parity
from parity.capture import Walk
from parity.checks.running.containers import is_curve, pieces_of_pickles, read_curves, read_database
from parity.results import Resumption


def tar(file: Path, rows: list[float]) -> None:
    with tarfile.open(file, "w") as archive:
        for name, data in (("rows.json", json.dumps(rows)), ("made", str(time.time_ns()))):
            member = tarfile.TarInfo(name)
            member.size, member.mtime = len(data), time.time()
            archive.addfile(member, io.BytesIO(data.encode()))


def database(file: Path, rows: list[float]) -> None:
    file.unlink(missing_ok=True)
    with sqlite3.connect(file) as opened:
        opened.execute("CREATE TABLE log (made REAL, value REAL)")
        opened.executemany("INSERT INTO log VALUES (?, ?)", [(time.time(), row) for row in rows])
    opened.close()


def two_pickles(file: Path, rows: list[float]) -> None:
    file.write_bytes(pickle.dumps(time.time_ns()) + pickle.dumps(rows))


def two_arrays(file: Path, rows: list[float]) -> None:
    with file.open("wb") as opened:
        np.save(opened, np.array([time.time()]))
        np.save(opened, np.array(rows))


def objects(file: Path, rows: list[float]) -> None:
    with file.open("wb") as opened:
        np.save(opened, np.array([{"made": time.time(), "rows": rows}, None], dtype=object), allow_pickle=True)


def timed_name(file: Path, rows: list[float]) -> None:
    file.with_name(f"rows-{time.time_ns()}.json").write_text(json.dumps(rows))


WAYS: list[Callable[[Path, list[float]], None]] = [tar, database, two_pickles, two_arrays, objects, timed_name]


def train(folder: Path, way: str, lost: bool = False) -> Iterator[int]:
    """Train, and leave the last rows of a sliding window in a file that holds a time too."""
    w, start, rows, file = np.full(3, 5.0), 0, [0.0] * 12, folder / "state.npz"
    if file.exists():
        with np.load(file) as saved:
            w, start = saved["w"], int(saved["step"])
            rows = rows if lost else saved["rows"].tolist()
    for step in range(start, 14):
        yield step
        w = w * 0.9
        rows = [*rows[1:], float(w[0])]
        if step % 4 == 3:
            np.savez(file, w=w, step=step + 1, rows=rows)
    next(one for one in WAYS if one.__name__ == way)(folder / "left", rows)


def verdict(**options: Any) -> Resumption:
    return parity.resumes(train, steps=14, stop_at=10, mode="inline", scenarios="kill", options=options)


@pytest.mark.parametrize("way", [way.__name__ for way in WAYS])
def test_rows_that_were_lost_are_red_and_times_are_not(way: str) -> None:
    assert verdict(way=way).verdict == "holds"
    found = verdict(way=way, lost=True)
    assert found.verdict == "broken", found.text()
    assert any(one.path.startswith(("left", "rows-")) for one in found.suspects), found.text()


def raw(file: Path, rows: list[float]) -> None:
    file.write_bytes(b"\xff\xfe" + struct.pack("<d", time.time()) + np.array(rows).tobytes())


def test_bytes_that_nothing_reads_and_that_hold_a_time_are_listed_as_not_compared(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(f"{__name__}.WAYS", [raw])
    found = verdict(way="raw", lost=True)
    assert [(one.path, one.got) for one in found.bookkeeping if one.path == "left:"] == [("left:", "not compared")]


def test_rows_count_and_not_how_often_a_database_was_written(tmp_path: Path) -> None:
    database(tmp_path / "a", [1.0])
    with sqlite3.connect(tmp_path / "a") as opened:
        opened.execute("DELETE FROM log")
        opened.execute("INSERT INTO log VALUES (0, 1.0)")
    opened.close()
    assert read_database((tmp_path / "a").read_bytes()) == {"log": [(0.0, 1.0)]}


@pytest.mark.parametrize(
    ("key", "same"), [("INTEGER PRIMARY KEY AUTOINCREMENT", True), ("INTEGER PRIMARY KEY", False)]
)
def test_of_keys_that_a_database_never_gives_twice_the_order_counts_alone(
    tmp_path: Path, key: str, same: bool
) -> None:
    for name, again in (("a", False), ("b", True)):
        with sqlite3.connect(tmp_path / name) as opened:
            opened.execute(f"CREATE TABLE log (value REAL, number {key})")
            opened.executemany("INSERT INTO log (value) VALUES (?)", [(0.5,), (1.5,), (2.5,)])
            if again:  # rows beyond the checkpoint are deleted, and written by the steps made again
                opened.execute("DELETE FROM log WHERE value > 1")
                if not same:
                    opened.execute("INSERT INTO log VALUES (1.5, 7), (2.5, 8)")
                else:
                    opened.executemany("INSERT INTO log (value) VALUES (?)", [(1.5,), (2.5,)])
        opened.close()
    one, other = (read_database((tmp_path / name).read_bytes()) for name in "ab")
    assert one == {"log": [(0.5, 1), (1.5, 2), (2.5, 3)]}
    assert (one == other) is same


def test_a_row_that_is_missing_or_otherwise_is_seen_beside_a_key_of_the_database(tmp_path: Path) -> None:
    for name, rows in (("a", [0.5, 1.5]), ("b", [0.5]), ("c", [0.5, 2.5])):
        with sqlite3.connect(tmp_path / name) as opened:
            opened.execute("CREATE TABLE log (number INTEGER PRIMARY KEY AUTOINCREMENT, value REAL)")
            opened.executemany("INSERT INTO log (value) VALUES (?)", [(row,) for row in rows])
        opened.close()
    found = [read_database((tmp_path / name).read_bytes()) for name in "abc"]
    assert found[0] != found[1]
    assert found[0] != found[2]


def test_a_database_with_a_log_beside_it_is_read_without_the_log(tmp_path: Path) -> None:
    opened = sqlite3.connect(tmp_path / "a")
    opened.execute("PRAGMA journal_mode = WAL")
    opened.execute("CREATE TABLE log (value REAL)")
    opened.execute("INSERT INTO log VALUES (1.0)")
    opened.commit()
    opened.close()
    assert (tmp_path / "a").read_bytes()[18:20] == b"\2\2"
    assert read_database((tmp_path / "a").read_bytes()) == {"log": [(1.0,)]}


def in_memory(changes: int) -> Any:
    """Return what is seen of a database in memory that once had so many rows, and has one."""
    opened = sqlite3.connect(":memory:")
    opened.row_factory = lambda *row: "in a form of its own"
    opened.execute("CREATE TABLE log (value REAL)")
    opened.executemany("INSERT INTO log VALUES (?)", [(0.5,)] * changes)
    opened.execute("DELETE FROM log")
    opened.execute("INSERT INTO log VALUES (1.0)")
    opened.commit()
    walk = Walk({})
    walk.root("db", opened)
    return {path: leaf for path, leaf in walk.finish().leaves.items() if leaf.kind.startswith("sqlite3")}


def test_a_database_in_memory_is_its_rows() -> None:
    assert in_memory(1) == in_memory(3000) != {}


def metrics_and_checkpoint(folder: Path, lost: bool = False) -> Iterator[int]:
    """Keep both in one file, which is written from the first step on and has a checkpoint from the third."""
    file = folder / "run.json"
    kept = json.loads(file.read_text()) if file.exists() else {"metrics": {}, "checkpoint": None}
    w, step = np.zeros(3), 0
    if kept["checkpoint"]:
        w, step = np.array(kept["checkpoint"]["w"]), 0 if lost else kept["checkpoint"]["step"]
    while step < 14:
        yield step
        w = 0.9 * w + step % 4
        kept["metrics"][str(step)] = float(w.sum())
        step += 1
        if step % 3 == 0:
            kept["checkpoint"] = {"w": w.tolist(), "step": step}
        file.write_text(json.dumps(kept))


def test_metrics_and_checkpoint_in_one_file_are_no_missing_checkpoint() -> None:
    def judged(**options: Any) -> str:
        check = parity.resumes
        return check(metrics_and_checkpoint, steps=14, stop_at=10, mode="inline", scenarios="kill,first-save",
                     options=options).verdict  # fmt: skip

    assert (judged(), judged(lost=True)) == ("holds", "broken")


def test_pickles_are_told_apart_and_what_is_none_is_left_whole() -> None:
    one, two = pickle.dumps([1]), pickle.dumps({"a": 2})
    assert pieces_of_pickles(one + two) == [one, two]
    assert pieces_of_pickles(one) == [one]
    assert pieces_of_pickles(one + b"rest") == [one + b"rest"]
    assert pieces_of_pickles(b"\x80\x04nonsense.") == [b"\x80\x04nonsense."]


def event(step: int, tag: str, value: float, made: float) -> bytes:
    """Return a record of an event file with one scalar, as TensorBoard's protobuf has it."""
    summary = b"\x0a" + bytes([len(tag)]) + tag.encode() + b"\x15" + struct.pack("<f", value)
    summary = b"\x0a" + bytes([len(summary)]) + summary
    body = b"\x09" + struct.pack("<d", made) + b"\x10" + bytes([step]) + b"\x2a" + bytes([len(summary)]) + summary
    return struct.pack("<Q", len(body)) + b"crc." + body + b"crc."


VERSION = b"\x09" + struct.pack("<d", 1.0) + b"\x1a\x0dbrain.Event:2"
HEAD = struct.pack("<Q", len(VERSION)) + b"crc." + VERSION + b"crc."


def test_event_files_are_one_curve_without_their_times_in_which_the_last_value_counts() -> None:
    first = HEAD + event(1, "loss", 0.5, 10.0) + event(2, "loss", 0.25, 11.0)
    second = HEAD + event(2, "loss", 0.75, 20.0) + event(3, "loss", 1.0, 21.0)[:-9]
    assert is_curve(first)
    assert not is_curve(b"brain")
    assert read_curves([first, second]) == {"loss": {1: 0.5, 2: 0.75}}


def test_event_files_that_tensorboard_writes_are_read(tmp_path: Path) -> None:
    tensorboard = pytest.importorskip("torch.utils.tensorboard")
    with tensorboard.SummaryWriter(tmp_path) as writer:
        for step in range(3):
            writer.add_scalar("loss", 0.5 * step, step)
    (file,) = tmp_path.iterdir()
    assert is_curve(file.read_bytes())
    assert read_curves([file.read_bytes()])["loss"] == {0: 0.0, 1: 0.5, 2: 1.0}
