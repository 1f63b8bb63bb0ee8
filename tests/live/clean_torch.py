"""Training functions in PyTorch that resume exactly, written as people write them: none may be called broken."""

import itertools
import random
import time
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn
from torch.utils.data import DataLoader, TensorDataset

import parity


def toy(count: int = 48) -> tuple[torch.Tensor, torch.Tensor]:
    """Return inputs [count, 4] and labels [count], the same in every process."""
    made = torch.Generator().manual_seed(7)
    return torch.randn(count, 4, generator=made), torch.randint(0, 3, (count,), generator=made)


def mlp() -> nn.Sequential:
    """Return a network with dropout and normalisation."""
    return nn.Sequential(nn.Linear(4, 12), nn.BatchNorm1d(12), nn.ReLU(), nn.Dropout(0.1), nn.Linear(12, 3))


def nanogpt_style(folder: Path) -> Iterator[int]:
    """Draw batches from the global generator, set the rate in the loop, evaluate and save in mid-iteration."""
    torch.manual_seed(1337)
    x, y = toy()
    model = mlp()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, betas=(0.9, 0.95))
    iter_num, best_val_loss = 0, 1e9
    if (folder / "ckpt.pt").exists():
        checkpoint = torch.load(folder / "ckpt.pt", weights_only=False)
        model.load_state_dict(checkpoint["model"])
        optimizer.load_state_dict(checkpoint["optimizer"])
        iter_num, best_val_loss = checkpoint["iter_num"], checkpoint["best_val_loss"]
        torch.set_rng_state(checkpoint["rng"])
    local_iter_num, t0, running = 0, time.time(), -1.0
    while iter_num < 20:
        yield iter_num
        lr = 1e-2 * min(1.0, (iter_num + 1) / 5)
        for group in optimizer.param_groups:
            group["lr"] = lr
        at = torch.randint(0, len(x), (8,))
        loss = nn.functional.cross_entropy(model(x[at]), y[at])
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        t1 = time.time()
        if iter_num % 10 == 0 and local_iter_num >= 2:
            running = (t1 - t0) if running == -1.0 else 0.9 * running + 0.1 * (t1 - t0)
        iter_num += 1
        local_iter_num += 1
        if iter_num % 5 == 0:
            model.eval()
            with torch.no_grad():
                value = nn.functional.cross_entropy(model(x), y).item()
            model.train()
            if value < best_val_loss:
                best_val_loss = value
            torch.save(
                {
                    "model": model.state_dict(),
                    "optimizer": optimizer.state_dict(),
                    "iter_num": iter_num,
                    "best_val_loss": best_val_loss,
                    "rng": torch.get_rng_state(),
                },
                folder / "ckpt.pt",
            )


@dataclass
class Meters:
    """What is shown to people: lost at a stop, and nobody minds."""

    losses: list[float] = field(default_factory=list)
    recent: deque[float] = field(default_factory=lambda: deque(maxlen=5))
    started: float = field(default_factory=time.time)
    total: float = 0.0
    count: int = 0


