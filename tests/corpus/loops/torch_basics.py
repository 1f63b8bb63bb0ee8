"""Loops of PyTorch's own tutorials and examples."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn, optim
from torch.utils.data import DataLoader, Dataset, TensorDataset

from tests.corpus.registry import Loop

__all__ = ["LOOPS"]


class Digits(nn.Module):
    """A little convolutional network."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(1, 4, 3)
        self.drop = nn.Dropout(0.25)
        self.fc = nn.Linear(36, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = F.max_pool2d(F.relu(self.conv(x)), 2)
        return F.log_softmax(self.fc(self.drop(torch.flatten(x, 1))), dim=1)


def _pictures(count: int) -> tuple[torch.Tensor, torch.Tensor]:
    made = torch.Generator().manual_seed(11)
    return torch.rand(count, 1, 8, 8, generator=made), torch.randint(0, 3, (count,), generator=made)


def mnist_example(folder: Path, steps: int = 16, save_every: int = 4, validate_every: int = 4) -> Iterator[int]:
    """Train with StepLR and Adadelta, test in eval mode, `train()` at the top of the next step.

    Source: pytorch/examples, mnist/main.py.
    """
    torch.manual_seed(1)
    data, target = _pictures(32)
    model = Digits()
    optimizer = optim.Adadelta(model.parameters(), lr=1.0)
    scheduler = optim.lr_scheduler.StepLR(optimizer, step_size=4, gamma=0.7)
    begin = 0
    if (folder / "mnist.pt").exists():
        ckpt = torch.load(folder / "mnist.pt")
        model.load_state_dict(ckpt["net"])
        optimizer.load_state_dict(ckpt["opt"])
        scheduler.load_state_dict(ckpt["sched"])
        torch.set_rng_state(ckpt["cpu_rng"])
        begin = ckpt["batch_idx"]
    for batch_idx in range(begin, steps):
        yield batch_idx
        model.train()
        lo = batch_idx % 4 * 8
        optimizer.zero_grad()
        loss = F.nll_loss(model(data[lo : lo + 8]), target[lo : lo + 8])
        loss.backward()
        optimizer.step()
        scheduler.step()
        if (batch_idx + 1) % validate_every == 0:
            model.eval()
            correct = 0
            with torch.no_grad():
                correct += int(model(data).argmax(1).eq(target).sum())
            print(f"accuracy: {correct}/{len(data)}")
        if (batch_idx + 1) % save_every == 0:
            ckpt = {"net": model.state_dict(), "opt": optimizer.state_dict(), "sched": scheduler.state_dict()}
            torch.save({**ckpt, "cpu_rng": torch.get_rng_state(), "batch_idx": batch_idx + 1}, folder / "mnist.pt")
    torch.save(model.state_dict(), folder / "mnist_cnn.pt")


def sgd_by_hand(folder: Path, steps: int = 14) -> Iterator[int]:
    """Fit a polynomial: the weights are moved under `no_grad`, their gradients cleared by hand.

    Source: PyTorch tutorial "Learning PyTorch with Examples" (tensors and autograd).
    """
    x = torch.linspace(-3.14, 3.14, 200)
    y = torch.sin(x)
    torch.manual_seed(3)
    a, b, c, d = (torch.randn((), requires_grad=True) for _ in range(4))
    t0 = 0
    if (folder / "abcd.json").exists():
        was = json.loads((folder / "abcd.json").read_text())
        t0 = was["t"]
        a, b, c, d = (torch.tensor(v, requires_grad=True) for v in was["coef"])
    for t in range(t0, steps):
        yield t
        y_pred = a + b * x + c * x**2 + d * x**3
        loss = (y_pred - y).pow(2).sum()
        loss.backward()
        with torch.no_grad():
            for p in (a, b, c, d):
                p -= 1e-6 * p.grad  # type: ignore[operator]
                p.grad = None
        if t % 5 == 4:
            (folder / "abcd.json").write_text(json.dumps({"t": t + 1, "coef": [v.item() for v in (a, b, c, d)]}))
    (folder / "polynomial.json").write_text(json.dumps([v.item() for v in (a, b, c, d)]))


def _run_epoch(dataloader: Any, model: nn.Module, loss_fn: Any, optimizer: Any) -> Iterator[None]:
    model.train()
    for X, Y in dataloader:
        yield
        pred = model(X)
        loss = loss_fn(pred, Y)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()


def _test(dataloader: Any, model: nn.Module, loss_fn: Any) -> float:
    model.eval()
    total = 0.0
    with torch.no_grad():
        for X, Y in dataloader:
            total += loss_fn(model(X), Y).item()
    return total / len(dataloader)


def quickstart(folder: Path, steps: int = 16) -> Iterator[int]:
    """Train and test in two functions for each epoch; a shuffled loader whose generator is saved.

    Source: PyTorch tutorial "Learn the Basics: Quickstart".
    """
    torch.manual_seed(42)
    data, target = _pictures(32)
    gen = torch.Generator()
    gen.manual_seed(9)
    train_dataloader = DataLoader(TensorDataset(data.flatten(1), target), batch_size=8, shuffle=True, generator=gen)
    test_dataloader = DataLoader(TensorDataset(data.flatten(1), target), batch_size=16)
    model = nn.Sequential(nn.Linear(64, 16), nn.ReLU(), nn.Linear(16, 3))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2, momentum=0.9)
    loss_fn = nn.CrossEntropyLoss()
    epoch = 0
    if (folder / "model.pth").exists():
        state = torch.load(folder / "model.pth")
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        gen.set_state(state["order"])
        epoch = state["epoch"]
    while epoch * 4 < steps:
        for i, _ in enumerate(_run_epoch(train_dataloader, model, loss_fn, optimizer)):
            yield epoch * 4 + i
        print(f"test loss {_test(test_dataloader, model, loss_fn):>8f}")
        epoch += 1
        state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "order": gen.get_state()}
        torch.save({**state, "epoch": epoch}, folder / "model.pth")


