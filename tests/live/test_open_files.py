"""How far an open file has been read is the position of the data; one that is read anew, or written, is no loss."""

import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import parity
from parity.results import Resumption


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    path = tmp_path / "corpus.txt"
    path.write_text("".join(f"{at % 7} {at % 5}\n" for at in range(40)))
    return path


def reader(corpus: Path, *, lost: bool = False, mode: str = "r") -> Any:
    def train(folder: Path, steps: int) -> Iterator[int]:
        state = folder / "state.pkl"
        w, start, at = pickle.loads(state.read_bytes()) if state.exists() else (np.ones(2), 0, 0)
        with corpus.open(mode) as lines, (folder / "log.txt").open("a") as log:
            lines.seek(0 if lost else at)
            for n in range(start, steps):
                yield n
                a, b = map(float, lines.readline().split())
                w = w - 0.1 * (w - [a, b])
                print(n, file=log, flush=True)
                if n % 4 == 3:
                    state.write_bytes(pickle.dumps((w, n + 1, lines.tell())))

    return train


def check(train: Any) -> Resumption:
    return parity.resumes(train, steps=20, stop_at=13, mode="inline", scenarios=("kill", "third"))


@pytest.mark.parametrize("mode", ["r", "rb"])
def test_a_lost_place_in_an_open_file_is_named(corpus: Path, mode: str) -> None:
    found = check(reader(corpus, lost=True, mode=mode))
    assert found.verdict == "broken", found
    assert (found.suspects[0].component, found.suspects[0].path) == ("data.position", "lines.tell()")


@pytest.mark.parametrize("mode", ["r", "rb"])
def test_a_place_that_is_restored_and_a_log_that_grows_are_none(corpus: Path, mode: str) -> None:
    found = check(reader(corpus, mode=mode))
    assert found.verdict == "holds", found


def test_a_file_that_is_gone_through_by_lines_tells_no_place_and_stays_as_it_is(corpus: Path) -> None:
    def train(folder: Path, steps: int) -> Iterator[int]:
        state = folder / "state.pkl"
        w, start = pickle.loads(state.read_bytes()) if state.exists() else (np.ones(2), 0)
        with corpus.open() as lines:
            for n, line in enumerate(lines):
                if n < start:
                    continue
                if n == steps:
                    break
                yield n
                w = w - 0.1 * (w - [float(word) for word in line.split()])
                if n % 4 == 3:
                    state.write_bytes(pickle.dumps((w, n + 1)))

    found = check(train)
    assert found.verdict == "holds", found
