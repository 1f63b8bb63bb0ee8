"""Shapes of training loops that people know, each written small, with faults that no other trainer of the tests has.

`memmap`: random windows of a file of tokens, gradients accumulated, a rate from the step. `epochs`: a function for an
epoch, with meters, warm-up within the first one. `events`: handlers hung on an engine.
"""

from __future__ import annotations

import math
from collections import defaultdict, deque
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, RandomSampler, TensorDataset

import parity
from tests.live.clean_torch import mlp, toy

__all__ = ["epochs", "events", "memmap"]


def memmap(folder: Path, steps: int = 14, *, fault: str = "") -> Iterator[int]:
    """Train a bigram model on random windows of a file; `fault`: file, window, groups."""
    torch.manual_seed(1337)
    tokens = folder / "tokens.bin"
    if fault == "file" or not tokens.exists():  # written anew by each process, from another seed in the second
        seed = 2 if tokens.exists() else 1
        np.random.default_rng(seed).integers(0, 16, 400).astype(np.uint16).tofile(tokens)
    model = nn.Sequential(nn.Embedding(16, 8), nn.Dropout(0.1), nn.Linear(8, 16))
    decay = [p for p in model.parameters() if p.dim() > 1]
    rest = [p for p in model.parameters() if p.dim() <= 1]
    optimizer = torch.optim.AdamW([{"params": decay, "weight_decay": 0.1}, {"params": rest, "weight_decay": 0.0}])
    it, best = 0, 1e9

    def batch(split: str) -> tuple[torch.Tensor, torch.Tensor]:
        data = np.memmap(tokens, dtype=np.uint16, mode="r")
        data = data[:360] if split == "train" else data[360:]
        at = torch.randint(len(data) - 8, (4,))
        x = torch.stack([torch.from_numpy(data[i : i + 8].astype(np.int64)) for i in at.tolist()])
        y = torch.stack([torch.from_numpy(data[i + 1 : i + 9].astype(np.int64)) for i in at.tolist()])
        return x, y

    if (folder / "ckpt.pt").exists():
        state = torch.load(folder / "ckpt.pt", weights_only=True)
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        it, best = state["it"], state["best"]
        torch.set_rng_state(state["rng"])
        if fault == "groups":  # the rule for decay is applied once more, to the groups as they were loaded
            for group in optimizer.param_groups:
                group["weight_decay"] = 0.0
    x, y = batch("train")
    while it < steps:
        yield it
        for group in optimizer.param_groups:
            group["lr"] = 1e-2 * (it + 1) / 4 if it < 4 else 1e-3 + 9e-3 * 0.5 * (1 + math.cos(math.pi * it / 40))
        if it % 5 == 0 and it:
            model.eval()
            here = torch.get_rng_state()
            torch.manual_seed(7)
            with torch.no_grad():
                value = sum(nn.functional.cross_entropy(model(a).flatten(0, 1), b.flatten()).item()
                            for a, b in [batch("val") for _ in range(2)])  # fmt: skip
            torch.set_rng_state(here)
            model.train()
            if value < best:
                best = value
        for _ in range(2):
            loss = nn.functional.cross_entropy(model(x).flatten(0, 1), y.flatten()) / 2
            at_fetch = torch.get_rng_state()
            x, y = batch("train")
            loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        it += 1
        if it % 5 == 0:  # the prefetched batch is drawn again: from the generator as it was before
            state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "it": it, "best": best}
            torch.save({**state, "rng": torch.get_rng_state() if fault == "window" else at_fetch}, folder / "ckpt.pt")


class Meter:
    """A smoothed value for people."""

    def __init__(self) -> None:
        self.recent: deque[float] = deque(maxlen=4)
        self.total, self.count = 0.0, 0

    def update(self, value: float) -> None:
        """Take a value."""
        self.recent.append(value)
        self.total, self.count = self.total + value, self.count + 1


def one_epoch(
    model: nn.Module, optimizer: torch.optim.Optimizer, loader: Any, epoch: int, average: Any, warm: Any
) -> Iterator[None]:
    """Train on every batch of a loader; a mark for each."""
    model.train()
    meters: dict[str, Meter] = defaultdict(Meter)
    for x, y in loader:
        yield
        loss = nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if average is not None:
            average.update_parameters(model)
        if epoch == 0:
            warm.step()
        meters["loss"].update(loss.item())


