"""A window that is drawn ahead moves the generator with it: the state is still that of the step that the run says."""

import math
import pickle
from collections import deque
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from tests.live.small_loops import check, first


@pytest.mark.parametrize("lost", ["", "ahead", "rng"])
def test_what_was_lost_of_it_is_named_and_no_counter(lost: str) -> None:
    def train(folder: Path, steps: int) -> Iterator[int]:
        w, rng, ahead, start = np.zeros(3), np.random.default_rng(3), deque[np.ndarray](), 0
        file = folder / "state.pickle"
        if file.exists():
            start, w, held, window = pickle.loads(file.read_bytes())
            rng = rng if lost == "rng" else held
            ahead = ahead if lost == "ahead" else window
        for step in range(start, steps):
            while len(ahead) < 3:
                ahead.append(rng.normal(size=(6, 3)))
            yield step
            x = ahead.popleft()
            w = w - 0.1 * x.T @ (x @ (w - [1, 2, 3])) / 6
            if step % 4 == 3:
                file.write_bytes(pickle.dumps((step + 1, w, rng, ahead)))

    found = check(train)
    assert found.verdict == ("broken" if lost else "holds"), found.text()
    if lost:
        assert first(found).startswith(lost), found.text()
        assert all(one.component != "counters.step" for one in found.suspects), found.text()


class Averaged:
    """Weights that rarely change, and their average, saved before the step has moved it."""

    def __init__(self) -> None:
        self.w, self.mean = np.zeros(2), np.zeros(2)
        self.done, self.waiting, self.rng = 0, list[int](), np.random.default_rng(2)

    def step(self, file: Path, late: bool) -> None:
        if not self.waiting:
            self.waiting = self.rng.permutation(12).tolist()
        drawn = self.waiting.pop()
        if self.done % 7 == 3:
            self.w = self.w + math.sin(drawn)
        self.done += 1
        if late:
            self.save(file)
        self.mean = self.mean + (self.w - self.mean) / self.done
        if not late:
            self.save(file)

    def save(self, file: Path) -> None:
        if self.done % 5 == 0:
            file.write_bytes(pickle.dumps(vars(self)))


@pytest.mark.parametrize("late", [False, True])
def test_a_list_that_is_of_the_step_that_is_said_votes_for_it(late: bool) -> None:
    def train(folder: Path, steps: int) -> Iterator[int]:
        me, file = Averaged(), folder / "state.pickle"
        if file.exists():
            vars(me).update(pickle.loads(file.read_bytes()))
        while me.done < steps:
            yield me.done
            me.step(file, late)

    found = check(train, steps=27, stop_at=18)
    assert found.verdict == ("broken" if late else "holds"), found.text()
    if late:
        assert first(found) == "me.mean", found.text()
        assert all(one.component != "counters.step" for one in found.suspects), found.text()
