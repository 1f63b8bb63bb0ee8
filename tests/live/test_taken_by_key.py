"""A table that a resume leaves empty, and of which steps take what they put there, comes behind what was lost."""

import math
import pickle
import random
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import parity
from parity.results import Resumption
from tests.live.small_loops import Trainer


def rows(skip: int) -> Iterator[tuple[int, float]]:
    number = 0
    while True:
        draw = random.Random(number)
        number += 1
        if number > skip:
            yield draw.randrange(8), draw.random()


def learns(lost: str, way: str) -> Trainer:
    """Makes weights of sums when they are needed; the sums alone are saved."""

    def by_key(folder: Path, steps: int) -> Iterator[int]:
        sums, w, done, file = np.zeros(8), {}, 0, folder / "state"
        if file.exists():
            kept, done = pickle.loads(file.read_bytes())
            sums = sums if lost == "sums" else kept
        feed = rows(0 if lost == "feed" else 3 * done)
        while done < steps:
            yield done
            for _ in range(3):
                key, y = next(feed)
                w[key] = math.tanh(sums[key])
                sums[key] += 0.3 * (y - w[key])
            done += 1
            file.write_bytes(pickle.dumps((sums, done)))

    def renamed(folder: Path, steps: int) -> Iterator[int]:
        a, q, n, file = np.zeros(8), {}, 0, folder / "state"
        if file.exists():
            b, n = pickle.loads(file.read_bytes())
            a = a if lost == "sums" else b
        f = rows(0 if lost == "feed" else 3 * n)
        while n < steps:
            yield n
            for _ in range(3):
                k, y = next(f)
                q[k] = math.tanh(a[k])
                a[k] += 0.3 * (y - q[k])
            n += 1
            file.write_bytes(pickle.dumps((a, n)))

    def taken(folder: Path, steps: int) -> Iterator[int]:
        """The weights are state: what is not there is taken as 0."""
        sums, held, done, file = np.zeros(8), {}, 0, folder / "state"
        if file.exists():
            sums, done = pickle.loads(file.read_bytes())
        feed = rows(3 * done)
        while done < steps:
            yield done
            for _ in range(3):
                key, y = next(feed)
                sums[key] += 0.3 * (y - held.get(key, 0.0))
                held[key] = math.tanh(sums[key])
            done += 1
            file.write_bytes(pickle.dumps((sums, done)))

    return {"by_key": by_key, "renamed": renamed, "taken": taken}[way]


def of_numbers(lost: str, way: str) -> Trainer:
    """The same without arrays."""

    def train(folder: Path, steps: int) -> Iterator[int]:
        means, z, done, file = [0.0] * 8, {}, 0, folder / "state"
        if file.exists():
            kept, done = pickle.loads(file.read_bytes())
            means = means if lost == "means" else kept
        feed = rows(3 * done)
        while done < steps:
            yield done
            for _ in range(3):
                key, y = next(feed)
                z[key] = math.tanh(means[key])
                means[key] += 0.3 * (y - z[key])
            done += 1
            file.write_bytes(pickle.dumps((means, done)))

    return train


def judged(lost: str, way: str) -> Resumption:
    return parity.resumes(
        (of_numbers if way == "numbers" else learns)(lost, way), steps=14, stop_at=9, mode="inline", scenarios="kill"
    )


@pytest.mark.parametrize("way", ["by_key", "renamed"])
@pytest.mark.parametrize(("lost", "named"), [("", ()), ("feed", ("feed", "f.")), ("sums", ("sums", "a"))])
def test_what_was_lost_comes_before_a_table_of_what_steps_put_there(lost: str, named: tuple[str], way: str) -> None:
    found = judged(lost, way)
    assert found.verdict == ("broken" if lost else "holds"), found.text()
    assert not lost or found.suspects[0].path.startswith(named), found.text()


def test_a_table_of_which_code_takes_what_is_not_there_keeps_its_place() -> None:
    found = judged("", "taken")
    assert found.verdict == "broken", found.text()
    assert found.suspects[0].path.startswith("held"), found.text()


def test_a_list_of_numbers_comes_before_it_too() -> None:
    assert judged("", "numbers").verdict == "holds"
    found = judged("means", "numbers")
    assert found.verdict == "broken", found.text()
    assert found.suspects[0].path.startswith("means"), found.text()
