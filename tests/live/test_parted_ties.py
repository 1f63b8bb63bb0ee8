"""One array or object under two names: a resume that parts it, or makes one of two, leaves all values equal."""

import copy
import pickle
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import parity
from parity.results import Resumption

Trainer = Callable[[Path, int], Iterator[int]]


def judged(train: Trainer) -> Resumption:
    return parity.resumes(train, steps=14, stop_at=9, mode="inline", scenarios="kill")


class Layer:
    def __init__(self, p: Any) -> None:
        self.p = p


def arrays(after: str) -> Trainer:
    """Two layers change one array in place; a third holds one of its own."""

    def train(folder: Path, steps: int) -> Iterator[int]:
        w, n, file = np.ones(3), 0, folder / "state"
        one, two, three = Layer(np.ones(3)), Layer(np.ones(3)), Layer(np.ones(3))
        two.p = one.p
        if file.exists():
            w, one.p, three.p, n = pickle.loads(file.read_bytes())
            two.p = one.p.copy() if after == "apart" else one.p
            if after == "together":
                three.p = one.p
        while n < steps:
            yield n
            one.p -= 0.01 * w
            two.p *= 0.99
            three.p -= 0.02 * w
            w = w + 0.01 * (one.p + two.p + three.p)
            n += 1
            file.write_bytes(pickle.dumps((w, one.p.copy(), three.p.copy(), n)))

    return train


def objects(after: str) -> Trainer:
    """The same with numbers in objects, in a list, by other words."""

    def train(folder: Path, steps: int) -> Iterator[int]:
        v, k, file = np.ones(3), 0, folder / "state"
        a = [Layer(1.0), Layer(2.0)]
        a.append(a[0])
        if file.exists():
            v, a, k = pickle.loads(file.read_bytes())
            a[2] = copy.deepcopy(a[2]) if after == "apart" else a[0]
        while k < steps:
            yield k
            a[0].p *= 0.9
            a[2].p += 0.1
            v = v - 0.01 * v * (a[0].p + a[2].p) - 0.01 * a[1].p
            k += 1
            file.write_bytes(pickle.dumps((v, a, k)))

    return train


@pytest.mark.parametrize(
    ("made", "after", "named"),
    [(arrays, "apart", "two.p"), (arrays, "together", "three.p"), (objects, "apart", "a[2]")],
)
def test_the_tie_is_named_at_the_resume(made: Callable[[str], Trainer], after: str, named: str) -> None:
    assert judged(made("")).verdict == "holds"
    found = judged(made(after))
    first = found.suspects[0]
    assert (found.verdict, first.path, first.when) == ("broken", named, "at the resume"), found.text()
    assert "one object again" in first.advice or "two objects again" in first.advice


def copies(lost: str) -> Trainer:
    """The best weights are the weights themselves until a step makes others: after a resume they are a copy."""

    def train(folder: Path, steps: int) -> Iterator[int]:
        w, best, rate, n, file = np.ones(3), np.ones(3), 0.1, 0, folder / "state"
        if file.exists():
            w, best, kept, n = (copy.deepcopy(one) for one in pickle.loads(file.read_bytes()))
            best, rate = best.copy(), rate if lost else kept
        while n < steps:
            yield n
            w = w - rate * (w - np.random.default_rng(n).normal(size=3)) - 0.01 * (w - best)
            rate, n = rate * 0.97, n + 1
            if n % 3 == 0:
                best = w
            file.write_bytes(pickle.dumps((w, best, rate, n)))

    return train


def test_what_is_one_by_chance_is_no_tie() -> None:
    assert judged(copies("")).verdict == "holds"
    found = judged(copies("rate"))
    assert (found.verdict, found.suspects[0].path) == ("broken", "rate"), found.text()
    assert all(one.path != "best" for one in found.suspects if one.when == "at the resume")
