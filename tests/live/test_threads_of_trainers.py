"""Threads of a trainer that make its batches: how far one is at a mark is a matter of time, what it gives is not."""

import gc
import pickle
import queue
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import parity
from parity.capture import OTHERS, Scope, Walk, capture
from parity.results import Resumption


def hand_on(to: queue.Queue[Any], item: Any, over: threading.Event) -> None:
    while not over.is_set():
        with suppress(queue.Full):
            return to.put(item, timeout=0.05)


class Producer(threading.Thread):
    """Makes rows by their numbers, so many ahead; it comes to its end before the steps do."""

    over = threading.Event()

    def __init__(self, at: int, end: int, ahead: int) -> None:
        super().__init__(daemon=True)
        self.q: queue.Queue[Any] = queue.Queue(ahead)
        self.at, self.end = at, end

    def run(self) -> None:
        for number in range(self.at, self.end):
            hand_on(self.q, (number, np.random.default_rng(number).normal(size=3)), self.over)


class Tzu(threading.Thread):
    """The same, under names that mean nothing."""

    over = threading.Event()

    def __init__(self, at: int, end: int, ahead: int) -> None:
        super().__init__(daemon=True)
        self.q: queue.Queue[Any] = queue.Queue(ahead)
        self.at, self.end = at, end

    def run(self) -> None:
        while self.at < self.end:
            hand_on(self.q, (self.at, np.random.default_rng(self.at).normal(size=3)), self.over)
            self.at += 1


@pytest.fixture(autouse=True)
def _end_threads() -> Iterator[None]:
    yield
    for kind in (Producer, Tzu):
        kind.over.set()
        for thread in threading.enumerate():
            if isinstance(thread, kind):
                thread.join()
        kind.over.clear()


@pytest.mark.parametrize("made", [Producer, Tzu])
@pytest.mark.parametrize("lost", ["", "m", "feed"])
def test_how_far_a_thread_of_a_class_of_ones_own_has_come_is_no_loss(made: Any, lost: str) -> None:
    def train(folder: Path, steps: int) -> None:
        w, m, done, ahead, file = np.zeros(3), np.zeros(3), 0, 4, folder / "state"
        if file.exists():
            w, kept, done = pickle.loads(file.read_bytes())
            m, ahead = kept if lost != "m" else m, 1
        p = made(0 if lost == "feed" else done, steps, ahead)
        p.start()
        while not p.q.full() and p.is_alive():
            time.sleep(0.001)
        for step in range(done, steps):
            parity.mark(step)
            _, x = p.q.get()
            m = 0.9 * m + (w - x)
            w = w - 0.1 * m
            if step % 3 == 2:
                file.write_bytes(pickle.dumps((w, m, step + 1)))

    found = parity.resumes(train, steps=14, stop_at=9, mode="inline", scenarios=("kill", "again", "third"))
    if lost:
        assert found.verdict == "broken"
        assert not any("threads[" in e.path or "unfinished" in e.path for e in found.suspects), found.text()
        assert lost == "feed" or found.suspects[0].path == "m", found.text()
    else:
        assert found.verdict == "holds", found.text()
        assert not found.bookkeeping, found.text()


@pytest.mark.parametrize("lost", [False, True])
def test_a_queue_that_no_thread_fills_is_state_and_how_often_it_was_filled_is_not(lost: bool) -> None:
    found = _of_a_queue(lost)
    assert found.verdict == ("broken" if lost else "holds"), found.text()
    assert not any("unfinished" in e.path for e in (*found.suspects, *found.bookkeeping)), found.text()
    assert not lost or found.suspects[0].path.startswith("todo.queue"), found.text()


def _of_a_queue(lost: bool) -> Resumption:
    def train(folder: Path, steps: int) -> Iterator[int]:
        w, done, file = np.zeros(3), 0, folder / "state"
        todo: queue.Queue[int] = queue.Queue()
        kept = [3, 1]
        if file.exists():
            w, kept, done = pickle.loads(file.read_bytes())
            kept = [3, 1] if lost else kept
        for number in kept:
            todo.put(number)
        while done < steps:
            yield done
            number = todo.get()
            w = 0.9 * w + np.random.default_rng(number).normal(size=3)
            todo.put((number * 7 + done) % 31)
            done += 1
            if done % 3 == 0:
                file.write_bytes(pickle.dumps((w, list(todo.queue), done)))

    return parity.resumes(train, steps=14, stop_at=9, mode="inline", scenarios="kill")


def test_a_thread_is_shown_once_by_what_holds_it_and_one_of_another_run_not_at_all() -> None:
    end = threading.Event()

    def wait(kept: Any) -> None:
        end.wait()

    before = threading.enumerate()
    former = threading.Thread(target=wait, args=(np.zeros(2),), daemon=True)
    held = threading.Thread(target=wait, args=(np.ones(3),), daemon=True)
    alone = threading.Thread(target=wait, args=(np.ones(4),), daemon=True)
    for thread in (former, held, alone):
        thread.start()
    walk = Walk()
    walk.noted[OTHERS] = [*before, former]
    code = _of_a_queue.__code__
    leaves = capture([Scope("", code, -1, {"worker": held}, {})], walk=walk).leaves
    end.set()
    for thread in (former, held, alone):
        thread.join()
    gc.collect()
    assert {path for path, leaf in leaves.items() if leaf.kind.startswith("float64[")} == {
        "worker._args[0]",
        "threads[0]._args[0]",
    }
    assert leaves["threads[0]._args[0]"].kind == "float64[4]"
    assert not any(
        leaf.role == "alias" for path, leaf in leaves.items() if path.startswith("threads") and "_target" not in path
    )
