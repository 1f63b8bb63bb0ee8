"""A list that has lost elements, and what is made from it before the first step: the list is named first."""

import pickle
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

import parity
from parity.results import Resumption

Trainer = Callable[[Path, int], Iterator[int] | None]
ROWS = np.random.default_rng(0).normal(size=(40, 3))


def judged(train: Trainer) -> Resumption:
    return parity.resumes(train, steps=14, stop_at=9, mode="inline", scenarios="kill")


def asks(lost: str) -> Trainer:
    """Learns from rows that are asked for one after the other."""

    def train(folder: Path, steps: int) -> Iterator[int]:
        w, taken, n, rate, file = np.ones(3), [0, 1], 0, 0.1, folder / "state"
        if file.exists():
            w, kept, n, rate_then = pickle.loads(file.read_bytes())
            taken = taken if lost == "taken" else kept
            rate = rate if lost == "rate" else rate_then
        rest = set(range(40)) - set(taken)
        while n < steps:
            yield n
            one = max(sorted(rest), key=lambda at: float(np.abs(ROWS[at] @ w)))
            taken.append(one)
            rest.discard(one)
            w = w - rate * (ROWS[taken] @ w - 1) @ ROWS[taken] / len(taken)
            n, rate = n + 1, rate * 0.97
            file.write_bytes(pickle.dumps((w, taken, n, rate)))

    return train


def renamed(folder: Path, steps: int) -> Iterator[int]:
    """The same by other words."""
    x, a, k, file = np.ones(3), [0, 1], 0, folder / "state"
    if file.exists():
        x, k = pickle.loads(file.read_bytes())
    b = {one for one in range(40) if one not in a}
    while k < steps:
        yield k
        c = max(sorted(b), key=lambda at: float(np.abs(ROWS[at] @ x)))
        a.append(c)
        b.discard(c)
        x = x - 0.1 * (ROWS[a] @ x - 1) @ ROWS[a] / len(a)
        k += 1
        file.write_bytes(pickle.dumps((x, k)))


def within(lost: str) -> Trainer:
    """Marks behind the first statement of a step; a table of answers, of which the rows that are left are made."""

    def train(folder: Path, steps: int) -> None:
        w, taken, begin, rate, file = np.ones(3), {0: 0.5}, 0, 0.1, folder / "state"
        if file.exists():
            w, kept, begin, rate_then = pickle.loads(file.read_bytes())
            taken = taken if lost == "taken" else kept
            rate = rate if lost == "rate" else rate_then
        rest = [at for at in range(40) if at not in taken]
        for n in range(begin, steps):
            count = len(taken)
            parity.mark(n)
            one = rest.pop(int(np.argmax(np.abs(ROWS[rest] @ w))))
            taken[one] = float(ROWS[one].sum())
            rows = list(taken)
            w = w - rate * ROWS[rows].T @ (ROWS[rows] @ w - np.array([taken[at] for at in rows])) / (count + 1)
            rate = rate * 0.97
            if n % 2:
                file.write_bytes(pickle.dumps((w, taken, n + 1, rate)))

    return train


@pytest.mark.parametrize(
    ("train", "named"),
    [
        (asks("taken"), "taken"),
        (renamed, "a"),
        (asks("rate"), "rate"),
        (within("taken"), "taken"),
        (within("rate"), "rate"),
    ],
)
def test_the_list_comes_before_what_is_made_from_it(train: Trainer, named: str) -> None:
    found = judged(train)
    assert (found.verdict, found.suspects[0].path) == ("broken", named), found.text()


def test_a_list_that_comes_back_whole_is_no_loss() -> None:
    assert judged(asks("")).verdict == "holds"
    assert judged(within("")).verdict == "holds"
