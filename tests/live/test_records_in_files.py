"""Files of records: one that a step made again writes twice, and one more in a document that is written whole."""

import gzip
import json
import pickle
import sqlite3
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from parity.checks.judging import Outcome, ProcessStart, judge_files
from parity.checks.running import contents
from tests.live.small_loops import State, Trainer, check, descend, trainer, weights

Write = Callable[[Path, int, float], None]


def json_line(folder: Path, n: int, v: float) -> None:
    with (folder / "ev.jsonl").open("a") as out:
        out.write(json.dumps({"step": n, "v": v}) + "\n")


def packed(folder: Path, n: int, v: float) -> None:
    with (folder / "ev.bin").open("ab") as out:
        out.write(struct.pack("<qd", n, v))


def pickled(folder: Path, n: int, v: float) -> None:
    with (folder / "ev.pkl").open("ab") as out:
        pickle.dump((n, v), out)


def array(folder: Path, n: int, v: float) -> None:
    with (folder / "ev.npy").open("ab") as out:
        np.save(out, np.array([n, v]))


def zipped(folder: Path, n: int, v: float) -> None:
    with gzip.open(folder / "ev.gz", "at") as out:
        out.write(f"step {n} loss {v}\n")


def row(folder: Path, n: int, v: float) -> None:
    db = sqlite3.connect(folder / "ev.db")
    db.execute("create table if not exists ev (n, v)")
    db.execute("insert into ev values (?, ?)", (n, v))
    db.commit()
    db.close()


FORMS: tuple[Write, ...] = (json_line, packed, pickled, array, zipped, row)


def with_events(write: Write, at: tuple[int, ...], lost: float = 0.0) -> Trainer:
    """Return a trainer that writes an event at some steps, with a scale that a resume may change."""

    def train(folder: Path, steps: int) -> Any:
        def made(state: State) -> None:
            state.own_scale = 1.0 + lost * state.number

        def step(state: State, number: int) -> None:
            state.number = number
            error = descend(state, number)
            if number in at:
                write(folder, number, error * state.own_scale)

        return trainer(weights(number=0), step, made=made)(folder, steps)

    return train


@pytest.mark.parametrize("write", FORMS)
def test_one_record_that_is_written_twice_is_no_loss(write: Write) -> None:
    found = check(with_events(write, (2,)), scenarios=("before-save",))
    assert found.verdict == "holds", found


@pytest.mark.parametrize("write", FORMS)
def test_steps_made_again_write_their_records_again(write: Write) -> None:
    every = tuple(range(20))
    assert check(with_events(write, every), scenarios=("kill",), stop_at=15).verdict == "holds"
    lost = check(with_events(write, every, lost=0.5), scenarios=("kill",), stop_at=15)
    assert lost.verdict == "broken", lost


def left(folder: Path, name: str, write: Callable[[Path, Any], None], content: Any) -> dict[str, Any]:
    folder.mkdir()
    write(folder / name, content)
    return contents(folder, (), ())


def as_json(path: Path, content: Any) -> None:
    path.write_text(json.dumps(content))


def as_pickle(path: Path, content: Any) -> None:
    path.write_bytes(pickle.dumps(content))


def as_arrays(path: Path, content: dict[str, float]) -> None:
    np.savez(path, **{name: np.full(3, value) for name, value in content.items()})


def as_lines(path: Path, content: list[Any]) -> None:
    path.write_text("".join(f"step {n} loss {v}\n" for n, v in content))


def as_table(path: Path, content: list[Any]) -> None:
    for n, v in content:
        row(path.parent, n, v)


DOCUMENTS: tuple[tuple[str, Callable[[Path, Any], None], Any, Any], ...] = (
    ("ev.json", as_json, [[5, 2.5]], [[5, 2.5], [13, 2.0]]),
    ("ev.json", as_json, {"at": {"5": 2.5}}, {"at": {"5": 2.5, "13": 2.0}}),
    ("ev.pkl", as_pickle, {"seen": [3, 4]}, {"seen": [3, 4, 7]}),
    ("ev.npz", as_arrays, {"w5": 1.0}, {"w5": 1.0, "w13": 2.0}),
    ("report.txt", as_lines, [(5, 2.5)], [(5, 2.5), (13, 2.0)]),
    ("ev.db", as_table, [(5, 2.5)], [(5, 2.5), (13, 2.0)]),
)


@pytest.mark.parametrize(("name", "write", "once", "more"), DOCUMENTS)
def test_something_more_in_a_document_is_a_loss(
    tmp_path: Path, name: str, write: Callable[[Path, Any], None], once: Any, more: Any
) -> None:
    expected, got = left(tmp_path / "a", name, write, once), left(tmp_path / "b", name, write, more)

    def judge(again: dict[str, Any], begun: ProcessStart | None = None) -> Outcome:
        return judge_files(expected, again, got, (12, 19), begun=begun)

    found = judge(expected)
    assert found.broken, found
    assert all(e.expected == "absent" for e in found.broken)
    assert not judge_files(expected, expected, expected, (12, 19)).broken
    # an equal run that has one more of its own, as a key with a time in it
    assert not [e for e in judge(got).broken if name != "report.txt"]
    # a process that wrote it before its first mark
    assert judge(expected, ProcessStart(changed=frozenset({name}))).bookkeeping
    assert not judge(expected, ProcessStart(changed=frozenset({name}))).broken
    late = ProcessStart(changed=frozenset({name}), written=frozenset())
    assert judge(expected, late).broken


def test_a_record_that_stands_twice_in_a_document_is_listed(tmp_path: Path) -> None:
    expected = left(tmp_path / "a", "ev.json", as_json, [[5, 2.5], [7, 2.0]])
    got = left(tmp_path / "b", "ev.json", as_json, [[5, 2.5], [7, 2.0], [7, 2.0]])
    found = judge_files(expected, expected, got, (12, 19))
    assert not found.broken
    assert found.bookkeeping


def keeps_when_it_began(folder: Path, state: State, start: int) -> None:
    (folder / "card.json").write_text(json.dumps({"sessions": state.sessions, "w": list(state.w)}))


def test_where_processes_began_is_theirs() -> None:
    def made(state: State) -> None:
        state.sessions = [*state.sessions, getattr(state, "number", 0)]

    def step(state: State, number: int) -> None:
        state.number = number
        descend(state, number)

    found = check(trainer(weights(sessions=[]), step, made=made, end=keeps_when_it_began))
    assert found.verdict == "holds", found
    assert any(one.path.startswith("card.json: sessions[1]") for one in found.bookkeeping)
