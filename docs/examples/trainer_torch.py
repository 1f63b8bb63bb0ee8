"""The trainer of `migrate_torch.Model`, as `parity port` takes it: model, batches, loss, start, step and loop."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from migrate_torch import Model
from torch import nn

__all__ = ["Model", "batch", "loss", "start", "step", "train"]

State = dict[str, Any]


def batch(step: int) -> dict[str, np.ndarray]:
    """Return the batch of a step: tokens, int64 [4, 9]."""
    return {"tokens": np.random.default_rng([1, step]).integers(0, 50, (4, 9))}


def loss(model: nn.Module, batch: dict[str, np.ndarray]) -> torch.Tensor:
    """Return the mean cross entropy of the next tokens."""
    tokens = torch.from_numpy(batch["tokens"])
    return nn.functional.cross_entropy(model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())


def start(model: nn.Module) -> State:
    """Return the state before the first step; norms and biases do not decay."""
    matrices, rest = ([p for p in model.parameters() if (p.ndim > 1) == wanted] for wanted in (True, False))
    groups = [{"params": matrices, "weight_decay": 0.1}, {"params": rest, "weight_decay": 0.0}]
    return {"model": model, "optimizer": torch.optim.AdamW(groups, lr=1e-2)}


def step(state: State, batch: dict[str, np.ndarray]) -> tuple[State, float]:
    """Make one update."""
    value = loss(state["model"], batch)
    state["optimizer"].zero_grad()
    value.backward()
    nn.utils.clip_grad_norm_(state["model"].parameters(), 1.0)
    state["optimizer"].step()
    return state, value.item()


def train(folder: Path, steps: int = 12) -> Iterator[int]:
    """Train; continue from `folder/last.pt` if there is one."""
    torch.manual_seed(0)
    state, begin = start(Model()), 0
    if (folder / "last.pt").exists():
        held = torch.load(folder / "last.pt", weights_only=True)
        begin = held.pop("step")
        for name, part in held.items():
            state[name].load_state_dict(part)
    for at in range(begin, steps):
        yield at
        state, _ = step(state, batch(at))
        if (at + 1) % 4 == 0:
            held = {name: part.state_dict() for name, part in state.items()}
            torch.save({**held, "step": at + 1}, folder / "last.pt")
