"""What weak dictionaries and sets keep: told by the paths of the objects that it is kept for."""

import gc
import pickle
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import torch

import parity
from parity.results import Resumption

Trainer = Callable[[Path, int], Iterator[int]]


class Kept:
    """Gives each object a value of its own."""

    def __init__(self) -> None:
        self.by: weakref.WeakKeyDictionary[Any, float] = weakref.WeakKeyDictionary()

    def __get__(self, owner: Any, cls: type) -> Any:
        return self.by.get(owner, 1.0)

    def __set__(self, owner: Any, value: float) -> None:
        self.by[owner] = max(value, 0.1)


class Rate:
    decay = Kept()
    quiet: ClassVar[weakref.WeakSet[Any]] = weakref.WeakSet()

    def step(self, w: Any, x: Any) -> Any:
        self.decay *= 0.9
        return w - 0.1 * self.decay * (w - x) * (0.5 if self in Rate.quiet else 1.0)


def trainer(lost: str) -> Trainer:
    def train(folder: Path, steps: int) -> Iterator[int]:
        w, n, file = np.ones(3), 0, folder / "state"
        rate = Rate()
        other = Rate()
        Rate.quiet.update((rate, other))
        if file.exists():
            w, n, decay, quiet = pickle.loads(file.read_bytes())
            if lost != "decay":
                rate.decay = decay
            if lost != "quiet" and not quiet:
                Rate.quiet.discard(rate)
        while n < steps:
            yield n
            if n == 4:
                Rate.quiet.discard(rate)
            w = rate.step(w, np.random.default_rng(n).normal(size=3))
            n += 1
            file.write_bytes(pickle.dumps((w, n, rate.decay, rate in Rate.quiet)))

    return train


def judged(train: Trainer) -> Resumption:
    return parity.resumes(train, steps=14, stop_at=9, mode="inline")


@pytest.mark.parametrize(("lost", "named"), [("decay", "Rate.decay.by[rate]"), ("quiet", "Rate.quiet")])
def test_what_was_kept_for_an_object_is_named_by_its_path(lost: str, named: str) -> None:
    assert judged(trainer("")).verdict == "holds"
    found = judged(trainer(lost))
    first = found.suspects[0]
    assert (found.verdict, first.when) == ("broken", "at the resume"), found.text()
    assert first.path.partition(":")[2] == named, found.text()


class Tracked:
    """Keeps a value for each object that was given one."""

    def __init__(self, default: float) -> None:
        self.default = default
        self.store: weakref.WeakKeyDictionary[Any, float] = weakref.WeakKeyDictionary()

    def __get__(self, owner: Any, cls: type) -> Any:
        return self.store.get(owner, self.default)

    def __set__(self, owner: Any, value: float) -> None:
        self.store[owner] = value


class Cycled:
    """Stays in memory after its run until it is collected: it refers to itself."""

    rate = Tracked(0.5)

    def __init__(self) -> None:
        self.w, self.me = np.ones(3), self
        self.sgd = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=0.1)


def of_defaults(lost: bool) -> Trainer:
    """Return a trainer that has given its object no value yet when it begins."""

    def train(folder: Path, steps: int) -> Iterator[int]:
        held, n, file = Cycled(), 0, folder / "state"
        if file.exists():
            held.w, n, rate = pickle.loads(file.read_bytes())
            if not lost:
                held.rate = rate
        while n < steps:
            yield n
            held.w = held.w - held.rate * (held.w - n % 3)
            held.rate = 0.95 * held.rate
            n += 1
            if n % 4 == 0:
                file.write_bytes(pickle.dumps((held.w, n, held.rate)))

    return train


@pytest.fixture
def no_collector() -> Iterator[None]:
    """Collect where it is asked for alone."""
    gc.disable()
    yield
    gc.enable()


@pytest.mark.usefixtures("no_collector")
def test_what_was_kept_in_the_run_before_is_not_met_again() -> None:
    assert judged(of_defaults(False)).verdict == "holds"
    found = judged(of_defaults(True))
    assert found.verdict == "broken"
    assert "Cycled.rate.store" in found.suspects[0].path, found.text()


class Storage:
    def __init__(self, start: int) -> None:
        self.iter = start
        self.seen: list[Any] = []


class Saver:
    """A hook that holds its trainer by a proxy, and decides by a number that another object has a name alike for."""

    def __init__(self, trainer: Any) -> None:
        self.trainer = trainer

    def after_step(self, folder: Path) -> None:
        if (self.trainer.iter + 1) % 5 == 0:
            state = self.trainer.iter + 1, self.trainer.w, self.trainer.storage.seen
            (folder / "state").write_bytes(pickle.dumps(state))


class HookedTrainer:
    def __init__(self, start: int, w: Any, storage: Storage) -> None:
        self.iter, self.w, self.storage = start, w, storage
        self.hook = Saver(weakref.proxy(self))

    def run(self, folder: Path, steps: int) -> None:
        begun = self.iter
        for self.iter in range(begun, steps):
            parity.mark(self.iter)
            self.storage.iter = self.iter
            self.w = self.w * 0.9 + 0.01 * self.iter
            self.storage.seen.append((float(self.w[0]), self.storage.iter))
            self.hook.after_step(folder)


def hooked(lost: bool) -> Callable[[Path, int], Any]:
    def train(folder: Path, steps: int) -> Any:
        start, w, seen = 0, np.ones(3), []
        if (folder / "state").exists():
            start, w, seen = pickle.loads((folder / "state").read_bytes())
        storage = Storage(start)
        storage.seen = [] if lost else seen
        HookedTrainer(start, w, storage).run(folder, steps)
        return storage.seen

    return train


def test_a_condition_that_takes_a_value_through_a_proxy_takes_that_of_the_object() -> None:
    held = parity.resumes(hooked(False), steps=30, stop_at=18, mode="inline", scenarios="all")
    assert held.verdict == "holds", held.text()
    found = parity.resumes(hooked(True), steps=30, stop_at=18, mode="inline")
    assert (found.verdict, found.suspects[0].when) == ("broken", "at the resume"), found.text()
