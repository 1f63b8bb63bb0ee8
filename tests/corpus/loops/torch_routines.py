"""Loops around their routine: schedules, plateaus, noise, averages, clocks, trainers of other libraries' shapes."""

from __future__ import annotations

import copy
import csv
import io
import math
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

import parity
from tests.corpus.registry import Loop

__all__ = ["LOOPS"]

_MADE = torch.Generator().manual_seed(31)
FEATURES = torch.randn(48, 5, generator=_MADE)
LABELS = (FEATURES[:, 0] * FEATURES[:, 1] > 0).long()


def classifier(*extra: nn.Module) -> nn.Sequential:
    """Return a network for two classes."""
    return nn.Sequential(nn.Linear(5, 8), *extra, nn.ReLU(), nn.Linear(8, 2))


def simclr(folder: Path, steps: int = 14, save_every: int = 4) -> Iterator[int]:
    """Contrast two noisy views; warm-up for some epochs, then a cosine, with LARS-like scaling of gradients.

    Source: sthalles/SimCLR, simclr.py (info_nce_loss, scheduler after warm-up).
    """
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(5, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 4))
    optimizer = torch.optim.Adam(model.parameters(), 3e-3, weight_decay=1e-4)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=12, eta_min=0)
    n_iter = 0
    if (folder / "checkpoint.pth.tar").exists():
        was = torch.load(folder / "checkpoint.pth.tar")
        model.load_state_dict(was["state_dict"])
        optimizer.load_state_dict(was["optimizer"])
        scheduler.load_state_dict(was["scheduler"])
        torch.set_rng_state(was["rng"])
        n_iter = was["n_iter"]
    while n_iter < steps:
        yield n_iter
        images = FEATURES[torch.randint(0, 48, (6,))]
        both = torch.cat([images + 0.2 * torch.randn_like(images), images * (torch.rand_like(images) > 0.2)])
        features = F.normalize(model(both), dim=1)
        similarity = features @ features.T / 0.2
        similarity = similarity.masked_fill(torch.eye(12, dtype=torch.bool), -math.inf)
        loss = F.cross_entropy(similarity, (torch.arange(12) + 6) % 12)
        optimizer.zero_grad()
        loss.backward()
        with torch.no_grad():
            for p in model.parameters():
                p.grad *= min(1.0, float(p.norm()) / (float(p.grad.norm()) + 1e-6))  # type: ignore[operator, union-attr]
        optimizer.step()
        if n_iter >= 3:
            scheduler.step()
        n_iter += 1
        if n_iter % save_every == 0:
            was = {"state_dict": model.state_dict(), "optimizer": optimizer.state_dict(), "n_iter": n_iter}
            was |= {"scheduler": scheduler.state_dict(), "rng": torch.get_rng_state()}
            torch.save(was, folder / "checkpoint.pth.tar")
    return model.state_dict()


def plateau(folder: Path, steps: int = 18) -> Iterator[int]:
    """Lower the rate when the validation loss has not fallen; a log in CSV is cut back to the saved step.

    Source: PyTorch documentation, ReduceLROnPlateau example, in the epochs of pytorch/examples imagenet.
    """
    torch.manual_seed(2)
    net = classifier()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.5, momentum=0.9)
    scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, "min", patience=0, factor=0.5, threshold=0.05)
    best, epoch, log = float("inf"), 0, folder / "log.csv"
    if (folder / "state.pth").exists():
        bundle = torch.load(folder / "state.pth", weights_only=False)
        net.load_state_dict(bundle["net"])
        optimizer.load_state_dict(bundle["optimizer"])
        scheduler.load_state_dict(bundle["scheduler"])
        best, epoch = bundle["best"], bundle["epoch"]
    rows = [row for row in csv.reader(io.StringIO(log.read_text() if log.exists() else "")) if int(row[0]) <= epoch]
    log.write_text("".join(",".join(row) + "\n" for row in rows))
    for epoch in range(epoch, steps):  # noqa: B020 - the shape of the recipe
        yield epoch
        for lo in range(0, 32, 16):
            optimizer.zero_grad()
            F.cross_entropy(net(FEATURES[lo : lo + 16]), LABELS[lo : lo + 16]).backward()
            optimizer.step()
        with torch.no_grad():
            val_loss = F.cross_entropy(net(FEATURES[32:]), LABELS[32:]).item()
        scheduler.step(val_loss)
        best = min(best, val_loss)
        with log.open("a") as out:
            out.write(f"{epoch + 1},{val_loss!r},{optimizer.param_groups[0]['lr']!r}\n")
        if (epoch + 1) % 4 == 0:
            bundle = {"net": net.state_dict(), "optimizer": optimizer.state_dict(), "best": best, "epoch": epoch + 1}
            torch.save({**bundle, "scheduler": scheduler.state_dict()}, folder / "state.pth")
    return {"net": net.state_dict(), "best": best}