def epochs(folder: Path, steps: int = 16, *, fault: str = "") -> Iterator[int]:
    """Train epoch by epoch, saved after each; `fault`: average, frozen, generator."""
    torch.manual_seed(0)
    x, y = toy(32)
    model = mlp()
    average = torch.optim.swa_utils.AveragedModel(model, multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(0.9))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    warm = torch.optim.lr_scheduler.LinearLR(optimizer, 0.1, total_iters=4)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 2, 0.5)
    generator = torch.Generator().manual_seed(5)
    loader = DataLoader(TensorDataset(x, y), 8, sampler=RandomSampler(x, generator=generator), drop_last=True)
    first = 0
    if (folder / "checkpoint.pth").exists():
        state = torch.load(folder / "checkpoint.pth", weights_only=True)
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        schedule.load_state_dict(state["schedule"])
        if fault != "average":
            average.load_state_dict(state["average"])
        if fault == "frozen":  # finetuning code that runs at each start
            model[0].requires_grad_(False)
        if fault != "generator":
            generator.set_state(state["generator"])
        torch.set_rng_state(state["rng"])
        first = state["epoch"] + 1
    for epoch in range(first, steps // 4):
        for at, _ in enumerate(one_epoch(model, optimizer, loader, epoch, average, warm)):
            yield epoch * 4 + at
        schedule.step()
        state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "schedule": schedule.state_dict()}
        streams = {"generator": generator.get_state(), "rng": torch.get_rng_state()}
        torch.save({**state, **streams, "average": average.state_dict(), "epoch": epoch}, folder / "checkpoint.pth")


class Engine:
    """Calls handlers as it goes."""

    def __init__(self, step: Callable[[Engine, Any], float]) -> None:
        self.step, self.handlers, self.state = step, defaultdict(list), {"iteration": 0, "epoch": 0, "output": 0.0}

    def on(self, event: str) -> Callable[[Callable[[Engine], None]], Callable[[Engine], None]]:
        """Hang a handler on an event."""

        def hang(handler: Callable[[Engine], None]) -> Callable[[Engine], None]:
            self.handlers[event].append(handler)
            return handler

        return hang

    def run(self, batches: Callable[[int], Iterator[Any]], most: int) -> None:
        """Train on what `batches(epoch)` gives, from where the state is."""
        while self.state["iteration"] < most:
            for batch in batches(self.state["iteration"]):
                self.fire("started")
                self.state["output"] = self.step(self, batch)
                self.state["iteration"] += 1
                self.fire("completed")
                if self.state["iteration"] >= most:
                    return
            self.state["epoch"] += 1

    def fire(self, event: str) -> None:
        """Call the handlers of an event."""
        for handler in self.handlers[event]:
            handler(self)


def events(folder: Path, steps: int = 14, *, fault: str = "") -> None:
    """Train by handlers; `fault`: noise, penalty."""
    torch.manual_seed(0)
    x, y = toy(32)
    model = mlp()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    penalty = {"l2": 0.0}
    noise = np.random.default_rng(4)

    def step(engine: Engine, batch: Any) -> float:
        inputs, labels = batch
        inputs = inputs + 0.01 * torch.from_numpy(noise.normal(size=inputs.shape)).float()
        loss = nn.functional.cross_entropy(model(inputs), labels)
        loss = loss + penalty["l2"] * sum(p.square().sum() for p in model.parameters())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return float(loss.detach())

    def batches(done: int) -> Iterator[Any]:
        for at in range(done % 4, 4):
            yield x[at * 8 : at * 8 + 8], y[at * 8 : at * 8 + 8]

    engine = Engine(step)

    @engine.on("started")
    def mark(engine: Engine) -> None:
        parity.mark(engine.state["iteration"])

    @engine.on("completed")
    def grow(engine: Engine) -> None:
        penalty["l2"] += 1e-4
        optimizer.param_groups[0]["lr"] *= 0.97

    @engine.on("completed")
    def save(engine: Engine) -> None:
        if engine.state["iteration"] % 5 == 0:
            state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "engine": dict(engine.state)}
            drawn = noise.bit_generator.state["state"]
            state |= {"penalty": penalty["l2"], "rng": torch.get_rng_state()}
            state |= {"noise": {key: str(value) for key, value in drawn.items()}}
            torch.save(state, folder / "engine.pt")

    def load() -> None:
        state = torch.load(folder / "engine.pt", weights_only=True)
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        engine.state.update(state["engine"])
        if fault != "penalty":
            penalty["l2"] = state["penalty"]
        if fault != "noise":
            restored = {key: int(value) for key, value in state["noise"].items()}
            noise.bit_generator.state = {**noise.bit_generator.state, "state": restored}
        torch.set_rng_state(state["rng"])

    if (folder / "engine.pt").exists():
        load()
    engine.run(batches, steps)
