"""Transformations of Optax in a table that steps fill: made again as they were they are no loss, nor its cause."""

import pickle
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import parity
from parity.results import Resumption

Trainer = Callable[[Path, int], Iterator[int]]


class Stream:
    """Keys by how many were taken."""

    def __init__(self) -> None:
        self.taken, self.first = 0, jax.random.key(0)

    def take(self) -> Any:
        self.taken += 1
        return jax.random.fold_in(self.first, self.taken)


class Renamed:
    """As `Stream`, by words that say nothing."""

    def __init__(self) -> None:
        self.zq, self.first = 0, jax.random.key(0)

    def take(self) -> Any:
        self.zq += 1
        return jax.random.fold_in(self.first, self.zq)


def trainer(kind: type[Any], lost: str) -> Trainer:
    """Return a trainer with a function for each size of a batch, whose rate was halved before the first is made."""
    number = "taken" if kind is Stream else "zq"

    def train(folder: Path, steps: int) -> Iterator[int]:
        w, state, n, rate, file = jnp.zeros(3), None, 0, 0.1, folder / "state"
        stream, table = kind(), {}
        if file.exists():
            w, state, n, taken, then = pickle.loads(file.read_bytes())
            rate = rate if lost == "rate" else then
            setattr(stream, number, 0 if lost == "taken" else taken)

        def made(size: int) -> Any:
            if size not in table:
                tx = optax.adam(rate)

                @jax.jit
                def step(w: Any, state: Any, key: Any) -> Any:
                    x = jax.random.normal(key, (size, 3))
                    updates, state = tx.update(jax.grad(lambda w: jnp.mean((x @ w - 1) ** 2))(w), state, w)
                    return optax.apply_updates(w, updates), state

                table[size] = step
            return table[size]

        while n < steps:
            yield n
            rate = 0.05 if n == 2 else rate
            state = optax.adam(0.1).init(w) if state is None else state
            w, state = made(2 + n % 3 if n < 6 else 5 + n % 2)(w, state, stream.take())
            n += 1
            kept = jax.tree.map(np.asarray, (w, state))
            file.write_bytes(pickle.dumps((*kept, n, getattr(stream, number), rate)))

    return train


def resumed(train: Trainer) -> Resumption:
    return parity.resumes(train, steps=12, stop_at=9, scenarios="kill", mode="inline")


@pytest.mark.parametrize("kind", [Stream, Renamed])
def test_a_lost_count_of_keys_is_named_before_functions_that_are_not_made_yet(kind: type[Any]) -> None:
    found = resumed(trainer(kind, "taken"))
    assert found.verdict == "broken"
    assert found.suspects[0].path == ("stream.taken" if kind is Stream else "stream.zq")


def test_a_setting_that_is_another_one_when_it_is_made_is_lost() -> None:
    found = resumed(trainer(Stream, "rate"))
    assert (found.verdict, found.suspects[0].component) == ("broken", "schedule.lr")


def test_nothing_is_lost() -> None:
    assert resumed(trainer(Stream, "")).verdict == "holds"
