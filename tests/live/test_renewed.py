"""What every so many steps renew, after each save among others, is no loss; it is where saves fall in between."""

import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import parity
from parity.capture import Leaf, StateSnapshot
from parity.checks.judging.renewed import is_renewed_after_saves
from parity.checks.running import Mark
from parity.results import Resumption
from tests.live.small_loops import Trainer


class Search:
    """Draws around a mean by a factor that is renewed every fourth step, and not saved."""

    def __init__(self) -> None:
        self.mean, self.spread, self.n, self.rng = np.zeros(3), np.eye(3), 0, np.random.default_rng(1)
        self.factor: Any = None

    def step(self) -> None:
        if self.factor is None or self.n % 4 == 0:
            self.factor = np.linalg.eigh(self.spread)
        d, b = self.factor
        x = self.mean + b @ (np.sqrt(d) * self.rng.normal(size=3))
        self.spread = 0.9 * self.spread + 0.1 * np.outer(x, x)
        self.mean = 0.8 * self.mean + 0.2 * (x - 1)
        self.n += 1

    def __getstate__(self) -> dict[str, Any]:
        return vars(self) | {"factor": None}


class Qux:
    """The same under names that mean nothing."""

    def __init__(self) -> None:
        self.a, self.v, self.n, self.r = np.zeros(3), np.eye(3), 0, np.random.default_rng(1)
        self.z: Any = None

    def step(self) -> None:
        if not (self.z is not None and self.n % 4):
            self.z = np.linalg.eigh(self.v)
        x = self.a + self.z[1] @ (np.sqrt(self.z[0]) * self.r.normal(size=3))
        self.v, self.a = 0.9 * self.v + 0.1 * np.outer(x, x), 0.8 * self.a + 0.2 * (x - 1)
        self.n += 1

    def __getstate__(self) -> dict[str, Any]:
        return vars(self) | {"z": None}


def searches(kind: Any, every: int) -> Trainer:
    def train(folder: Path, steps: int) -> Iterator[int]:
        one, file = kind(), folder / "search.pkl"
        if file.exists():
            one = pickle.loads(file.read_bytes())
        while one.n < steps:
            yield one.n
            one.step()
            if one.n % every == 0:
                file.write_bytes(pickle.dumps(one))

    return train


def judged(kind: Any, every: int) -> Resumption:
    return parity.resumes(searches(kind, every), steps=18, stop_at=10, mode="inline", scenarios=("kill", "third"))


@pytest.mark.parametrize("kind", [Search, Qux])
def test_what_is_renewed_after_every_save_is_no_loss(kind: Any) -> None:
    found = judged(kind, 4)
    assert found.verdict == "holds", found.text()
    assert found.bookkeeping, found.text()  # it differs, and is said


@pytest.mark.parametrize("kind", [Search, Qux])
@pytest.mark.parametrize("every", [1, 2, 3])
def test_what_other_saves_come_before_is_a_loss(kind: Any, every: int) -> None:
    found = judged(kind, every)
    assert found.verdict == "broken", found.text()
    assert found.suspects[0].path.startswith(("one.factor", "one.z")), found.text()


@pytest.mark.parametrize(
    ("values", "saves", "renewed"),
    [
        ("aaabbbcccddd", [3, 6], False),  # renewed in the step before each save
        ("aaabbbcccddd", [2, 5], True),
        ("aaabbbcccddd", [2, 5, 7], False),  # one save in between
        ("aaabbbcccddd", [2], False),  # one save alone
        ("aaabbccccddd", [2, 4], False),  # when things turn out so
        ("aaabbbcccccc", [2, 5], False),  # twice, and not any more
        ("abcdefghijkl", [2, 5], False),  # in each step, as a best value of one that learns
    ],
)
def test_what_is_renewed_after_saves_keeps_to_a_period(values: str, saves: list[int], renewed: bool) -> None:
    marks = [Mark(at, StateSnapshot({"x": Leaf("scalar", "x", "str", value)})) for at, value in enumerate(values)]
    assert is_renewed_after_saves("x", marks, saves) == renewed
