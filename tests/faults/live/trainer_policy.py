"""A small policy in PyTorch that learns from observations drawn on the way, with normalised inputs.

Without a switch it resumes exactly. Each switch puts the lines of a real report in the place of the right ones.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

__all__ = ["train"]

OBSERVATION, ACTIONS, ENVIRONMENTS = 6, 3, 8


class Normalizer:
    """Running mean and variance of the observations."""

    def __init__(self) -> None:
        self.mean, self.var, self.count = np.zeros(OBSERVATION), np.ones(OBSERVATION), 1e-4

    def update(self, batch: np.ndarray[Any, Any]) -> None:
        """Take in a batch."""
        mean, var, count = batch.mean(axis=0), batch.var(axis=0), len(batch)
        delta, total = mean - self.mean, self.count + count
        self.mean = self.mean + delta * count / total
        spread = self.var * self.count + var * count + delta**2 * self.count * count / total
        self.var, self.count = spread / total, total

    def __call__(self, batch: np.ndarray[Any, Any]) -> torch.Tensor:
        """Return the normalised batch."""
        return torch.from_numpy((batch - self.mean) / np.sqrt(self.var + 1e-8)).float()


class ScheduleFree(torch.optim.Optimizer):
    """Descent without a schedule: gradients at y, between the fast point z and its average x."""

    def __init__(self, parameters: Any, lr: float = 0.1, beta: float = 0.9) -> None:
        super().__init__(parameters, {"lr": lr, "beta": beta, "k": 0, "train_mode": True})

    @torch.no_grad()
    def eval(self) -> None:
        """Put the parameters to x."""
        for group in self.param_groups:
            if group["train_mode"]:
                for p in group["params"]:
                    if "z" in self.state[p]:
                        p.lerp_(self.state[p]["z"], 1 - 1 / group["beta"])
                group["train_mode"] = False

    @torch.no_grad()
    def train(self) -> None:
        """Put the parameters to y."""
        for group in self.param_groups:
            if not group["train_mode"]:
                for p in group["params"]:
                    if "z" in self.state[p]:
                        p.lerp_(self.state[p]["z"], 1 - group["beta"])
                group["train_mode"] = True

    @torch.no_grad()
    def step(self) -> None:  # type: ignore[override]
        """Update z, and y with it."""
        for group in self.param_groups:
            weight = 1 / (group["k"] + 1)
            for p in group["params"]:
                z = self.state[p].setdefault("z", p.clone())
                p.lerp_(z, weight)
                p.sub_(p.grad, alpha=group["lr"] * (1 - group["beta"] * (1 - weight)))
                z.sub_(p.grad, alpha=group["lr"])
            group["k"] += 1


def train(
    folder: Path, *, fault: str = "", steps: int = 24, save_every: int = 5, validate_every: int = 4,
    schedule_free: bool = False, noise: str = "numpy",
) -> Iterator[int]:  # fmt: skip
    """Train, save, and continue from what the folder holds.

    Args:
        folder: Checkpoints of this run.
        fault: Bug of the catalogue.
        steps: Steps of the whole run.
        save_every: Steps between two checkpoints.
        validate_every: Steps between two evaluations.
        schedule_free: Whether the optimizer is the one without a schedule.
        noise: Whose generator explores: `numpy`, `python`, or `devices`, one for each half of the environments.
    """
    folder.mkdir(parents=True, exist_ok=True)
    seed = 9
    random.seed(seed)
    np.random.seed(seed)  # noqa: NPY002 - as in many trainers
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(OBSERVATION, 8), nn.Tanh(), nn.Linear(8, ACTIONS))
    optimizer: Any = ScheduleFree(model.parameters()) if schedule_free else torch.optim.Adam(model.parameters(), 0.02)
    normalizer = Normalizer()
    generators = [torch.Generator().manual_seed(seed + device) for device in range(2)]
    table = torch.arange(OBSERVATION * ACTIONS).reshape(OBSERVATION, ACTIONS).float().sin()
    step = 0
    newest = folder / "policy.pt"
    if newest.exists():
        state = torch.load(newest, weights_only=False)
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        if schedule_free:
            if (
                fault == "schedulefree_wrong_point"
            ):  # the weights are those of evaluation, and taken for those of training
                for group in optimizer.param_groups:
                    group["train_mode"] = True
            optimizer.train()
        normalizer.mean, normalizer.var = state["normalizer"]["mean"], state["normalizer"]["var"]
        if fault != "normalizer_stats_reset":
            normalizer.count = state["normalizer"]["count"]
        random.setstate(state["python"])
        if fault != "rng_reuse_deflates_loss":
            np.random.set_state(state["numpy"])  # noqa: NPY002
        for device, generator in enumerate(generators):
            if device == 0 or fault != "rng_all_saved_one_loaded":
                generator.set_state(state["generators"][device])
        step = state["step"]
    while step < steps:
        yield step
        observations = np.stack([np.random.randn(OBSERVATION) * 3 + 1 for _ in range(ENVIRONMENTS)])  # noqa: NPY002
        normalizer.update(observations)
        inputs = normalizer(observations)
        explored = model(inputs)
        if noise == "devices":
            halves = [torch.randn(ENVIRONMENTS // 2, ACTIONS, generator=generator) for generator in generators]
            explored = explored + 0.1 * torch.cat(halves)
        elif noise == "python":
            explored = explored + 0.1 * torch.tensor([random.gauss(0, 1) for _ in range(ACTIONS)])
        else:
            explored = explored + 0.1 * torch.from_numpy(np.random.randn(ENVIRONMENTS, ACTIONS)).float()  # noqa: NPY002
        loss = (explored - inputs @ table).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        step += 1
        if step % validate_every == 0:
            if schedule_free:
                optimizer.eval()
            with torch.no_grad():
                error = (model(torch.eye(OBSERVATION)) - table).square().mean().item()
            if schedule_free:
                optimizer.train()
            print(f"step {step} error {error:.3f}")
        if step % save_every == 0:
            if schedule_free:
                optimizer.eval()
            state = {
                "step": step,
                "model": model.state_dict(),
                "optimizer": optimizer.state_dict(),
                "normalizer": dict(vars(normalizer)),
                "python": random.getstate(),
                "numpy": np.random.get_state(),  # noqa: NPY002
                "generators": [generator.get_state() for generator in generators],
            }
            torch.save(state, newest.with_suffix(".tmp"))
            newest.with_suffix(".tmp").replace(newest)
            if schedule_free:
                optimizer.train()
