"""Training functions that are not deterministic: a few units in the last place a step, from the system's entropy.

Each resumes exactly but for that noise; a fault is planted by its name. Those of `HIDDEN` act in the first step after
the resume, in nothing that a mark sees before: only the envelope can judge them.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

STEPS, STOP, EVERY = 24, 15, 6

LOST = {
    "optimizer_rebuilt": "optimizer.",
    "weights_only": "schedule.step",
    "lr_reset": "schedule.lr",
    "moments_lost": "optimizer.",
    "step_lost": "optimizer.step",
    "weights_narrowed": "model.params",
    "rng_lost": "rng",
}
"""Fault to the beginning of the component that is named first."""

HIDDEN = ("moments_late", "update_lost", "rate_late", "weights_late", "gradient_late")
"""Faults that no state shows when the run resumes."""


def jitter(shape: tuple[int, ...], ulps: int) -> np.ndarray[Any, Any]:
    """Return factors within some units of float32 around 1, float32, from the system: other ones in each run."""
    if not ulps:
        return np.ones(shape, np.float32)
    drawn = np.frombuffer(os.urandom(int(np.prod(shape, dtype=int))), np.uint8).reshape(shape)
    return (1.0 + (drawn.astype(np.float64) / 127.5 - 1.0) * ulps * 2.0**-23).astype(np.float32)


def torch_loop(
    folder: Path, fault: str = "", ulps: int = 1, seed: int = 0, dropout: float = 0.1, size: float = 0.5
) -> Iterator[int]:
    """Train a classifier by AdamW with a decaying rate; every update is off by a few units in the last place."""
    torch.manual_seed(seed)
    inputs, labels = torch.randn(64, 8), torch.randint(0, 3, (64,))
    model = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Dropout(dropout), nn.Linear(16, 3))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 4, 0.7)
    start, resumed = 0, False
    if (folder / "state.pt").exists():
        state = torch.load(folder / "state.pt", weights_only=True)
        model.load_state_dict(state["model"])
        _restore(fault, state, model, optimizer, scheduler)
        start, resumed = state["step"], True
    for step in range(start, STEPS):
        yield step
        rows = torch.arange(step * 16, step * 16 + 16) % 64
        loss = nn.functional.cross_entropy(model(inputs[rows]), labels[rows])
        optimizer.zero_grad()
        loss.backward()
        late = resumed and step == start
        with torch.no_grad():
            if fault == "gradient_late" and late:
                for parameter in model.parameters():
                    parameter.grad.mul_(1.0 - size)  # type: ignore[union-attr]
            if fault == "moments_late" and late:
                for slots in optimizer.state.values():
                    slots["exp_avg"].zero_()
            before = [parameter.clone() for parameter in model.parameters()]
            optimizer.step()
            for parameter, old in zip(model.parameters(), before, strict=True):
                if fault == "update_lost" and late:
                    parameter.copy_(old)
                if fault == "rate_late" and late:
                    parameter.add_(parameter - old, alpha=size)
                if fault == "weights_late" and late:
                    parameter.copy_(parameter.bfloat16().float())
                parameter.mul_(torch.from_numpy(jitter(tuple(parameter.shape), ulps)))
            del before
        scheduler.step()
        if (step + 1) % EVERY == 0:
            state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step + 1,
                     "scheduler": scheduler.state_dict(), "rng": torch.get_rng_state()}  # fmt: skip
            torch.save(state, folder / "state.pt")


def _restore(fault: str, state: dict[str, Any], model: nn.Module, optimizer: Any, scheduler: Any) -> None:
    if fault == "weights_only":
        return
    if fault != "optimizer_rebuilt":
        optimizer.load_state_dict(state["optimizer"])
    scheduler.load_state_dict(state["scheduler"])
    if fault != "rng_lost":
        torch.set_rng_state(state["rng"])
    if fault == "lr_reset":
        for group in optimizer.param_groups:
            group["lr"] = group["initial_lr"]
    for slots in optimizer.state.values():
        if fault == "moments_lost":
            slots["exp_avg"].zero_()
        if fault == "step_lost":
            slots["step"].zero_()
    if fault == "weights_narrowed":
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.copy_(parameter.bfloat16().float())


def numpy_loop(folder: Path, fault: str = "", ulps: int = 1, seed: int = 0, size: float = 0.5) -> Iterator[int]:
    """Fit a line by momentum in NumPy; every update is off by a few units in the last place of float32."""
    draws = np.random.default_rng(seed)
    inputs = draws.normal(size=(64, 6)).astype(np.float32)
    targets = inputs @ draws.normal(size=6).astype(np.float32)
    weights, velocity, start, resumed = np.zeros(6, np.float32), np.zeros(6, np.float32), 0, False
    if (folder / "state.npz").exists():
        with np.load(folder / "state.npz") as loaded:
            weights, start, resumed = loaded["weights"], int(loaded["step"]), True
            velocity = velocity if fault in ("moments_lost", "weights_only") else loaded["velocity"]
    for step in range(start, STEPS):
        yield step
        rows = np.arange(step * 16, step * 16 + 16) % 64
        gradient = inputs[rows].T @ (inputs[rows] @ weights - targets[rows]) / np.float32(16)
        if resumed and step == start:
            velocity = velocity * np.float32(0.0 if fault == "moments_late" else 1.0)
            gradient = gradient * np.float32(1.0 - size if fault == "gradient_late" else 1.0)
        velocity = np.float32(0.9) * velocity + gradient
        if not (fault == "update_lost" and resumed and step == start):
            weights = (weights - np.float32(0.05) * velocity) * jitter(weights.shape, ulps)
        if (step + 1) % EVERY == 0:
            np.savez(folder / "state.npz", weights=weights, velocity=velocity, step=step + 1)


def unseeded(folder: Path) -> Iterator[int]:
    """Fit a line on rows in an order that nobody seeded: no rounding."""
    inputs = np.linspace(-1.0, 1.0, 64).astype(np.float32)
    weights, start = np.zeros(2, np.float32), 0
    if (folder / "state.npz").exists():
        with np.load(folder / "state.npz") as loaded:
            weights, start = loaded["weights"], int(loaded["step"])
    for step in range(start, STEPS):
        yield step
        drawn = np.frombuffer(os.urandom(8), np.uint8) % 64
        x = inputs[drawn]
        error = weights[0] * x + weights[1] - 3.0 * x - 1.0
        weights = weights - np.float32(0.1) * np.array([(error * x).mean(), error.mean()], np.float32)
        np.savez(folder / "state.npz", weights=weights, step=step + 1)


LOOPS: dict[str, Callable[..., Iterator[int]]] = {"torch": torch_loop, "numpy": numpy_loop}
