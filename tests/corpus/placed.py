"""The trainer of every place: an averaged copy of the weights, moved each step, that a resume begins anew."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch

from tests.corpus.places import PLACES

__all__ = ["REACHES", "numpy_trainer", "torch_trainer"]

REACHES = ("file", "return", "training", "nothing")
"""What the copy reaches: an exported file, the returned value, the weights late in the run, or nothing at all."""


def torch_trainer(folder: Path, steps: int = 12, *, place: str, reach: str, keep: bool = False) -> Iterator[int]:
    """Fit a line by gradient descent; `keep` saves and restores the copy, and the loop is clean."""
    torch.manual_seed(0)
    inputs = torch.randn(24, 3)
    goal = inputs @ torch.tensor([1.0, -2.0, 0.5])
    weights, start, file = torch.zeros(3), 0, folder / "weights.pt"
    averaged = weights.clone()
    if file.exists():
        saved = torch.load(file)
        weights, start = saved["weights"], saved["done"]
        averaged = saved["averaged"].clone() if keep else weights.clone()
    read, write = PLACES[place].open(averaged)
    for step in range(start, steps):
        yield step
        rows = torch.arange(step * 4, step * 4 + 4) % 24
        error = inputs[rows] @ weights - goal[rows]
        weights = weights - 0.1 * (inputs[rows].T @ error) / 4
        write(0.9 * read() + 0.1 * weights)
        if reach == "training" and step == steps - 2:  # the last steps go on from the average
            weights = read().clone()
        if (step + 1) % 4 == 0:
            torch.save({"weights": weights, "done": step + 1, **({"averaged": read()} if keep else {})}, file)
    if reach == "file":
        torch.save(read().clone(), folder / "average.pt")
    return read().clone() if reach == "return" else None


def numpy_trainer(folder: Path, steps: int = 12, *, place: str, reach: str, keep: bool = False) -> Iterator[int]:
    """The same in NumPy."""
    draws = np.random.default_rng(0)
    inputs = draws.normal(size=(24, 3))
    goal = inputs @ np.array([1.0, -2.0, 0.5])
    weights, start, file = np.zeros(3), 0, folder / "weights.npz"
    averaged = weights.copy()
    if file.exists():
        with np.load(file) as saved:
            weights, start = saved["weights"], int(saved["done"])
            averaged = saved["averaged"].copy() if keep else weights.copy()
    read, write = PLACES[place].open(averaged)
    for step in range(start, steps):
        yield step
        rows = np.arange(step * 4, step * 4 + 4) % 24
        error = inputs[rows] @ weights - goal[rows]
        weights = weights - 0.1 * (inputs[rows].T @ error) / 4
        write(0.9 * read() + 0.1 * weights)
        if reach == "training" and step == steps - 2:
            weights = np.array(read())
        if (step + 1) % 4 == 0:
            np.savez(file, weights=weights, done=step + 1, **({"averaged": read()} if keep else {}))
    if reach == "file":
        np.save(folder / "average.npy", read())
    return np.array(read()) if reach == "return" else None


def trainer_of(framework: str) -> Any:
    """Return the trainer in a framework."""
    return {"torch": torch_trainer, "numpy": numpy_trainer}[framework]
