"""A resumed run that fails in its first step: what that step would have set before reading it is not named for it."""

import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

import parity
from parity.results import Resumption
from tests.live.test_nothing_follows import Trainer


def check(train: Trainer) -> Resumption:
    return parity.resumes(train, steps=12, stop_at=8, mode="inline", scenarios=("kill",))


class Loop:
    """A loop whose error is set by each step, after which a plateau is counted by it."""

    def __init__(self) -> None:
        self.weight, self.error, self.least, self.gain = np.zeros(3), 0.0, 1e9, 1.0
        self.noise = np.random.RandomState(5)

    def step(self, at: int) -> None:
        x = np.random.default_rng(at).normal(size=3)
        if at % 2 == 0 and self.error > 1e6:  # of the step before
            self.gain *= 0.5
        self.weight = self.weight - 0.1 * self.gain * (self.weight - x) * float(self.noise.uniform(0.9, 1.1))

    def measure(self, at: int) -> None:
        self.error = float(((self.weight - np.random.default_rng(at).normal(size=3)) ** 2).sum())
        if self.error < self.least:
            self.least = self.error
        else:
            self.gain *= 0.9


def attributes(*, measured_first: bool, whole: bool) -> Trainer:
    """Return a trainer that keeps its noise as it is, or as a state that is set in place of the generator."""

    def train(folder: Path, steps: int) -> Iterator[int]:
        loop, start, file = Loop(), 0, folder / "state"
        if file.exists():
            start, loop.weight, loop.least, loop.gain, noise = pickle.loads(file.read_bytes())
            loop.noise = noise
        for at in range(start, steps):
            yield at
            if measured_first:
                loop.measure(at)
            loop.step(at)
            if not measured_first:
                loop.measure(at)
            noise = loop.noise if whole else loop.noise.get_state()
            file.write_bytes(pickle.dumps((at + 1, loop.weight, loop.least, loop.gain, noise)))

    return train


def keys(folder: Path, steps: int) -> Iterator[int]:
    """The same in a dict, by other words: `v` is set by each step before a condition takes it."""
    table: dict[str, Any] = {}
    table.update(w=np.zeros(3), v=0.0, m=1e9, g=1.0, n=np.random.default_rng(5))
    start, file = 0, folder / "state"
    if file.exists():
        start, kept = pickle.loads(file.read_bytes())
        table.update(kept)
    for at in range(start, steps):
        yield at
        x = np.random.default_rng(at).normal(size=3)
        table["v"] = float(((table["w"] - x) ** 2).sum())
        if table["v"] < table["m"]:
            table["m"] = table["v"]
        else:
            table["g"] *= 0.9
        table["w"] = table["w"] - 0.1 * table["g"] * (table["w"] - x) * float(table["n"].uniform(0.9, 1.1))
        kept = {name: table[name] for name in "wmg"} | {"n": table["n"].bit_generator.state}
        file.write_bytes(pickle.dumps((at + 1, kept)))


def test_what_the_first_step_sets_before_it_reads_it_is_not_named_for_its_failure() -> None:
    found = check(attributes(measured_first=True, whole=False))
    assert found.verdict == "broken"
    assert found.suspects[0].path == "loop.noise", found.text()
    found = check(keys)
    assert found.verdict == "broken"
    assert found.suspects[0].path == "table.n", found.text()


def test_what_the_first_step_reads_before_it_sets_it_is_still_named() -> None:
    found = check(attributes(measured_first=False, whole=False))
    assert found.verdict == "broken"
    assert found.suspects[0].path == "loop.error", found.text()
    assert check(attributes(measured_first=True, whole=True)).verdict == "holds"
