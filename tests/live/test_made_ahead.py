"""What a producer has ready at a kill, and makes again: how much that is says nothing, and is named for no loss."""

import asyncio
import pickle
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import parity
from parity.results import Resumption

Trainer = Callable[..., Any]


def judged(train: Trainer) -> Resumption:
    return parity.resumes(train, steps=14, stop_at=9, mode="inline", scenarios="kill")


def row(number: int) -> Any:
    return np.random.default_rng(number).normal(size=3)


def by_tasks(lost: str) -> Trainer:
    async def put(queue: asyncio.Queue[Any], number: int) -> None:
        while True:
            await queue.put(row(number))
            number += 1

    async def learn(folder: Path, steps: int) -> None:
        w, mean, rate, done, file = np.zeros(3), np.zeros(3), 0.9, 0, folder / "state"
        if file.exists():
            w, kept, rate_then, done = pickle.loads(file.read_bytes())
            mean = mean if lost == "mean" else kept
            rate = rate if lost == "rate" else rate_then
        queue: asyncio.Queue[Any] = asyncio.Queue(2)
        task = asyncio.create_task(put(queue, 0 if lost == "queue" else done))
        while done < steps:
            parity.mark(done)
            x = await queue.get()
            mean = rate * mean + (w - x)
            w = w - 0.1 * mean
            rate, done = 0.98 * rate, done + 1
            file.write_bytes(pickle.dumps((w, mean, rate, done)))
        task.cancel()

    def train(folder: Path, steps: int) -> None:
        asyncio.run(learn(folder, steps))

    return train


class Source:
    """Holds things that are to come, three at most; it begins to fill up when it is asked for one."""

    def __init__(self, start: int) -> None:
        self.k, self.a = start, deque[Any]()

    def ask(self) -> Any:
        if len(self.a) < 2:
            while len(self.a) < 3:
                self.a.append(row(self.k))
                self.k += 1
        return self.a.popleft()


def by_calls(lost: str) -> Trainer:
    """The same without tasks, under names that mean nothing."""

    def train(folder: Path, steps: int) -> Iterator[int]:
        p, t, v, n, file = np.zeros(3), np.zeros(3), 0.9, 0, folder / "state"
        if file.exists():
            p, t_then, v_then, n = pickle.loads(file.read_bytes())
            t = t if lost == "t" else t_then
            v = v if lost == "v" else v_then
        o = Source(0 if lost == "o." else n)
        while n < steps:
            yield n
            b = o.ask()
            t = v * t + (p - b)
            p = p - 0.1 * t
            v, n = 0.98 * v, n + 1
            file.write_bytes(pickle.dumps((p, t, v, n)))

    return train


def kept(lost: str) -> Trainer:
    """The last three rows are taken by each step: what is gone from them does not come again."""

    def train(folder: Path, steps: int) -> Iterator[int]:
        p, n, a, v, file = np.zeros(3), 0, deque[Any](maxlen=3), 0.9, folder / "state"
        if file.exists():
            p, n, a_then, v = pickle.loads(file.read_bytes())
            a = a if lost == "a" else a_then
        while n < steps:
            yield n
            a.append(row(n))
            p = p - 0.1 * v * (p - sum(a) / 3)
            v, n = 0.98 * v, n + 1
            file.write_bytes(pickle.dumps((p, n, a, v)))

    return train


@pytest.mark.parametrize(("made", "lost"), [(by_tasks, "mean"), (by_tasks, "rate"), (by_calls, "t"), (by_calls, "v")])
def test_what_was_lost_comes_before_what_is_made_again(made: Callable[[str], Trainer], lost: str) -> None:
    assert judged(made("")).verdict == "holds"
    found = judged(made(lost))
    assert (found.verdict, found.suspects[0].path) == ("broken", lost), found.text()


@pytest.mark.parametrize(("made", "lost"), [(by_tasks, "queue"), (by_calls, "o."), (kept, "a")])
def test_what_is_not_made_again_is_named(made: Callable[[str], Trainer], lost: str) -> None:
    found = judged(made(lost))
    assert found.verdict == "broken"
    assert found.suspects[0].path.startswith(lost), found.text()


class Numbered(Source):
    """Holds each thing with its number, and begins again when nothing is left."""

    def ask(self) -> Any:
        if not self.a:
            self.a.extend((self.k + i, row(self.k + i)) for i in range(3))
            self.k += 3
        return self.a.popleft()[1]


def of_pairs(lost: str) -> Trainer:
    """How many are left is another number in each process, at all marks; what is asked for is the same."""

    def train(folder: Path, steps: int) -> Iterator[int]:
        p, v, n, file = np.zeros(3), 0.9, 0, folder / "state"
        if file.exists():
            p, v_then, n = pickle.loads(file.read_bytes())
            v = v if lost == "v" else v_then
        o = Numbered(0 if lost == "o." else n)
        while n < steps:
            yield n
            p = p - 0.1 * v * (p - o.ask())
            v, n = 0.98 * v, n + 1
            file.write_bytes(pickle.dumps((p, v, n)))

    return train


def replayed(lost: str) -> Trainer:
    """Pairs that are drawn from again are none that wait."""

    def train(folder: Path, steps: int) -> Iterator[int]:
        p, n, a, file = np.zeros(3), 0, deque[Any](maxlen=3), folder / "state"
        if file.exists():
            p, n, a_then = pickle.loads(file.read_bytes())
            a = a if lost == "a" else a_then
        while n < steps:
            yield n
            a.append((n, row(n)))
            p = p - 0.1 * (p - a[0][1])
            n += 1
            file.write_bytes(pickle.dumps((p, n, a)))

    return train


def test_pairs_that_wait_are_no_loss_and_pairs_that_are_kept_are() -> None:
    assert judged(of_pairs("")).verdict == "holds"
    assert judged(of_pairs("v")).suspects[0].path == "v"
    assert judged(of_pairs("o.")).verdict == "broken"
    assert judged(replayed("")).verdict == "holds"
    assert judged(replayed("a")).suspects[0].path.startswith("a")
