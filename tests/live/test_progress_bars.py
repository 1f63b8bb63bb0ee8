"""A best value that a progress bar of tqdm alone is told is no loss; one that an object of the trainer keeps is."""

import math
import pickle
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import parity
from parity.results import Resumption


class Bar:
    """What the loops need of a progress bar; it stands for that of tqdm."""

    def __init__(self, of: Any) -> None:
        self.of = of

    def __iter__(self) -> Iterator[Any]:
        return iter(self.of)

    def set_postfix(self, **shown: float) -> None:
        print(shown)


@pytest.fixture(autouse=True)
def library(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make what `from tqdm import tqdm` finds."""
    module = ModuleType("tqdm")
    module.tqdm = Bar  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "tqdm", module)


class Curriculum(Bar):
    """An object of the trainer whose method is called as that of a bar: it decides by what it is told."""

    easy = True

    def set_postfix(self, **shown: float) -> None:
        self.easy = min(shown.values()) > 1e-9


def load(folder: Path) -> tuple[Any, int]:
    path = folder / "state.pkl"
    found: tuple[Any, int] = pickle.loads(path.read_bytes()) if path.exists() else (np.ones(2), 0)
    return found


def shows_the_best(folder: Path, steps: int) -> Iterator[int]:
    from tqdm import tqdm  # type: ignore[import-untyped, unused-ignore]

    (w, start), best = load(folder), math.inf
    bar = tqdm(range(start, steps))
    for n in bar:
        yield n
        error = w - math.sin(n)
        w, loss = w - 0.3 * error, float(error @ error)
        if loss < best:
            best = loss
            bar.set_postfix(best=best)
        if n % 4 == 3:
            (folder / "state.pkl").write_bytes(pickle.dumps((w, n + 1)))


def keeps_the_best(folder: Path, steps: int) -> Iterator[int]:
    (w, start), lowest = load(folder), math.inf
    stage = Curriculum(range(start, steps))
    for n in stage:
        yield n
        error = w - math.sin(n)
        w, loss = w - 0.3 * error, float(error @ error)
        if loss < lowest:
            lowest = loss
            stage.set_postfix(best=lowest)
        if n % 4 == 3:
            (folder / "state.pkl").write_bytes(pickle.dumps((w, n + 1)))


def check(train: Any) -> Resumption:
    return parity.resumes(train, steps=20, stop_at=13, mode="inline", scenarios=("kill", "third"))


def test_what_a_bar_of_tqdm_is_told_is_listed() -> None:
    found = check(shows_the_best)
    assert found.verdict == "holds", found
    assert "best" in {one.path for one in found.bookkeeping}


def test_what_an_object_of_the_trainer_is_told_in_the_same_words_is_lost() -> None:
    found = check(keeps_the_best)
    assert found.verdict == "broken", found
    assert found.suspects[0].path == "lowest"
