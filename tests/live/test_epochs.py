"""Epochs are told by how a counter grows, whatever it is called."""

import pickle
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import parity
from parity.capture import Walk
from parity.checks.resume.scenarios import epoch_ends
from parity.checks.running.run import Mark


def marks_of(name: str, values: list[object]) -> list[Mark]:
    found = []
    for at, value in enumerate(values):
        walk = Walk()
        walk.root("step", at)
        walk.root(name, value)
        found.append(Mark(step=at, snapshot=walk.finish()))
    return found


@pytest.mark.parametrize("name", ["epoch", "e", "generation"])
def test_a_counter_that_grows_every_few_steps_counts_epochs(name: str) -> None:
    assert epoch_ends(marks_of(name, [0, 0, 0, 1, 1, 1, 2, 2, 2])) == [3, 6]
    assert epoch_ends(marks_of(name, [4, 4, 5, 5, 5, 6, 6, 7, 7])) == [2, 5, 7]


@pytest.mark.parametrize(
    "values",
    [
        [0, 1, 2, 3, 4],  # of steps
        [0, 0, 2, 2, 4, 4],  # not by one
        [0, 0, 1, 1, 0, 0],  # down again
        [0, 0, 0, 0, 1, 1, 2, 2, 3],  # what waited for its begin
        [0, 0, 1, 1, 2, 2, 2, 2, 2],  # what ended
        [0, 0, 0, 1, 1],  # once
        [0.0, 0.0, 1.0, 1.0, 2.0, 2.0],
        ["0", "0", "1", "1", "2", "2"],
    ],
)
def test_other_numbers_do_not(values: list[object]) -> None:
    assert epoch_ends(marks_of("epoch", values)) == []


def test_a_variable_that_is_not_there_at_every_mark_counts_nothing() -> None:
    here, gone = marks_of("epoch", [0, 0, 1, 1, 2, 2]), marks_of("other", [0])
    assert epoch_ends([*gone, *here]) == []


def annealed(folder: Path, steps: int, *, lost: bool = True) -> Iterator[int]:
    """Saves every five steps; an epoch of six ends with its rate cut, behind the save that the 30th step makes."""
    w, rate, n, file = np.zeros(3), 0.3, 0, folder / "state"
    cut = 0
    if file.exists():
        w, rate, n, cut = pickle.loads(file.read_bytes())
        if not lost and n % 6 == 0 and cut < n // 6:
            rate, cut = 0.9 * rate, n // 6
    for epoch in range(n // 6, 100):
        while n < 6 * (epoch + 1):
            if n == steps:
                return w
            yield n
            w = w - rate * (w - np.random.default_rng(n).normal(size=3))
            n += 1
            if n % 5 == 0:
                file.write_bytes(pickle.dumps((w, rate, n, cut)))
        rate, cut = 0.9 * rate, epoch + 1


def test_the_end_of_an_epoch_behind_a_save_is_driven() -> None:
    asked = {"steps": 48, "stop_at": 28, "mode": "inline", "scenarios": "all"}
    found = parity.resumes(annealed, **asked)
    assert (found.verdict, found.suspects[0].scenario) == ("broken", "epoch-end"), found.text()
    assert ("rate", "at the resume") in [(one.path, one.when) for one in found.suspects], found.text()
    held = parity.resumes(annealed, options={"lost": False}, **asked)
    assert held.verdict == "holds", held.text()
