"""What is made ahead or on demand, is not there after a resume, and is made again by its first step is no loss."""

import pickle
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import parity
from parity.checks.judging.presence import is_tested_alone
from parity.results import Resumption

Trainer = Callable[[Path, int], Iterator[int]]


class Prefetcher:
    """Has the next batch ready; the first one is loaded when it is asked for."""

    def __init__(self, at: int) -> None:
        self.at, self.ahead = at, None

    def load(self) -> tuple[Any, int]:
        self.at += 1
        return np.random.default_rng(self.at).normal(size=(4, 3)), self.at

    def next(self) -> Any:
        if self.ahead is None:
            self.ahead = self.load()
        batch, self.ahead = self.ahead, self.load()
        return batch[0]


class World:
    """Is observed on demand; the observation is made of a state that is saved."""

    def __init__(self) -> None:
        self.state, self.t, self.q = np.zeros(2), 0, None

    def observe(self) -> Any:
        if self.q is None:
            self.q = np.append(self.state, np.sin(self.t))
        return self.q

    def act(self, force: Any) -> None:
        self.state, self.t, self.q = 0.9 * self.state + force, self.t + 1, None
        self.observe()


def ahead(lost: str) -> Trainer:
    def train(folder: Path, steps: int) -> Iterator[int]:
        w, v, n, file = np.zeros(3), np.zeros(3), 0, folder / "state"
        if file.exists():
            w, v_then, n = pickle.loads(file.read_bytes())
            v = v if lost == "v" else v_then
        data = Prefetcher(0 if lost == "at" else n)
        while n < steps:
            yield n
            x = data.next()
            v = 0.9 * v + x.T @ (x @ (w - 1)) / 4
            w, n = w - 0.1 * v, n + 1
            if n % 3 == 0:
                file.write_bytes(pickle.dumps((w, v, n)))

    return train


def on_demand(lost: str) -> Trainer:
    def train(folder: Path, steps: int) -> Iterator[int]:
        w, n, world, file = np.full((2, 3), 0.1), 0, World(), folder / "state"
        if file.exists():
            w, n, state, world.t = pickle.loads(file.read_bytes())
            world.state = world.state if lost == "state" else state
        while n < steps:
            yield n
            seen = world.observe()
            force = w @ seen + 0.1
            world.act(force)
            w, n = w + 0.01 * np.outer(force, seen), n + 1
            if n % 4 == 0:
                file.write_bytes(pickle.dumps((w, n, world.state, world.t)))

    return train


def by_variable(lost: str) -> Trainer:
    """The same in variables of the loop, under names that mean nothing."""

    def train(folder: Path, steps: int) -> Iterator[int]:
        a, b, k, z, file = np.zeros(3), np.zeros(3), 0, None, folder / "state"
        if file.exists():
            a, c, k = pickle.loads(file.read_bytes())
            b = b if lost == "b" else c
        while k < steps:
            yield k
            if z is None:
                z = np.random.default_rng(k).normal(size=3)
            b = 0.9 * b + a - z
            a, k = a - 0.1 * b, k + 1
            z = np.random.default_rng(k).normal(size=3)
            if k % 3 == 0:
                file.write_bytes(pickle.dumps((a, b, k)))

    return train


def judged(train: Trainer) -> Resumption:
    return parity.resumes(train, steps=16, stop_at=10, mode="inline", scenarios=("kill", "again", "third"))


@pytest.mark.parametrize("train", [ahead(""), on_demand(""), by_variable("")])
def test_what_the_first_step_makes_and_takes_is_no_loss(train: Trainer) -> None:
    found = judged(train)
    assert found.verdict == "holds", found.text()


@pytest.mark.parametrize(
    ("train", "named"),
    [(ahead("v"), "v"), (ahead("at"), "data."), (on_demand("state"), "world."), (by_variable("b"), "b")],
)
def test_what_it_is_made_of_is_lost_and_named(train: Trainer, named: str) -> None:
    found = judged(train)
    assert found.verdict == "broken", found.text()
    assert found.suspects[0].path.startswith(named), found.text()


