"""Positions of iterators: each is seen by what the iterator tells, and looking moves none."""

import array
import csv
import io
import itertools
import mmap
import pickle
import struct
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import parity
from parity.capture import StateSnapshot, Walk

ROWS = [3, 1, 4, 1, 5]


def memory() -> mmap.mmap:
    held = mmap.mmap(-1, 64)
    held.write(bytes(range(64)))
    held.seek(0)
    return held


def repeated(of: Any, times: int) -> Any:
    for _ in range(times):
        next(of)
    return of


def behind(by: int) -> Any:
    """Return one of a tee of which the other has drawn more."""
    one, other = itertools.tee(ROWS)
    repeated(other, by)
    return one


MADE: dict[str, tuple[Callable[[], Any], Callable[[Any], Any]]] = {
    "cycle": (lambda: itertools.cycle(ROWS), next),
    "cycle behind its first pass": (lambda: repeated(itertools.cycle(ROWS), 7), next),
    "cycle of a generator": (lambda: repeated(itertools.cycle(2 * one for one in ROWS), 7), next),
    "slice of a cycle": (lambda: itertools.islice(repeated(itertools.cycle(ROWS), 7), 40), next),
    "one of a tee": (lambda: itertools.tee(ROWS)[0], next),
    "one of a tee that is behind": (lambda: behind(3), next),
    "zip_longest": (lambda: itertools.zip_longest(ROWS, "ab"), next),
    "zip_longest that has run out": (lambda: repeated(itertools.zip_longest(ROWS, "ab"), 3), next),
    "OrderedDict": (lambda: iter(OrderedDict(a=1, b=2, c=3)), next),
    "deque": (lambda: iter(deque(ROWS)), next),
    "deque backwards": (lambda: reversed(deque(ROWS)), next),
    "array.array": (lambda: iter(array.array("i", ROWS)), next),
    "iter_unpack": (lambda: struct.iter_unpack("<h", bytes(8)), next),
    "flat": (lambda: np.arange(6.0).reshape(2, 3).flat, next),
    "nditer": (lambda: repeated(np.nditer(np.arange(6.0)), 1), next),
    "ndenumerate": (lambda: np.ndenumerate(np.arange(6.0)), next),
    "csv.reader": (lambda: csv.reader(["1,2", "1,2", "1,2"]), next),
    "StringIO": (lambda: io.StringIO("1\n2\n3\n"), lambda one: one.readline()),
    "mmap": (memory, lambda one: one.read_byte()),
}


def see(value: Any) -> StateSnapshot:
    walk = Walk()
    walk.root("it", value)
    return walk.finish()


@pytest.mark.parametrize("kind", MADE)
def test_one_element_further_is_another_state(kind: str) -> None:
    make, step = MADE[kind]
    one, other = make(), make()
    before = see(one).leaves
    assert before == see(one).leaves == see(other).leaves
    expected = [step(other) for _ in range(2)]
    assert step(one) == expected[0]
    assert see(one).leaves != before
    assert see(one).leaves != see(other).leaves
    assert step(one) == expected[1]
    assert see(one).leaves == see(other).leaves


def cycled(folder: Path, ahead: int = 0) -> Iterator[int]:
    rows, w, step, file = np.random.default_rng(0).normal(size=(5, 3)), np.zeros(3), 0, folder / "state.pkl"
    order = itertools.cycle(range(5))
    if file.exists():
        w, step = pickle.loads(file.read_bytes())
        repeated(order, step + ahead)
    while step < 20:
        yield step
        x = rows[next(order)]
        w = w - 0.1 * (x @ w - 1) * x
        step += 1
        if step % 4 == 0:
            file.write_bytes(pickle.dumps((w, step)))


def test_the_position_of_a_cycle_is_named() -> None:
    def judged(ahead: int) -> Any:
        return parity.resumes(cycled, steps=20, stop_at=13, mode="inline", scenarios="kill", options={"ahead": ahead})

    assert judged(0).verdict == "holds"
    found = judged(1)
    assert (found.verdict, found.suspects[0].path, found.suspects[0].when) == (
        "broken",
        "order.left",
        "at the resume",
    )


PASSES: dict[str, Callable[[], Any]] = {
    "list": lambda: itertools.cycle(ROWS),
    "tuple": lambda: itertools.cycle(tuple(ROWS)),
    "text": lambda: itertools.cycle("abcde"),
    "range": lambda: itertools.cycle(range(5)),
}


@pytest.mark.parametrize("kind", PASSES)
@pytest.mark.parametrize("given", range(6))
def test_a_cycle_is_the_same_however_many_passes_it_has_made(kind: str, given: int) -> None:
    make = PASSES[kind]
    one, other = repeated(make(), given % 5), repeated(make(), given + 10)
    assert see(one).leaves == see(other).leaves != see(repeated(make(), given + 1)).leaves
    assert [next(one) for _ in range(7)] == [next(other) for _ in range(7)]


