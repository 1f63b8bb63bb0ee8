"""What a statement of a `try` may leave as it was: lost where an `except` clause keeps it, made anew elsewhere."""

import math
import pickle
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import parity
from parity.results import Resumption

Trainer = Callable[[Path, int], Iterator[int]]


def load(folder: Path) -> dict[str, Any]:
    path = folder / "state.pkl"
    return pickle.loads(path.read_bytes()) if path.exists() else {"w": np.ones(2), "n": 0}


def save(folder: Path, **state: Any) -> None:
    (folder / "state.pkl").write_bytes(pickle.dumps(state))


def keeps_a_limit(lost: bool) -> Trainer:
    def train(folder: Path, steps: int) -> Iterator[int]:
        plan, kept = {5: 40}, load(folder)
        w, limit = kept["w"], 1000 if lost else kept.get("limit", 1000)
        for n in range(kept["n"], steps):
            yield n
            try:
                limit = plan[n]
            except KeyError:
                print("as before", n)
            if n > limit:
                break
            w = w - 0.3 * (w - math.sin(n))
            if n % 4 == 3:
                save(folder, w=w, n=n + 1, limit=limit)

    return train


def keeps_a_rate(lost: bool) -> Trainer:
    def train(folder: Path, steps: int) -> Iterator[int]:
        kept = load(folder)
        rates = iter([0.4, 0.3, 0.2, 0.1][min(kept["n"], 4) :])
        w, rate = kept["w"], 0.4 if lost else kept.get("rate", 0.4)
        for n in range(kept["n"], steps):
            yield n
            try:
                rate = next(rates)
            except StopIteration as over:
                print("the last one stays", over.value)
            w = w - rate * (w - math.sin(n))
            if n % 4 == 3:
                save(folder, w=w, n=n + 1, rate=rate)

    return train


@pytest.mark.parametrize("make", [keeps_a_limit, keeps_a_rate])
def test_a_number_that_a_clause_keeps_is_lost(make: Callable[[bool], Trainer]) -> None:
    found = check(make(True))
    assert found.verdict == "broken", found
    assert found.suspects[0].path == {keeps_a_limit: "limit", keeps_a_rate: "rate"}[make]
    assert check(make(False)).verdict == "holds"


def skips_a_batch(folder: Path, steps: int) -> Iterator[int]:
    kept = load(folder)
    w = kept["w"]
    for n in range(kept["n"], steps):
        yield n
        try:
            loss = float((w - math.sin(n)) @ (w - math.sin(n))) / (n % 50 - 49)
        except ZeroDivisionError:
            print("a bad batch at", n)
            continue
        if loss > 1e6:
            break
        w = w - 0.3 * (w - math.sin(n))
        if n % 4 == 3:
            save(folder, w=w, n=n + 1)


def says_what_failed(folder: Path, steps: int) -> Iterator[int]:
    kept, loss, status = load(folder), math.nan, "begun"
    w = kept["w"]
    for n in range(kept["n"], steps):
        yield n
        try:
            gradient = w - math.sin(n)
            loss = float(gradient @ gradient)
            status = "fine"
        except FloatingPointError:
            gradient = np.zeros(2)
            status = "overflow"
        finally:
            print(n, status)
        print(loss)
        w = w - 0.3 * gradient
        if n % 4 == 3:
            save(folder, w=w, n=n + 1)


def begins_an_epoch(folder: Path, steps: int) -> Iterator[int]:
    kept = load(folder)
    w, n = kept["w"], kept["n"]
    batches = iter(range(n % 6, 6))
    while n < steps:
        yield n
        try:
            batch = next(batches)
        except StopIteration:
            batches = iter(range(6))
            batch = next(batches)
        w, n = w - 0.3 * (w - batch), n + 1
        if n % 4 == 0:
            save(folder, w=w, n=n)


def tries_again(folder: Path, steps: int) -> Iterator[int]:
    kept = load(folder)
    w = kept["w"]
    for n in range(kept["n"], steps):
        yield n
        for attempt in range(3):
            try:
                gradient = w - math.sin(n)
                break
            except OSError:
                if attempt == 2:
                    raise
        w = w - 0.3 * gradient
        if n % 4 == 3:
            save(folder, w=w, n=n + 1)


@pytest.mark.parametrize("train", [skips_a_batch, says_what_failed, begins_an_epoch, tries_again])
def test_what_each_step_makes_anew_in_a_try_is_not_lost(train: Trainer) -> None:
    found = check(train)
    assert found.verdict == "holds", found


def check(train: Trainer) -> Resumption:
    return parity.resumes(train, steps=20, stop_at=13, mode="inline", scenarios=("kill", "third", "intervals"))