@pytest.mark.parametrize("way", ["compared", "least", "unused"])
def test_what_the_step_need_not_have_taken_is_lost(way: str) -> None:
    def train(folder: Path, steps: int) -> Iterator[int]:
        w, n, best, kept, found, file = np.ones(3), 0, None, None, 0, folder / "state"
        if file.exists():
            w, n, found = pickle.loads(file.read_bytes())
        while n < steps:
            yield n
            w, n = w - 0.1 * (w - 0.3 * np.sin(n)), n + 1
            loss = (n * 7) % 11
            if way == "compared":
                if best is None or loss < best:
                    best, found = loss, n
            elif way == "least":
                if best is None:
                    best = loss
                found += best
                best = min(best, loss)
            elif kept is None or n % 5 == 4:
                kept, found = w.copy(), n
            if n % 4 == 0:
                file.write_bytes(pickle.dumps((w, n, found)))
        (folder / "found").write_text(str(found))

    found = parity.resumes(train, steps=16, stop_at=10, mode="inline", scenarios="kill")
    assert found.verdict == "broken", found.text()


class Factor:
    """Is built when something was added; a new process builds it again."""

    def __init__(self) -> None:
        self.rows, self.stale, self.root = [0.3], True, np.zeros((1, 1))

    def add(self, row: float) -> None:
        self.rows.append(row)
        self.stale = True

    def solve(self, number: int) -> float:
        if self.stale:
            x = np.array(self.rows)[:, None]
            self.root = np.linalg.cholesky(np.exp(-((x - x.T) ** 2)) + 0.1 * np.eye(len(x)))
            self.stale = False
        return float(np.linalg.solve(self.root, np.ones(len(self.root))).sum())


class Zot(Factor):
    """The same under names that mean nothing, by the contrary."""

    def __init__(self) -> None:
        super().__init__()
        self.u = False

    def add(self, row: float) -> None:
        self.rows.append(row)
        self.u = False

    def solve(self, number: int) -> float:
        if not self.u:
            self.stale, self.u = True, True
        return super().solve(number)


class Now(Factor):
    """Renews its rows at some steps, if the step before was an odd one: the flag decides with a number."""

    full = False

    def solve(self, number: int) -> float:
        if self.full and number % 7 == 6:
            self.rows = self.rows[1:]
            self.stale = True
        self.full = number % 2 == 1
        return super().solve(number)


def solves(kind: Any) -> Trainer:
    def train(folder: Path, steps: int) -> Iterator[int]:
        one, w, n, file = kind(), 0.0, 0, folder / "state"
        if file.exists():
            one.rows, w, n = pickle.loads(file.read_bytes())
        while n < steps:
            yield n
            w, n = 0.9 * w + one.solve(n), n + 1
            if n % 3 == 1:
                one.add(float(np.sin(n)))
            if n % 2 == 0:
                file.write_bytes(pickle.dumps((one.rows, w, n)))

    return train


@pytest.mark.parametrize(("kind", "lost"), [(Factor, False), (Zot, False), (Now, True)])
def test_a_flag_by_which_work_is_done_once_more_is_lost_where_it_decides_more(kind: Any, lost: bool) -> None:
    found = judged(solves(kind))
    assert found.verdict == ("broken" if lost else "holds"), found.text()


@pytest.mark.parametrize(
    ("source", "alone"),
    [
        ("if x.on:\n    x.on = False", True),
        ("if not x.on: pass\ny = 1 if x.on else 2", True),
        ("if x.on and n > 2: pass", False),
        ("if x.on: pass\nsave(x.on)", False),
        ("was = x.on", False),
    ],
)
def test_a_flag_is_tested_alone_or_not(source: str, alone: bool, tmp_path: Path) -> None:
    (tmp_path / "one.py").write_text(source)
    assert is_tested_alone("on", [str(tmp_path / "one.py")]) == alone


class Keeper:
    def __init__(self) -> None:
        self.least: float | None = None

    def see(self, value: float) -> float:
        if self.least is None or value < self.least:
            self.least = value
        return self.least


@pytest.mark.parametrize("kept", ["variable", "object"])
def test_a_best_value_is_lost_though_the_first_step_improves_on_it_in_both_runs(kept: str) -> None:
    """That the step after the resume writes the same file is an outcome of this loss curve, not of every one."""

    def train(folder: Path, steps: int) -> Iterator[int]:
        w, n, keeper, best, file = np.full(3, 4.0), 0, Keeper(), None, folder / "state"
        if file.exists():
            w, n = pickle.loads(file.read_bytes())
        while n < steps:
            yield n
            loss, w, n = float(w @ w), w * 0.9, n + 1
            if kept == "variable":
                if best is None or loss < best:
                    best = loss
                    (folder / "best").write_bytes(w.tobytes())
            elif keeper.see(loss) == loss:
                (folder / "best").write_bytes(w.tobytes())
            if n % 3 == 0:
                file.write_bytes(pickle.dumps((w, n)))

    found = parity.resumes(train, steps=12, stop_at=7, mode="inline")
    assert found.verdict == "broken", found.text()
