"""What lies outside of what a look at this process shows is listed as not seen, and decides nothing."""

from __future__ import annotations

import multiprocessing
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, nullcontext
from multiprocessing.pool import ThreadPool
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import parity


def loop(held: Callable[[], AbstractContextManager[Any]]) -> Callable[[Path, int], Iterator[int]]:
    """Return a clean loop that has something beside its weights."""

    def train(folder: Path, steps: int) -> Iterator[int]:
        with held() as beside:
            weights, start = np.zeros(3), 0
            for found in sorted(folder.glob("state-*.npy")):
                weights, start = np.load(found), int(found.stem.partition("-")[2])
            for step in range(start, steps):
                yield step
                weights = weights * 0.9 + step
                np.save(folder / f"state-{step + 1:03}.npy", weights)
            del beside

    return train


def processes() -> ProcessPoolExecutor:
    return ProcessPoolExecutor(1, multiprocessing.get_context("spawn"))


@contextmanager
def done() -> Iterator[Future[int]]:
    with ThreadPoolExecutor(1) as pool:
        future = pool.submit(threading.get_ident)
        future.result()
        yield future


PLACES: dict[str, tuple[Callable[[], AbstractContextManager[Any]], str]] = {
    "a future": (lambda: nullcontext(Future()), "a result that is not there yet"),
    "a pool of processes": (processes, "what the processes of a pool hold"),
}


@pytest.mark.parametrize("name", PLACES)
def test_what_is_elsewhere_is_listed(name: str) -> None:
    held, why = PLACES[name]
    found = parity.resumes(loop(held), steps=8, scenarios="kill", mode="inline")
    assert found.verdict == "holds", found.text()
    assert any(why in text for text in found.unseen.values()), found.unseen
    assert "1 not seen" in found.text(), found.text()
    assert "not seen: beside." in found.text(), found.text()


WITHOUT: dict[str, Callable[[], AbstractContextManager[Any]]] = {
    "a future that is done": done,
    "threads of an executor": lambda: ThreadPoolExecutor(1),
    "threads of a pool": lambda: ThreadPool(1),
}


@pytest.mark.parametrize("name", WITHOUT)
def test_what_is_in_this_process_is_not_listed(name: str) -> None:
    found = parity.resumes(loop(WITHOUT[name]), steps=8, scenarios="kill", mode="inline")
    assert found.verdict == "holds", found.text()
    assert not any("pool" in text or "not there yet" in text for text in found.unseen.values()), found.unseen