class Trainer:
    """A trainer as a class: epochs, a loader with its own generator, EMA, plateau schedule, scaler."""

    def __init__(self, folder: Path, workers: int = 0) -> None:
        torch.manual_seed(0)
        random.seed(0)
        np.random.seed(0)  # noqa: NPY002
        self.folder = folder
        self.model = mlp()
        self.ema = AveragedModel(self.model, multi_avg_fn=get_ema_multi_avg_fn(0.9))
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1, momentum=0.9, nesterov=True)
        self.scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(self.optimizer, patience=1)
        self.scaler = torch.amp.GradScaler("cpu", init_scale=1024.0, growth_interval=4)
        self.generator = torch.Generator().manual_seed(3)
        x, y = toy()
        self.train_set, self.valid_set = TensorDataset(x[:32], y[:32]), TensorDataset(x[32:], y[32:])
        self.workers = workers
        self.epoch, self.step, self.best, self.bad = 0, 0, float("inf"), 0
        self.meters = Meters()

    def loader(self) -> DataLoader[Any]:
        """Return the batches of an epoch, in an order of that epoch."""
        self.generator.manual_seed(100 + self.epoch)
        return DataLoader(
            self.train_set, batch_size=8, shuffle=True, generator=self.generator, num_workers=self.workers
        )

    def fit(self, epochs: int) -> None:
        """Train; a checkpoint in the folder is continued, in mid-epoch too."""
        self.load()
        while self.epoch < epochs:
            skip = self.step - self.epoch * 4
            for inputs, labels in itertools.islice(self.loader(), skip, None):
                parity.mark(self.step)
                self.model.train()
                noise = 0.01 * random.random() + 0.01 * float(np.random.rand())  # noqa: NPY002
                with torch.autocast("cpu", torch.bfloat16):
                    loss = nn.functional.cross_entropy(self.model(inputs + noise), labels)
                self.optimizer.zero_grad()
                self.scaler.scale(loss).backward()
                self.scaler.step(self.optimizer)
                self.scaler.update()
                self.ema.update_parameters(self.model)
                self.step += 1
                self.note(loss.item())
                if self.step % 3 == 0:
                    self.save()
            value = self.validate()
            self.scheduler.step(value)
            if value < self.best:
                self.best, self.bad = value, 0
            else:
                self.bad += 1
                if self.bad > 50:
                    break
            self.epoch += 1
            self.save()

    def note(self, loss: float) -> None:
        """Keep figures to be read."""
        self.meters.losses.append(loss)
        self.meters.recent.append(loss)
        self.meters.total += loss
        self.meters.count += 1
        if self.meters.count % 4 == 0:
            self.meters.total, self.meters.count = 0.0, 0

    @torch.no_grad()
    def validate(self) -> float:
        """Return the loss of the averaged model."""
        self.ema.eval()
        inputs, labels = self.valid_set.tensors
        return float(nn.functional.cross_entropy(self.ema(inputs), labels))

    def save(self) -> None:
        """Save everything that training goes on from."""
        state = {
            "model": self.model.state_dict(),
            "ema": self.ema.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "scheduler": self.scheduler.state_dict(),
            "scaler": self.scaler.state_dict(),
            "counters": (self.epoch, self.step, self.best, self.bad),
            "rng": (torch.get_rng_state(), random.getstate(), np.random.get_state()),  # noqa: NPY002
        }
        torch.save(state, self.folder / "last.tmp")
        (self.folder / "last.tmp").replace(self.folder / "last.pt")

    def load(self) -> None:
        """Load what is there."""
        if not (self.folder / "last.pt").exists():
            return
        state = torch.load(self.folder / "last.pt", weights_only=False)
        self.model.load_state_dict(state["model"])
        self.ema.load_state_dict(state["ema"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.scheduler.load_state_dict(state["scheduler"])
        self.scaler.load_state_dict(state["scaler"])
        self.epoch, self.step, self.best, self.bad = state["counters"]
        torch.set_rng_state(state["rng"][0])
        random.setstate(state["rng"][1])
        np.random.set_state(state["rng"][2])  # noqa: NPY002


def class_style(folder: Path) -> None:
    """Mark within a method, five epochs of four steps."""
    Trainer(folder).fit(5)


def with_workers(folder: Path) -> None:
    """Load batches by worker processes."""
    Trainer(folder, workers=2).fit(5)


def prefetched(folder: Path, steps: int = 20) -> Iterator[int]:
    """Read one batch ahead from a generator, and count what was consumed."""
    torch.manual_seed(0)
    x, y = toy()
    model, order = mlp(), np.random.default_rng(5)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, 1e-1, total_steps=40)
    start = 0

    def batches(first: int) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        count = 0
        while True:
            permutation = order.permutation(len(x))
            for at in range(0, len(x), 8):
                if count >= first:
                    chosen = torch.as_tensor(permutation[at : at + 8])
                    yield x[chosen], y[chosen]
                count += 1

    if (folder / "state.pt").exists():
        state = torch.load(folder / "state.pt", weights_only=False)
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        scheduler.load_state_dict(state["scheduler"])
        torch.set_rng_state(state["rng"])
        start = state["step"]
    source = batches(start)
    pending = next(source)
    losses = []
    for step in range(start, steps):
        yield step
        inputs, labels = pending
        pending = next(source)
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(inputs), labels)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        scheduler.step()
        losses.append(loss.detach())
        if (step + 1) % 6 == 0:
            state = {
                "model": model.state_dict(),
                "optimizer": optimizer.state_dict(),
                "scheduler": scheduler.state_dict(),
                "rng": torch.get_rng_state(),
                "step": step + 1,
            }
            torch.save(state, folder / "state.pt")


def accumulating(folder: Path, steps: int = 24) -> Iterator[int]:
    """Accumulate over three micro-batches, each a step; saves fall within an accumulation too."""
    torch.manual_seed(0)
    x, y = toy()
    model = mlp()
    optimizer = torch.optim.RMSprop(model.parameters(), lr=1e-3, momentum=0.9, centered=True)
    start = 0
    if (folder / "state.pt").exists():
        state = torch.load(folder / "state.pt", weights_only=False)
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        for name, parameter in model.named_parameters():
            parameter.grad = state["gradients"][name]
        torch.set_rng_state(state["rng"])
        start = state["step"]
    for step in range(start, steps):
        yield step
        at = torch.arange(step * 8, step * 8 + 8) % len(x)
        (nn.functional.cross_entropy(model(x[at]), y[at]) / 3).backward()
        if (step + 1) % 3 == 0:
            optimizer.step()
            optimizer.zero_grad()
        if (step + 1) % 4 == 0:
            state = {
                "model": model.state_dict(),
                "optimizer": optimizer.state_dict(),
                "gradients": {name: p.grad for name, p in model.named_parameters()},
                "rng": torch.get_rng_state(),
                "step": step + 1,
            }
            torch.save(state, folder / "state.pt")


CLEAN = {
    "nanogpt_style": (nanogpt_style, 20, 13),
    "class_style": (class_style, 20, 13),
    "prefetched": (prefetched, 20, 14),
    "accumulating": (accumulating, 24, 14),
}
"""Name to the function, its steps, and a stop that falls between two saves."""
