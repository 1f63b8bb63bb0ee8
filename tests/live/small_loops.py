"""Small loops of one state, for tests that show a shape in a few lines."""

import math
import pickle
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

import parity
from parity.results import Resumption


class State:
    """What a trainer holds."""

    def __init__(self, **values: Any) -> None:
        vars(self).update(values)


Trainer = Callable[[Path, int], Any]


def trainer(
    begin: Callable[[], State],
    step: Callable[[State, int], None],
    lost: tuple[str, ...] = (),
    *,
    made: Callable[[State], None] = lambda state: None,
    end: Callable[[Path, State, int], None] = lambda folder, state, start: None,
    until: int = 99,
) -> Trainer:
    """Return a trainer with weights `w` that a step changes; all its state but what is lost is saved every four.

    Up to a step: what was lost is in no file that a longer run leaves.
    """

    def train(folder: Path, steps: int) -> Iterator[int]:
        state, start, path = begin(), 0, folder / "state.pkl"
        if path.exists():
            kept, start = pickle.loads(path.read_bytes())
            vars(state).update({name: value for name, value in kept.items() if name not in lost})
        made(state)
        for number in range(start, steps):
            yield number
            step(state, number)
            if number % 4 == 3 and number < until:
                kept = {name: value for name, value in vars(state).items() if not name.startswith("own")}
                path.write_bytes(pickle.dumps((kept, number + 1)))
        end(folder, state, start)

    return train


def check(train: Trainer, **options: Any) -> Resumption:
    given: dict[str, Any] = {"steps": 20, "stop_at": 13, "mode": "inline", "scenarios": ("kill", "third"), **options}
    return parity.resumes(train, **given)


def first(found: Resumption) -> str:
    assert found.verdict == "broken", found
    return found.suspects[0].path


def descend(state: State, number: int, rate: float = 0.3) -> float:
    error = state.w - math.sin(number)
    state.w = state.w - rate * error
    return float(error @ error)


def weights(**others: Any) -> Callable[[], State]:
    return lambda: State(w=np.ones(2), **{name: pickle.loads(pickle.dumps(value)) for name, value in others.items()})