class Names(Dataset):  # type: ignore[type-arg]
    """Lines of letters."""

    def __init__(self) -> None:
        draws = np.random.default_rng(2)
        self.lines = draws.integers(0, 12, (40, 6))

    def __len__(self) -> int:
        return len(self.lines)

    def __getitem__(self, i: int) -> torch.Tensor:
        return torch.from_numpy(self.lines[i])


def char_rnn(folder: Path, steps: int = 15, save_every: int = 5) -> Iterator[int]:
    """Train a GRU whose hidden state is carried from batch to batch, detached, and saved.

    Source: pytorch/examples, word_language_model/main.py (repackage_hidden, clipping, annealed rate).
    """
    torch.manual_seed(5)
    lines = torch.stack([Names()[i] for i in range(40)]).reshape(4, 60)
    emb, rnn, out = nn.Embedding(12, 8), nn.GRU(8, 8, batch_first=True, dropout=0.0), nn.Linear(8, 12)
    net = nn.ModuleList([emb, rnn, out])
    hidden, rate, i0, best_val = torch.zeros(1, 4, 8), 2.0, 0, None
    if (folder / "rnn.pt").exists():
        with (folder / "rnn.pt").open("rb") as f:
            pack = torch.load(f)
        net.load_state_dict(pack["net"])
        hidden, rate, i0, best_val = pack["hidden"], pack["rate"], pack["i"], pack["best_val"]
    for i in range(i0, steps):
        yield i
        at = i % 10 * 5
        hidden = hidden.detach()
        net.zero_grad()
        features, hidden = rnn(emb(lines[:, at : at + 5]), hidden)
        loss = F.cross_entropy(out(features).flatten(0, 1), lines[:, at + 1 : at + 6].flatten())
        loss.backward()
        nn.utils.clip_grad_norm_(net.parameters(), 0.25)
        for p in net.parameters():
            p.data.add_(p.grad, alpha=-rate)  # type: ignore[arg-type]
        if i % 4 == 3:
            with torch.no_grad():
                val = F.cross_entropy(out(rnn(emb(lines[:, :50]))[0]).flatten(0, 1), lines[:, 1:51].flatten()).item()
            if best_val is None or val < best_val:
                best_val = val
            else:
                rate /= 4.0
        if (i + 1) % save_every == 0:
            with (folder / "rnn.pt").open("wb") as f:
                torch.save(
                    {"net": net.state_dict(), "hidden": hidden, "rate": rate, "i": i + 1, "best_val": best_val}, f
                )
    return net.state_dict()


class TensorPair(Dataset):  # type: ignore[type-arg]
    """Inputs and targets."""

    def __init__(self, n: int) -> None:
        g = torch.Generator().manual_seed(21)
        self.a, self.b = torch.randn(n, 5, generator=g), torch.randn(n, 1, generator=g)

    def __len__(self) -> int:
        return len(self.a)

    def __getitem__(self, k: int) -> tuple[torch.Tensor, torch.Tensor]:
        return self.a[k], self.b[k]


