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
