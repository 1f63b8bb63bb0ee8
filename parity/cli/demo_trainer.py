"""The trainer of `parity demo`: momentum in NumPy. Its file is copied, to be judged as one of the user's."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np

STEPS = 30


def train(folder: Path, forget: str = "") -> Iterator[int]:
    """Fit a line; save all five steps into the folder, and continue from what it finds there."""
    weights, velocity, start = np.zeros(3), np.zeros(3), 0
    saved = folder / "state.npz"
    if saved.exists():
        with np.load(saved) as state:
            weights, start = state["weights"], int(state["step"])
            if forget != "velocity":  # the bug: everything else is restored
                velocity = state["velocity"]
    for step in range(start, STEPS):
        yield step  # the mark: completed steps
        inputs = np.random.default_rng(step).normal(size=(8, 3))
        gradient = inputs.T @ (inputs @ weights - inputs @ (1.0, -2.0, 0.5)) / 8
        velocity = 0.9 * velocity - 0.05 * gradient
        weights = weights + velocity
        if (step + 1) % 5 == 0:
            np.savez(saved, weights=weights, velocity=velocity, step=step + 1)
