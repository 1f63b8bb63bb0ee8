"""Evaluations and saves at the top of an iteration, as nanoGPT has them: the resumed process makes them once more."""

import pickle
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

import parity

Trainer = Callable[[Path, int], Iterator[int]]


def trainer(lost: str) -> Trainer:
    def train(folder: Path, steps: int) -> Iterator[int]:
        w, n, best, kept, looks, mean = np.ones(3), 0, 1e9, None, 0, np.ones(3)
        file = folder / "state"
        if file.exists():
            w, n, best, kept, looks, mean = pickle.loads(file.read_bytes())
            if lost == "best":
                best = 1e9
            if lost == "kept":
                kept = None
        while n < steps:
            yield n
            if lost == "mean" and n % 4 == 0:  # averaged before the save: a resume averages once more
                mean = 0.5 * mean + 0.5 * w
            if n % 4 == 0:
                value = float(((w - 0.1) ** 2).sum()) * (1 + n % 3)
                if lost == "looks":  # counted once more by each resume
                    looks += 1
                if value < best:
                    best, kept = value, {"w": w.copy(), "at": n}
                if value < best or n % 8 == 0:
                    file.write_bytes(pickle.dumps((w, n, best, kept, looks, mean)))
            pull = kept["w"] if kept and best < 5.0 else w
            w = w - 0.05 * (w - 0.1 * np.sin(n)) + 0.01 * (pull - w) * (1 + looks)
            w = w + 0.01 * (mean - w)
            n += 1
        return w, best

    return train


def test_what_the_evaluation_before_the_save_found_is_no_loss() -> None:
    found = parity.resumes(trainer(""), steps=30, stop_at=19, mode="inline", scenarios="all")
    assert found.verdict == "holds", found.text()


@pytest.mark.parametrize(
    ("lost", "named"), [("best", "best"), ("kept", "kept"), ("looks", "looks"), ("mean", "mean")]
)
def test_what_the_file_held_and_the_run_has_not_is_one(lost: str, named: str) -> None:
    found = parity.resumes(trainer(lost), steps=30, stop_at=19, mode="inline")
    assert found.verdict == "broken", found.text()
    assert found.suspects[0].path.startswith(named), found.text()


def alternates(lost: bool) -> Trainer:
    """Take the parity of the step before, which the next step sets to zero anyhow; save at the end of each step."""

    def train(folder: Path, steps: int) -> Iterator[int]:
        w, n, odd = np.ones(3), 0, 0
        file = folder / "state"
        if file.exists():
            w, n, odd = pickle.loads(file.read_bytes())
            if lost:
                odd = 0
        while n < steps:
            yield n
            w = w - 0.1 * np.cos(w + n) / (1 + odd)
            odd = n % 2
            n += 1
            file.write_bytes(pickle.dumps((w, n, odd)))

    return train


def test_a_save_of_a_step_that_was_not_made_explains_nothing() -> None:
    for scenarios in ("kill", "extend"):
        found = parity.resumes(alternates(True), steps=12, stop_at=8, mode="inline", scenarios=scenarios)
        assert found.suspects[0].path == "odd", found.text()
    assert parity.resumes(alternates(False), steps=12, stop_at=8, mode="inline").verdict == "holds"


def counts_misses(lost: bool) -> Trainer:
    """Count steps without a better loss; the next better one resets the count, before the run takes it."""

    def train(folder: Path, steps: int) -> Iterator[int]:
        w, n, waited, stop, rate = np.ones(3), 0, 0, False, 0.05
        file = folder / "state"
        if file.exists():
            w, n, waited, rate = pickle.loads(file.read_bytes())
            if lost:
                waited = 0
        while n < steps:
            yield n
            w = w - rate * (w - np.sin(n))
            waited = waited + 1 if n % 4 else 0
            stop = waited >= 4
            if stop:
                rate *= 0.5
            n += 1
            file.write_bytes(pickle.dumps((w, n, waited, rate)))

    return train


def test_a_count_that_a_flag_is_set_by_is_a_loss_where_the_next_step_resets_it() -> None:
    found = parity.resumes(counts_misses(True), steps=14, stop_at=7, mode="inline")
    assert found.verdict == "broken", found.text()
    assert found.suspects[0].path == "waited", found.text()
    assert parity.resumes(counts_misses(False), steps=14, stop_at=7, mode="inline").verdict == "holds"
