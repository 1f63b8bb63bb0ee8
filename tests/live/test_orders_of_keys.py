"""The order of the keys of a mapping: named where code takes elements by their places, and nowhere else."""

import hashlib
import json
from collections import OrderedDict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import parity
from parity.capture import Walk
from parity.results import Resumption

Trainer = Callable[[Path, int], Iterator[int]]


def judged(train: Trainer) -> Resumption:
    return parity.resumes(train, steps=16, stop_at=10, mode="inline", scenarios="kill")


def of_lately_used(*, is_sorted: bool) -> Trainer:
    """Keeps three sums, and takes what the one that was not used for longest holds."""

    def train(folder: Path, steps: int) -> Iterator[int]:
        w, n, lately, file = np.ones(3), 0, OrderedDict[str, float](), folder / "state"
        if file.exists():
            weights, n, kept = json.loads(file.read_text())
            w, lately = np.array(weights), OrderedDict(sorted(kept) if is_sorted else kept)
        while n < steps:
            yield n
            w = w - 0.1 * (w - np.random.default_rng(n).normal(size=3))
            n += 1
            key = str(n * 7 % 5)
            lately[key] = lately.pop(key, 0.0) + float(w @ w)
            if len(lately) > 3:
                w = w * (1 - 0.01 * lately.popitem(last=False)[1])
            file.write_text(json.dumps([w.tolist(), n, list(lately.items())]))

    return train


def of_turns(*, is_sorted: bool) -> Trainer:
    """The same of a plain dict, by other words: whose turn it is goes to the end."""

    def train(folder: Path, steps: int) -> Iterator[int]:
        v, k, o, file = np.ones(3), 0, {"q": {"x": 0.1, "y": 0.2, "z": 0.3}}, folder / "state"
        if file.exists():
            u, k, o = json.loads(file.read_text())
            v = np.array(u)
        while k < steps:
            yield k
            a = next(iter(o["q"]))
            b = o["q"].pop(a)
            v = v * (1 - 0.1 * b)
            o["q"][a] = b * 0.99
            k += 1
            file.write_text(json.dumps([v.tolist(), k, o], sort_keys=is_sorted))

    return train


@pytest.mark.parametrize(("made", "named"), [(of_lately_used, "lately"), (of_turns, "o.q")])
def test_an_order_that_is_taken_is_named(made: Callable[..., Trainer], named: str) -> None:
    assert judged(made(is_sorted=False)).verdict == "holds"
    found = judged(made(is_sorted=True))
    first = found.suspects[0]
    assert (found.verdict, first.path, first.when) == ("broken", named, "at the resume"), found.text()
    assert "order" in first.advice


def by_name(lost: str) -> Trainer:
    """Weights by their names, which come back sorted; what a digest has taken in is seen by nobody."""

    def train(folder: Path, steps: int) -> Iterator[int]:
        w, rate, n, file = {name: np.ones(2) for name in ("out", "in", "mid")}, 0.1, 0, folder / "state"
        past, hidden = list[int](), hashlib.md5()
        if file.exists():
            weights, kept, n, past = json.loads(file.read_text())
            w = {name: np.array(one) for name, one in weights.items()}
            rate = rate if lost == "rate" else kept
            for one in [] if lost == "hidden" else past:
                hidden.update(bytes([one]))
        while n < steps:
            yield n
            for name in w:
                w[name] = w[name] - rate * (w[name] - hidden.digest()[0] / 256)
            hidden.update(bytes([n]))
            rate, n, past = rate * 0.97, n + 1, [*past, n]
            weights = {name: one.tolist() for name, one in w.items()}
            file.write_text(json.dumps([weights, rate, n, past], sort_keys=True))

    return train


def test_an_order_that_nothing_takes_is_no_loss() -> None:
    assert judged(by_name("")).verdict == "holds"


@pytest.mark.parametrize("lost", ["rate", "hidden"])
def test_an_order_that_nothing_takes_is_not_named_for_what_was_lost(lost: str) -> None:
    found = judged(by_name(lost))
    assert found.verdict == "broken"
    assert found.suspects[0].path != "w", found.text()
    assert lost == "hidden" or found.suspects[0].path == "rate"


def test_two_orders_are_one_state() -> None:
    def see(value: Any) -> Any:
        walk = Walk()
        walk.root("it", value)
        return walk.finish()

    one, other = see({"a": 1, "b": 2}), see({"b": 2, "a": 1})
    assert one.leaves == other.leaves
    assert (one.orders, other.orders) == ({"it": "a, b"}, {"it": "b, a"})