class NoisyLinear(nn.Module):
    """A layer whose weights carry noise that is drawn anew each step, and kept as buffers."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(outputs, inputs) * 0.3)
        self.sigma = nn.Parameter(torch.full((outputs, inputs), 0.1))
        self.register_buffer("epsilon", torch.zeros(outputs, inputs))

    def reset_noise(self) -> None:
        """Draw noise."""
        self.epsilon.copy_(torch.randn(self.weight.shape))  # type: ignore[operator]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.linear(x, self.weight + self.sigma * self.epsilon)  # type: ignore[operator]


def noisy_weights(folder: Path, steps: int = 15) -> Iterator[int]:
    """Draw noise of the weights every third step only, so that it lives across saves; one cycle of the rate.

    Source: Kaixhin/NoisyNet-A3C, model.py (NoisyLinear), and PyTorch's OneCycleLR example.
    """
    torch.manual_seed(3)
    noisy = NoisyLinear(8, 2)
    net = nn.Sequential(nn.Linear(5, 8), nn.ReLU(), noisy)
    opt = torch.optim.AdamW(net.parameters(), lr=1e-2)
    cycle = torch.optim.lr_scheduler.OneCycleLR(opt, max_lr=2e-2, total_steps=steps + 1)
    it = 0
    for part in sorted(folder.glob("noisy_*.pt"))[-1:]:
        tensors = torch.load(part, weights_only=False)
        net.load_state_dict(tensors["net"])
        opt.load_state_dict(tensors["opt"])
        cycle.load_state_dict(tensors["cycle"])
        torch.set_rng_state(tensors["rng"])
        it = int(part.stem[6:])
    while it < steps:
        yield it
        if it % 3 == 0:
            noisy.reset_noise()
        sel = torch.randperm(48)[:12]
        opt.zero_grad()
        F.cross_entropy(net(FEATURES[sel]), LABELS[sel]).backward()
        opt.step()
        cycle.step()
        it += 1
        if it % 4 == 0:
            tensors = {"net": net.state_dict(), "opt": opt.state_dict(), "cycle": cycle.state_dict()}
            torch.save({**tensors, "rng": torch.get_rng_state()}, folder / f"noisy_{it:04d}.pt")
    return net.state_dict()


class LightningModule(nn.Module):
    """What a user writes: steps, optimizers, metrics by name."""

    def __init__(self) -> None:
        super().__init__()
        self.net = classifier(nn.Dropout(0.3))
        self.logged: dict[str, float] = {}

    def log(self, name: str, value: float) -> None:
        """Keep a metric."""
        self.logged[name] = value

    def training_step(self, batch: Any) -> torch.Tensor:
        """Return the loss."""
        loss = F.cross_entropy(self.net(batch[0]), batch[1])
        self.log("train_loss", loss.item())
        return loss

    def validation_step(self, batch: Any) -> None:
        """Keep the loss."""
        self.log("val_loss", F.cross_entropy(self.net(batch[0]), batch[1]).item())

    def configure_optimizers(self) -> Any:
        """Return an optimizer and a schedule."""
        optimizer = torch.optim.Adam(self.parameters(), 1e-2)
        return optimizer, torch.optim.lr_scheduler.StepLR(optimizer, 2, 0.5)


class ModelCheckpoint:
    """Keeps the best file and the last."""

    def __init__(self, dirpath: Path) -> None:
        self.dirpath, self.best_model_score, self.best_name = dirpath, math.inf, ""

    def on_validation_end(self, fit: Fit) -> None:
        """Write a checkpoint, take an older one away."""
        score = fit.module.logged["val_loss"]
        if score < self.best_model_score:
            if self.best_name:
                (self.dirpath / self.best_name).unlink()
            self.best_model_score, self.best_name = score, f"best-step={fit.global_step}.ckpt"
            torch.save(fit.dump(self), self.dirpath / self.best_name)
        torch.save(fit.dump(self), self.dirpath / "last.ckpt.tmp")
        os.replace(self.dirpath / "last.ckpt.tmp", self.dirpath / "last.ckpt")


class Fit:
    """Runs a module."""

    def __init__(self, module: LightningModule, callbacks: list[ModelCheckpoint], max_epochs: int) -> None:
        self.module, self.callbacks, self.max_epochs = module, callbacks, max_epochs
        self.optimizer, self.scheduler = module.configure_optimizers()
        self.current_epoch, self.global_step = 0, 0

    def dump(self, callback: ModelCheckpoint) -> dict[str, Any]:
        """Return everything to go on from the end of the epoch."""
        kept = {"state_dict": self.module.state_dict(), "optimizer_states": [self.optimizer.state_dict()]}
        kept |= {"lr_schedulers": [self.scheduler.state_dict()], "global_step": self.global_step}
        kept |= {"epoch": self.current_epoch + 1, "rng": torch.get_rng_state()}
        best = {"best_model_score": callback.best_model_score, "best_name": callback.best_name}
        return {**kept, "callbacks": {"ModelCheckpoint": best}}

    def load(self, path: Path) -> None:
        """Take all of it."""
        kept = torch.load(path, weights_only=False)
        self.module.load_state_dict(kept["state_dict"])
        self.optimizer.load_state_dict(kept["optimizer_states"][0])
        self.scheduler.load_state_dict(kept["lr_schedulers"][0])
        self.current_epoch, self.global_step = kept["epoch"], kept["global_step"]
        vars(self.callbacks[0]).update(kept["callbacks"]["ModelCheckpoint"])
        torch.set_rng_state(kept["rng"])

    def run(self) -> Iterator[int]:
        """Run the epochs."""
        while self.current_epoch < self.max_epochs:
            self.module.train()
            for rows in torch.randperm(32).split(8):
                yield self.global_step
                self.optimizer.zero_grad()
                self.module.training_step((FEATURES[rows], LABELS[rows])).backward()
                self.optimizer.step()
                self.global_step += 1
            self.scheduler.step()
            self.module.eval()
            with torch.no_grad():
                self.module.validation_step((FEATURES[32:], LABELS[32:]))
            for callback in self.callbacks:
                callback.on_validation_end(self)
            self.current_epoch += 1


def lightning_fit(folder: Path, steps: int = 16) -> Iterator[int]:
    """Run a module in epochs, with a callback that keeps the best file and the last.

    Source: Lightning-AI/pytorch-lightning, callbacks/model_checkpoint.py and examples/fabric/build_your_own_trainer.
    """
    torch.manual_seed(4)
    fit = Fit(LightningModule(), [ModelCheckpoint(folder)], steps // 4)
    if (folder / "last.ckpt").exists():
        fit.load(folder / "last.ckpt")
    yield from fit.run()
    return fit.module.state_dict()


def saves_by_the_clock(folder: Path, steps: int = 16, seconds: float = 0.004) -> Iterator[int]:
    """Save whenever some time has passed since the last save, whatever step it is, and at the end.

    Source: facebookresearch/fairseq, trainer.py (save_interval by time), and Keras' BackupAndRestore by time.
    """
    torch.manual_seed(5)
    net = classifier()
    opt = torch.optim.SGD(net.parameters(), 0.1, momentum=0.9, nesterov=True)
    done, saved_at = 0, time.monotonic()
    if (folder / "latest.pt").exists():
        net_held, opt_held, done = torch.load(folder / "latest.pt")
        net.load_state_dict(net_held)
        opt.load_state_dict(opt_held)
    while done < steps:
        yield done
        rows = torch.arange(done * 6, done * 6 + 6) % 48
        opt.zero_grad()
        F.cross_entropy(net(FEATURES[rows]), LABELS[rows]).backward()
        opt.step()
        done += 1
        if time.monotonic() - saved_at > seconds or done == steps:
            torch.save((net.state_dict(), opt.state_dict(), done), folder / "latest.pt.part")
            (folder / "latest.pt.part").rename(folder / "latest.pt")
            saved_at = time.monotonic()


def best_in_a_local(folder: Path, steps: int = 15) -> Iterator[int]:
    """Keep the best weights in a local that the last steps never take again; the run ends with the last ones.

    Source: PyTorch forum recipe "Saving the best model" (deepcopy of state_dict) with a go-back on divergence.
    """
    torch.manual_seed(6)
    net = classifier()
    opt = torch.optim.RMSprop(net.parameters(), 5e-3, centered=True)
    n, good, good_loss = 0, copy.deepcopy(net.state_dict()), math.inf
    if (folder / "run.pt").exists():
        run = torch.load(folder / "run.pt")
        net.load_state_dict(run["net"])
        opt.load_state_dict(run["opt"])
        n, good, good_loss = run["n"], run["good"], run["good_loss"]
    while n < steps:
        yield n
        rows = torch.arange(n, 48, 7)
        loss = F.cross_entropy(net(FEATURES[rows]), LABELS[rows])
        if not math.isfinite(loss.item()):
            net.load_state_dict(good)
            continue
        opt.zero_grad()
        loss.backward()
        opt.step()
        n += 1
        if loss.item() < good_loss:
            good, good_loss = copy.deepcopy(net.state_dict()), loss.item()
        if n % 4 == 0:
            run = {"net": net.state_dict(), "opt": opt.state_dict(), "n": n, "good": good, "good_loss": good_loss}
            torch.save(run, folder / "run.pt")
    torch.save(net.state_dict(), folder / "net.pt")


class MeanTeacher:
    """Consistency between a student and a teacher that follows; marks its steps itself."""

    def __init__(self, folder: Path) -> None:
        torch.manual_seed(7)
        self.path, self.student, self.global_step = folder / "mean.pt", classifier(nn.Dropout(0.2)), 0
        self.ema_model = copy.deepcopy(self.student)
        self.optimizer = torch.optim.SGD(self.student.parameters(), 0.1, 0.9)

    @contextmanager
    def restored(self) -> Iterator[MeanTeacher]:
        """Begin from the file if there is one."""
        if self.path.exists():
            held = torch.load(self.path)
            self.student.load_state_dict(held["student"])
            self.ema_model.load_state_dict(held["ema"])
            self.optimizer.load_state_dict(held["optimizer"])
            self.global_step = held["global_step"]
            torch.set_rng_state(held["generator"])
        yield self

    def update(self) -> None:
        """Take one step."""
        labelled, free = torch.randint(0, 8, (4,)), torch.randint(8, 48, (8,))
        weight = math.exp(-5 * (1 - min(1.0, self.global_step / 10)) ** 2)
        with torch.no_grad():
            goal = self.ema_model(FEATURES[free] + 0.1 * torch.randn(8, 5)).softmax(-1)
        loss = F.cross_entropy(self.student(FEATURES[labelled]), LABELS[labelled])
        loss = loss + weight * F.mse_loss(self.student(FEATURES[free]).softmax(-1), goal)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        self.global_step += 1
        alpha = min(1 - 1 / (self.global_step + 1), 0.95)
        for slow, fast in zip(self.ema_model.parameters(), self.student.parameters(), strict=True):
            slow.data.mul_(alpha).add_(fast.data, alpha=1 - alpha)

    def fit(self, last: int, every: int) -> None:
        """Train to the end."""
        while self.global_step < last:
            parity.mark(self.global_step)
            self.update()
            if self.global_step % every == 0:
                held = {"student": self.student.state_dict(), "ema": self.ema_model.state_dict()}
                held |= {"optimizer": self.optimizer.state_dict(), "global_step": self.global_step}
                torch.save({**held, "generator": torch.get_rng_state()}, self.path)


def mean_teacher(folder: Path, steps: int = 14, save_every: int = 4) -> Any:
    """Train a student and its average with a weight that ramps up, in methods of a class.

    Source: CuriousAI/mean-teacher, pytorch/main.py (update_ema_variables, get_current_consistency_weight).
    """
    with MeanTeacher(folder).restored() as trainer:
        trainer.fit(steps, save_every)
    return trainer.ema_model.state_dict()


def distilled_queue(folder: Path, steps: int = 15) -> Iterator[int]:
    """Distil from a frozen teacher that is trained first by seed; hard examples wait in a queue for another turn.

    Source: Hinton et al., "Distilling the Knowledge in a Neural Network"; haitongli/knowledge-distillation-pytorch.
    """
    torch.manual_seed(8)
    teacher, student = classifier(), nn.Linear(5, 2)
    warm = torch.optim.SGD(teacher.parameters(), 0.5)
    for _ in range(5):
        warm.zero_grad()
        F.cross_entropy(teacher(FEATURES), LABELS).backward()
        warm.step()
    teacher.requires_grad_(False)
    optim = torch.optim.Adamax(student.parameters(), 2e-2)
    waiting, cursor, turn = list[int](), 0, 0
    if (folder / "kd.npz").exists():
        with np.load(folder / "kd.npz") as flat:
            student.load_state_dict({k[2:]: torch.from_numpy(flat[k]) for k in flat.files if k.startswith("s:")})
            own = optim.state_dict()
            own["state"] = {
                at: {k: torch.from_numpy(flat[f"o:{at}:{k}"]) for k in ("step", "exp_avg", "exp_inf")}
                for at in (0, 1)
            }
            optim.load_state_dict(own)
            waiting, cursor, turn = flat["waiting"].tolist(), int(flat["cursor"]), int(flat["turn"])
    while turn < steps:
        yield turn
        again, waiting = waiting[:2], waiting[2:]
        fresh = [(cursor + k) % 48 for k in range(6 - len(again))]
        cursor = (cursor + len(fresh)) % 48
        rows = torch.tensor(again + fresh)
        out, soft = student(FEATURES[rows]), F.softmax(teacher(FEATURES[rows]) / 2, 1)
        loss = F.cross_entropy(out, LABELS[rows], reduction="none")
        waiting += rows[loss.topk(2).indices].tolist()
        optim.zero_grad()
        (0.5 * loss.mean() + 2.0 * F.kl_div(F.log_softmax(out / 2, 1), soft, reduction="batchmean")).backward()
        optim.step()
        turn += 1
        if turn % 4 == 0:
            flat = {f"s:{k}": v.numpy() for k, v in student.state_dict().items()}
            flat |= {
                f"o:{at}:{k}": v.numpy() for at, held in optim.state_dict()["state"].items() for k, v in held.items()
            }
            np.savez(folder / "kd.npz", waiting=np.array(waiting), cursor=cursor, turn=turn, **flat)
    return student.state_dict()


LOOPS = (
    Loop(train=simclr, tags=("no_grad step",)),
    Loop(train=plateau, tags=("validation inline", "plateau", "log"), steps=18, stop_at=10),
    Loop(train=noisy_weights, tags=("weight noise", "one cycle"), steps=15, stop_at=10),
    Loop(train=lightning_fit, tags=("class", "epochs", "best", "validation inline"), steps=16, stop_at=10),
    Loop(train=saves_by_the_clock, tags=("clock",), steps=16, stop_at=10, volatile=("latest.pt.part",)),
    Loop(train=best_in_a_local, tags=("best",), steps=15, stop_at=10),
    Loop(train=mean_teacher, tags=("averages", "class", "mark called")),
    Loop(train=distilled_queue, tags=("queue", "replay"), steps=15, stop_at=9),
)