def with_a_mean(*, ahead: int = 0, forgets: bool = False) -> Callable[..., Iterator[int]]:
    """Return a trainer whose weights come after rates that go round, each by a running mean."""

    def train(folder: Path, steps: int) -> Iterator[int]:
        w, mean, step, file = np.array([2.0, -1.0]), 0.0, 0, folder / "state.pkl"
        if file.exists():
            w, step, kept = pickle.loads(file.read_bytes())
            mean = 0.0 if forgets else kept
        rates = repeated(itertools.cycle([1.0, 2.0, 3.0]), step % 3 + ahead * bool(step))
        while step < steps:
            yield step
            mean = 0.9 * mean + 0.1 * float(np.abs(w).sum())
            w = w - 0.01 * next(rates) * w / (1 + mean)
            step += 1
            file.write_bytes(pickle.dumps((w, step, mean)))

    return train


def test_a_cycle_that_was_brought_to_its_place_is_not_named_for_what_was_lost() -> None:
    def judged(train: Callable[..., Iterator[int]]) -> Any:
        return parity.resumes(train, steps=14, stop_at=10, mode="inline", scenarios="kill")

    assert judged(with_a_mean()).verdict == "holds"
    assert [one.path for one in judged(with_a_mean(forgets=True)).suspects][:1] == ["mean"]
    assert judged(with_a_mean(ahead=1)).suspects[0].path == "rates.left"


@pytest.mark.parametrize("given", [0, 3, 70, 130])
def test_a_tee_is_the_same_however_much_it_has_given(given: int) -> None:
    """It keeps what it has given, in blocks of 57, which a new process has not."""
    one, other = itertools.tee(itertools.count())
    repeated(one, given), repeated(other, given + 4)
    new, ahead = itertools.tee(itertools.count(given))
    repeated(ahead, 4)
    assert see(one).leaves == see(new).leaves
    assert see(other).leaves == see(ahead).leaves
    next(one)
    assert see(one).leaves != see(new).leaves


def test_a_rate_that_was_not_brought_to_its_place_is_named_beside_a_tee() -> None:
    def train(folder: Path, steps: int, *, lost: bool = True) -> Iterator[int]:
        w, n, file = np.zeros(3), 0, folder / "state"
        if file.exists():
            w, n = pickle.loads(file.read_bytes())
        rates = itertools.cycle([0.1, 0.05, 0.02, 0.2])
        if not lost:
            repeated(rates, n)
        noise, echo = itertools.tee((k * 7919 % 101) / 101 for k in itertools.count(n))
        next(echo)
        while n < steps:
            yield n
            w = w - next(rates) * (w - 1 + next(noise) - next(echo))
            n += 1
            if n % 5 == 0:
                file.write_bytes(pickle.dumps((w, n)))

    asked = {"steps": 20, "stop_at": 13, "mode": "inline"}
    found = parity.resumes(train, **asked)
    assert (found.verdict, found.suspects[0].path) == ("broken", "rates.left"), found.text()
    assert parity.resumes(train, options={"lost": False}, **asked).verdict == "holds"


def test_batches_from_the_beginning_are_named_by_the_place_and_by_no_other_name_of_one() -> None:
    """Which of two names a batch is met by first depends on where the loop stands in the list."""

    def train(folder: Path, steps: int, *, lost: bool = True) -> Iterator[int]:
        rows = np.random.default_rng(0).normal(size=(48, 3))
        w, first, skip, n, file = np.zeros(3), 0, 0, 0, folder / "state"
        if file.exists():
            w, first, skip, n = pickle.loads(file.read_bytes())
        for epoch in range(first, 100):
            order = np.random.default_rng(epoch).permutation(48).reshape(6, 8)
            batches = [order[k] for k in range(6)]
            start = skip if epoch == first and not lost else 0
            for k, batch in enumerate(batches[start:], start):
                if n == steps:
                    return w
                yield n
                w = w - 0.05 * rows[batch].T @ (rows[batch] @ w - 1)
                n += 1
                if n % 5 == 0:
                    file.write_bytes(pickle.dumps((w, epoch, k + 1, n)))

    asked = {"steps": 44, "stop_at": 27, "mode": "inline"}
    found = parity.resumes(train, **asked)
    first = found.suspects[0]
    assert (found.verdict, first.component, first.when) == ("broken", "data.position", "at the resume")
    assert parity.resumes(train, options={"lost": False}, **asked).verdict == "holds"


def test_a_cycle_that_was_lost_is_named_before_a_generator_that_nobody_seeds() -> None:
    def train(folder: Path, steps: int) -> Iterator[int]:
        data = torch.utils.data.TensorDataset(torch.arange(36.0).reshape(36, 1) / 36)
        w, n, epoch, used, file = torch.ones(1), 0, 0, 0, folder / "state.pt"
        if file.exists():
            w, n, epoch, used = torch.load(file)
        extra = itertools.islice(itertools.cycle([0.1, 0.2, 0.4]), None)
        while n < steps:
            order = torch.randperm(36, generator=torch.Generator().manual_seed(epoch)).tolist()
            for (x,) in torch.utils.data.DataLoader(torch.utils.data.Subset(data, order[used:]), batch_size=6):
                if n == steps:
                    break
                yield n
                w = w - 0.1 * (w - x.mean()) * next(extra)
                n, used = n + 1, used + len(x)
                if n % 4 == 0:
                    torch.save((w, n, epoch, used), file)
            epoch, used = epoch + 1, 0

    found = parity.resumes(train, steps=40, stop_at=27, mode="inline", scenarios=["third"])
    assert found.verdict == "broken", found.text()
    assert found.suspects[0].path.startswith("extra."), found.text()
