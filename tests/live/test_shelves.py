"""Stores of keys and values: what a key holds counts, not where it lies or which objects a pickle wrote once."""

import dbm.dumb
import pickle
import shelve
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import parity
from parity.capture import Leaf
from parity.checks.running import contents
from parity.results import Resumption
from tests.live.small_loops import first


def shelf(path: Path) -> shelve.Shelf[Any]:
    """Return the form that `shelve` has where Python has no other."""
    values: Any = dbm.dumb.open(str(path), "c")  # noqa: SIM115
    return shelve.Shelf(values)


def shelf_of_python(path: Path, values: dict[str, Any]) -> None:
    with shelf(path) as opened:
        opened.update(values)


def shelf_in_sqlite(path: Path, values: dict[str, Any]) -> None:
    """Write as `shelve` does from Python 3.13 on."""
    with sqlite3.connect(path) as opened:
        opened.execute("CREATE TABLE IF NOT EXISTS Dict (key BLOB UNIQUE NOT NULL, value BLOB NOT NULL)")
        for key, value in values.items():
            opened.execute("REPLACE INTO Dict VALUES (?, ?)", (key.encode(), pickle.dumps(value)))
    opened.close()


WAYS = pytest.mark.parametrize("write", [shelf_of_python, shelf_in_sqlite])


def two(rows: list[str], *, shared: bool) -> list[str]:
    """Return rows as one object each, or as texts of their own."""
    return rows * 200 if shared else [bytes(row, "ascii").decode() for row in rows * 200]


def leaves(folder: Path) -> dict[str, Leaf]:
    return contents(folder, (), ())


@WAYS
def test_a_pickle_in_a_store_is_what_it_holds(tmp_path: Path, write: Any) -> None:
    for name, shared in (("a", False), ("b", True)):
        (tmp_path / name).mkdir()
        write(tmp_path / name / "kept", {"table": two(["x", "y"], shared=shared), "n": 1})
        if shared:  # written again, in another order
            write(tmp_path / name / "kept", {"n": 1})
    one, other = leaves(tmp_path / "a"), leaves(tmp_path / "b")

    assert one.keys() == other.keys()
    assert all(leaf.same(other[path]) for path, leaf in one.items())


@WAYS
def test_a_value_of_a_store_that_differs_or_is_missing_is_seen(tmp_path: Path, write: Any) -> None:
    for name, values in (("a", {"n": 1, "m": 2}), ("b", {"n": 1, "m": 3}), ("c", {"n": 1})):
        (tmp_path / name).mkdir()
        write(tmp_path / name / "kept", values)
    one, other, less = (leaves(tmp_path / name) for name in "abc")

    assert any(not leaf.same(other[path]) for path, leaf in one.items() if path in other)
    assert one.keys() - less.keys()


@pytest.mark.parametrize("index", ["'a', (0, 99)\n", "'a'\n", "a b\n", "", "1, (0, 1)\n"])
def test_files_that_are_named_alike_and_are_no_store_are_read_as_they_are(tmp_path: Path, index: str) -> None:
    (tmp_path / "a.dir").write_text(index)
    (tmp_path / "a.dat").write_bytes(b"12")

    assert {path.partition(":")[0] for path in leaves(tmp_path)} == {"a.dir", "a.dat"}


def trainer(*, lost: str = "") -> Any:
    def train(folder: Path, steps: int) -> Iterator[int]:
        w, rates, start = np.ones(2), {"a": 0.1, "b": 0.2}, 0
        with shelf(folder / "run") as kept:
            if "start" in kept:
                start, w = kept["start"], kept["w"]
                rates = rates if lost == "rates" else kept["rates"]
        for n in range(start, steps):
            yield n
            rates = {key: rate * 0.9 for key, rate in rates.items()}
            w = w - rates["a" if n % 2 else "b"] * (w - np.sin(n))
            if n % 4 == 3:
                with shelf(folder / "run") as kept:
                    kept.update(w=w, rates=rates, start=n + 1)

    return train


def check(train: Any) -> Resumption:
    return parity.resumes(train, steps=20, stop_at=13, mode="inline", scenarios=("kill", "third"))


def test_a_trainer_that_keeps_its_state_in_a_shelf_resumes_exactly() -> None:
    found = check(trainer())
    assert found.verdict == "holds", found


def test_what_is_not_taken_from_a_shelf_is_named() -> None:
    assert first(check(trainer(lost="rates"))).startswith("rates")


def locked(*, lost: bool = False) -> Any:
    """Return a trainer whose transaction goes on from one save to the next."""

    def train(folder: Path, steps: int) -> Iterator[int]:
        base = sqlite3.connect(folder / "run.db", timeout=0.1)
        base.execute("CREATE TABLE IF NOT EXISTS kept (n INTEGER PRIMARY KEY, w REAL, v REAL)")
        base.commit()
        row = base.execute("SELECT n, w, v FROM kept ORDER BY n DESC LIMIT 1").fetchone()
        start, w, v = row or (0, 1.0, 0.0)
        v = 0.0 if lost else v
        for n in range(start, steps):
            yield n
            v = 0.9 * v + w - (n % 3)
            w = w - 0.1 * v
            base.execute("INSERT INTO kept VALUES (?, ?, ?)", (n + 1, w, v))
            if n % 4 == 3:
                base.commit()
        base.commit()

    return train


def test_a_second_kill_leaves_no_lock_in_the_folder_of_the_next_run() -> None:
    found = check(locked())
    assert found.verdict == "holds", found


def test_what_is_lost_beside_an_open_transaction_is_named() -> None:
    assert first(check(locked(lost=True))) == "v"