class ElasticTrainer:
    """A trainer with a snapshot, as one that torchrun starts again after a failure."""

    def __init__(self, model: nn.Module, optimizer: Any, snapshot_path: Path, save_every: int) -> None:
        self.model, self.optimizer, self.snapshot_path, self.save_every = model, optimizer, snapshot_path, save_every
        self.epochs_run = 0
        if snapshot_path.exists():
            self._load_snapshot()

    def _load_snapshot(self) -> None:
        snapshot = torch.load(self.snapshot_path)
        self.model.load_state_dict(snapshot["MODEL_STATE"])
        self.optimizer.load_state_dict(snapshot["OPTIMIZER_STATE"])
        self.epochs_run = snapshot["EPOCHS_RUN"]

    def _save_snapshot(self, epoch: int) -> None:
        snapshot = {"MODEL_STATE": self.model.state_dict(), "EPOCHS_RUN": epoch}
        torch.save({**snapshot, "OPTIMIZER_STATE": self.optimizer.state_dict()}, self.snapshot_path)

    def _run_batch(self, source: torch.Tensor, targets: torch.Tensor) -> float:
        self.optimizer.zero_grad()
        loss = F.mse_loss(self.model(source), targets)
        loss.backward()
        self.optimizer.step()
        return loss.item()

    def train(self, max_epochs: int) -> Iterator[int]:
        """Train from the epoch of the snapshot; the order of an epoch is seeded by its number."""
        for epoch in range(self.epochs_run, max_epochs):
            order = torch.randperm(16, generator=torch.Generator().manual_seed(epoch)).tolist()
            loader = DataLoader(TensorPair(16), batch_size=8, sampler=order)
            for j, (source, targets) in enumerate(loader):
                yield epoch * 2 + j
                self._run_batch(source, targets)
            if (epoch + 1) % self.save_every == 0:
                self._save_snapshot(epoch + 1)


def torchrun_snapshot(folder: Path, steps: int = 16, save_every: int = 2) -> Iterator[int]:
    """Resume from a snapshot of epochs.

    Source: PyTorch tutorial "Fault-tolerant Distributed Training with torchrun" (multigpu_torchrun.py).
    """
    torch.manual_seed(0)
    model = nn.Linear(5, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    trainer = ElasticTrainer(model, optimizer, folder / "snapshot.pt", save_every)
    yield from trainer.train(steps // 2)
    return model.state_dict()


def swa(folder: Path, steps: int = 18, save_every: int = 4) -> Iterator[int]:
    """Average weights from the middle of the run on; SWALR takes the schedule over; update_bn at the end.

    Source: PyTorch documentation, torch.optim.swa_utils, "How to use SWA" example.
    """
    torch.manual_seed(7)
    x, y = _pictures(32)
    x = x.flatten(1)
    model = nn.Sequential(nn.Linear(64, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 3))
    optimizer = optim.SGD(model.parameters(), lr=0.1)
    swa_model = optim.swa_utils.AveragedModel(model)
    scheduler = optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=100)
    swa_start = 10
    swa_scheduler = optim.swa_utils.SWALR(optimizer, swa_lr=0.05, anneal_epochs=4)
    first = 0
    if (folder / "swa.tar").exists():
        found = torch.load(folder / "swa.tar", weights_only=False)
        for name, part in (("m", model), ("o", optimizer), ("a", swa_model), ("s", scheduler), ("w", swa_scheduler)):
            part.load_state_dict(found[name])  # type: ignore[attr-defined]
        first = found["it"]
    for it in range(first, steps):
        yield it
        sel = torch.arange(it * 8, it * 8 + 8) % 32
        optimizer.zero_grad()
        F.cross_entropy(model(x[sel]), y[sel]).backward()
        optimizer.step()
        if it > swa_start:
            swa_model.update_parameters(model)
            swa_scheduler.step()
        else:
            scheduler.step()
        if (it + 1) % save_every == 0:
            found = {"m": model.state_dict(), "o": optimizer.state_dict(), "a": swa_model.state_dict(), "it": it + 1}
            torch.save({**found, "s": scheduler.state_dict(), "w": swa_scheduler.state_dict()}, folder / "swa.tar")
    optim.swa_utils.update_bn([x], swa_model)
    torch.save(swa_model.state_dict(), folder / "swa_final.pt")


LOOPS = (
    Loop(train=mnist_example, tags=("validation inline", "mode set before use"), steps=16, stop_at=10),
    Loop(train=sgd_by_hand, tags=("no_grad step", "json")),
    Loop(train=quickstart, tags=("epochs", "validation inline"), steps=16, stop_at=10),
    Loop(train=char_rnn, tags=("carried state", "no_grad step", "validation inline"), steps=15, stop_at=8),
    Loop(train=torchrun_snapshot, tags=("epochs", "class"), steps=16, stop_at=10),
    Loop(train=swa, tags=("averages", "two schedulers"), steps=18, stop_at=14),
)
