"""A training loop in PyTorch that is to be ported: initial values and batches come from NumPy."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from torch import nn


def samples() -> tuple[np.ndarray, np.ndarray]:
    """Return inputs, float64 [256, 8], and classes, int64 [256]."""
    draws = np.random.default_rng(0)
    return draws.normal(size=(256, 8)), draws.integers(0, 3, 256)


def initial() -> dict[str, np.ndarray]:
    """Return the parameters both sides start from, float64, by PyTorch's names and in its layout."""
    draws = np.random.default_rng(1)
    shapes = {"0.weight": (32, 8), "0.bias": (32,), "2.weight": (3, 32), "2.bias": (3,)}
    return {name: draws.normal(size=shape) * 0.2 for name, shape in shapes.items()}


def train(folder: Path, steps: int = 40) -> Iterator[int]:
    """Train a classifier in float64; continue from `folder/state.pt` if there is one."""
    inputs, labels = (torch.from_numpy(part) for part in samples())
    model = nn.Sequential(nn.Linear(8, 32), nn.Tanh(), nn.Linear(32, 3)).double()
    model.load_state_dict({name: torch.from_numpy(value) for name, value in initial().items()})
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    start = 0
    if (folder / "state.pt").exists():
        state = torch.load(folder / "state.pt", weights_only=True)
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        start = state["step"]
    for step in range(start, steps):
        yield step
        batch = np.arange(step * 32, step * 32 + 32) % 256
        loss = nn.functional.cross_entropy(model(inputs[batch]), labels[batch])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if (step + 1) % 10 == 0:
            state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step + 1}
            torch.save(state, folder / "state.pt")
