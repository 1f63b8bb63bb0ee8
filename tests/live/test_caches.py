"""Tables that steps fill on demand: not all of them is made again, and nothing is lost; of what was visited it is."""

import pickle
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import parity

Trainer = Callable[[Path, int], Iterator[int]]

STEPS, STOP = 14, 9


def _size(n: int) -> int:
    """Return a size that rises: early ones are not asked for again."""
    return 2 + n % 3 if n < 6 else 5 + n % 2


def functions(folder: Path, steps: int) -> Iterator[int]:
    table: dict[int, Any] = {}

    def made(size: int) -> Any:
        if size not in table:
            table[size] = lambda w: w - 0.1 * (w - size)
        return table[size]

    yield from _steps(folder, steps, lambda w, n: made(_size(n))(w))


def masks(folder: Path, steps: int) -> Iterator[int]:
    table: dict[int, Any] = {}

    def step(w: Any, n: int) -> Any:
        if _size(n) not in table:
            table[_size(n)] = np.tri(_size(n))
        return w - 0.1 * (w - table[_size(n)].mean())

    yield from _steps(folder, steps, step)


class Renamed:
    """As `masks`, an attribute by a word that says nothing, handed to a function."""

    def __init__(self) -> None:
        self.qz: dict[int, Any] = {}

    def step(self, w: Any, n: int) -> Any:
        return w - 0.1 * (w - look(self.qz, _size(n)).mean())


def look(qz: dict[int, Any], n: int) -> Any:
    if n not in qz:
        qz[n] = np.tri(n)
    return qz[n]


def renamed(folder: Path, steps: int) -> Iterator[int]:
    holder = Renamed()
    yield from _steps(folder, steps, holder.step)


def _steps(folder: Path, steps: int, step: Callable[[Any, int], Any]) -> Iterator[int]:
    w, n, file = np.zeros(3), 0, folder / "state"
    if file.exists():
        w, n = pickle.loads(file.read_bytes())
    while n < steps:
        yield n
        w, n = step(w, n), n + 1
        file.write_bytes(pickle.dumps((w, n)))


@pytest.mark.parametrize("train", [functions, masks, renamed])
def test_entries_that_no_later_step_asks_for_are_no_loss(train: Trainer) -> None:
    found = parity.resumes(train, steps=STEPS, stop_at=STOP, scenarios="kill", mode="inline")
    assert found.verdict == "holds", found


def stops_at_many(folder: Path, steps: int) -> Iterator[int]:
    """End a search after ten that were seen: how many there are decides, though beyond the end of this run."""
    w, n, file, seen = np.zeros(3), 0, folder / "state", dict[int, bool]()
    if file.exists():
        w, n = pickle.loads(file.read_bytes())
    while n < steps:
        yield n
        if _size(n) not in seen:
            seen[_size(n)] = True
        if len(seen) > 9:
            return
        w, n = w - 0.1 * (w - n), n + 1
        file.write_bytes(pickle.dumps((w, n)))


def first_values(folder: Path, steps: int) -> Iterator[int]:
    """Keep what was found at the first visit: made again it is another one."""
    w, n, file, first = np.zeros(3), 0, folder / "state", dict[int, Any]()
    if file.exists():
        w, n = pickle.loads(file.read_bytes())
    while n < steps:
        yield n
        if _size(n) not in first:
            first[_size(n)] = w.copy()
        w, n = w - 0.1 * (w - first[_size(n)] - n), n + 1
        file.write_bytes(pickle.dumps((w, n)))


def best_of_each(folder: Path, steps: int) -> Iterator[int]:
    """Keep the best of each size, which is better each time in this run, and would not be in another."""
    w, n, file, best, bad = np.zeros(3), 0, folder / "state", dict[int, float](), 0
    if file.exists():
        w, n, bad = pickle.loads(file.read_bytes())
    while n < steps:
        yield n
        w, n = w - 0.1 * (w - 5), n + 1
        found = float(np.abs(w - 5).sum())
        if _size(n) not in best or found < best[_size(n)]:
            best[_size(n)] = found
        else:
            bad += 1
        file.write_bytes(pickle.dumps((w, n, bad)))


def bonus_of_the_first(folder: Path, steps: int) -> Iterator[int]:
    """Take another step at the first visit of each size."""
    w, n, file, seen = np.zeros(3), 0, folder / "state", set[int]()
    if file.exists():
        w, n = pickle.loads(file.read_bytes())
    while n < steps:
        yield n
        if _size(n) not in seen:
            seen.add(_size(n))
            w = w + 1
        w, n = w - 0.1 * (w - n), n + 1
        file.write_bytes(pickle.dumps((w, n)))


@pytest.mark.parametrize(
    ("train", "name"),
    [(stops_at_many, "seen"), (first_values, "first"), (best_of_each, "best"), (bonus_of_the_first, "seen")],
)
def test_a_table_that_decides_more_is_lost(train: Trainer, name: str) -> None:
    found = parity.resumes(train, steps=STEPS, stop_at=STOP, scenarios="kill", mode="inline")
    assert found.verdict == "broken", found
    assert found.suspects[0].path.startswith(name)
