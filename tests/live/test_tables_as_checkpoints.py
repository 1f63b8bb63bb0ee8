"""Checkpoints that are the last line of a table to which every save appends: they are judged like any other."""

import json
import math
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import parity
from parity.errors import TrainerError
from parity.results import Resumption

Trainer = Callable[[Path, int], Iterator[int]]
Row = dict[str, float]


def read_csv(folder: Path) -> Row | None:
    path = folder / "table.csv"
    if not path.exists():
        return None
    head, *rows = path.read_text().splitlines()
    return dict(zip(head.split(","), map(float, rows[-1].split(",")), strict=True))


def append_csv(folder: Path, row: Row) -> None:
    path = folder / "table.csv"
    if not path.exists():
        path.write_text(",".join(row) + "\n")
    with path.open("a") as file:
        file.write(",".join(map(repr, row.values())) + "\n")


def read_lines(folder: Path) -> Row | None:
    path = folder / "table.jsonl"
    return json.loads(path.read_text().splitlines()[-1]) if path.exists() else None


def append_line(folder: Path, row: Row) -> None:
    with (folder / "table.jsonl").open("a") as file:
        file.write(json.dumps(row) + "\n")


def open_rows(folder: Path) -> sqlite3.Connection:
    base = sqlite3.connect(folder / "table.db")
    base.execute("create table if not exists rows (text text)")
    return base


def read_rows(folder: Path) -> Row | None:
    base = open_rows(folder)
    rows = base.execute("select text from rows order by rowid desc limit 1").fetchall()
    base.close()
    return json.loads(rows[0][0]) if rows else None


def append_row(folder: Path, row: Row) -> None:
    base = open_rows(folder)
    base.execute("insert into rows values (?)", (json.dumps(row),))
    base.commit()
    base.close()


WAYS = {"csv": (read_csv, append_csv), "jsonl": (read_lines, append_line), "sqlite": (read_rows, append_row)}


def with_a_table(way: str, *, lost: str = "", reads: bool = True) -> Trainer:
    read, append = WAYS[way]

    def train(folder: Path, steps: int) -> Iterator[int]:
        w, v, begin = 0.5, 0.0, 0
        if reads and (row := read(folder)) is not None:
            w, begin = row["w"], int(row["step"])
            v = v if lost == "v" else row["v"]
        for step in range(begin, steps):
            yield step
            v = 0.9 * v - 0.1 * (w - math.sin(step))
            w += v
            if step % 3 == 2:
                append(folder, {"w": w, "v": v, "step": step + 1})
        return w

    return train


def check(train: Trainer, **options: Any) -> Resumption:
    given: dict[str, Any] = {"steps": 20, "stop_at": 13, "mode": "inline", "scenarios": "all", **options}
    return parity.resumes(train, **given)


@pytest.mark.parametrize("way", WAYS)
def test_a_checkpoint_that_is_the_last_line_of_a_table_is_judged(way: str) -> None:
    found = check(with_a_table(way))
    assert found.verdict == "holds", found
    lost = check(with_a_table(way, lost="v"))
    assert lost.verdict == "broken"
    assert lost.suspects[0].path == "v"


@pytest.mark.parametrize("way", ["csv", "jsonl"])
def test_a_table_that_no_process_reads_is_no_checkpoint(way: str) -> None:
    with pytest.raises(TrainerError, match="nothing was saved in the folder before step 13"):
        check(with_a_table(way, reads=False))
