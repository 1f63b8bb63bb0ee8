"""Buffers of memory that nobody has written: equal runs differ in them, and nothing is lost by it."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import parity
from parity.results import Resumption


class Replay:
    def __init__(self, rows: int, like: bool) -> None:
        np.random.default_rng().normal(size=(rows, 2))  # what was in memory before
        self.seen = np.empty_like(np.zeros((rows, 2))) if like else np.empty((rows, 2))
        self.masked: Any = np.ma.masked_all(3000)
        self.size = 0

    def add(self, row: Any) -> None:
        self.seen[self.size] = row
        self.masked[self.size] = row[0]
        self.size += 1


def replay(folder: Path, lost: str = "", like: bool = False) -> Iterator[int]:
    rng, held, w, step, file = np.random.default_rng(0), Replay(3000, like), np.zeros(2), 0, folder / "state.npz"
    if file.exists():
        found = np.load(file, allow_pickle=True)
        w, step, rng.bit_generator.state = found["w"], int(found["step"]), found["rng"].item()
        if lost != "rows":
            for row in found["seen"]:
                held.add(row)
        held.size = 0 if lost == "size" else step
    while step < 20:
        yield step
        held.add(rng.normal(size=2))
        x = held.seen[rng.integers(0, held.size, 3)]
        w = w - 0.1 * x.T @ (x @ w - 1)
        step += 1
        if step % 4 == 0:
            state = np.array(rng.bit_generator.state, dtype=object)
            np.savez(file, w=w, step=step, rng=state, seen=held.seen[: held.size])


def storage(folder: Path, lost: str = "") -> Iterator[int]:
    torch.manual_seed(0)
    torch.randn(2000, 3)
    model, rows, filled, step = torch.nn.Linear(3, 1), torch.empty(2000, 3), 0, 0
    opt, file = torch.optim.Adam(model.parameters(), 0.05), folder / "state.pt"
    if file.exists():
        found = torch.load(file, weights_only=True)
        model.load_state_dict(found["model"])
        opt.load_state_dict(found["opt"])
        step, filled = found["step"], 0 if lost == "size" else found["step"]
        rows[:step] = 0 if lost == "rows" else found["rows"]
    while step < 20:
        yield step
        rows[filled] = torch.full((3,), 0.1 * step)
        filled += 1
        opt.zero_grad()
        (model(rows[max(0, filled - 4) : filled]) ** 2).mean().backward()
        opt.step()
        step += 1
        if step % 4 == 0:
            state = {"model": model.state_dict(), "opt": opt.state_dict(), "step": step}
            torch.save({**state, "rows": rows[:filled].clone()}, file)


def judged(train: Any, **options: Any) -> Resumption:
    return parity.resumes(train, steps=20, stop_at=12, mode="inline", scenarios="kill", options=options)


@pytest.mark.parametrize("like", [False, True])
def test_a_buffer_that_is_filled_row_by_row_is_clean(like: bool) -> None:
    assert judged(replay, like=like).verdict == "holds"


@pytest.mark.parametrize(("train", "held"), [(replay, "held.seen"), (storage, "rows")])
def test_what_is_lost_of_it_is_named(train: Any, held: str) -> None:
    found = judged(train, lost="rows")
    assert (found.verdict, found.suspects[0].path) == ("broken", held)
    found = judged(train, lost="size")
    assert (found.verdict, found.suspects[0].path) == ("broken", "held.size" if train is replay else "filled")


def test_the_functions_are_put_back() -> None:
    before = (np.empty, np.empty_like, torch.empty, torch.Tensor.new_empty)
    assert judged(storage).verdict == "holds"
    assert (np.empty, np.empty_like, torch.empty, torch.Tensor.new_empty) == before


def noisy(folder: Path) -> Iterator[int]:
    """Differ between equal runs by more than memory: filled, they still do."""
    w, file = np.empty(2000) * 0, folder / "state.npy"
    for step in range(20):
        yield step
        w = w + np.random.default_rng().normal(size=2000)
        np.save(file, w)


def test_a_trainer_that_is_not_seeded_stays_inconclusive() -> None:
    assert judged(noisy).verdict == "inconclusive"
