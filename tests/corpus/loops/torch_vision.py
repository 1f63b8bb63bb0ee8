"""Loops of recipes for vision: self-supervision, transfer, mixing, averages swapped in for evaluation."""

from __future__ import annotations

import copy
import math
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from safetensors.torch import load_file, save_file
from torch import nn

from tests.corpus.registry import Loop

__all__ = ["LOOPS"]

G = torch.Generator().manual_seed(4)
IMAGES = torch.rand(48, 12, generator=G)
CLASSES = torch.randint(0, 4, (48,), generator=G)


def encoder(width: int = 8) -> nn.Sequential:
    """Return a backbone with normalisation."""
    return nn.Sequential(nn.Linear(12, width), nn.BatchNorm1d(width), nn.ReLU(), nn.Linear(width, 6))


class MoCo(nn.Module):
    """Query and key encoder, and a queue of keys with its pointer, as buffers."""

    def __init__(self, K: int = 20, m: float = 0.9, T: float = 0.2) -> None:
        super().__init__()
        self.K, self.m, self.T = K, m, T
        self.encoder_q, self.encoder_k = encoder(), encoder()
        self.encoder_k.load_state_dict(self.encoder_q.state_dict())
        self.encoder_k.requires_grad_(False)
        self.register_buffer("queue", F.normalize(torch.randn(6, K), dim=0))
        self.register_buffer("queue_ptr", torch.zeros(1, dtype=torch.long))

    @torch.no_grad()
    def _momentum_update_key_encoder(self) -> None:
        for q, k in zip(self.encoder_q.parameters(), self.encoder_k.parameters(), strict=True):
            k.data = k.data * self.m + q.data * (1.0 - self.m)

    @torch.no_grad()
    def _dequeue_and_enqueue(self, keys: torch.Tensor) -> None:
        ptr = int(self.queue_ptr)  # type: ignore[arg-type]
        self.queue[:, ptr : ptr + len(keys)] = keys.T  # type: ignore[index, operator]
        self.queue_ptr[0] = (ptr + len(keys)) % self.K  # type: ignore[index, operator]

    def forward(self, im_q: torch.Tensor, im_k: torch.Tensor) -> torch.Tensor:
        q = F.normalize(self.encoder_q(im_q), dim=1)
        with torch.no_grad():
            self._momentum_update_key_encoder()
            k = F.normalize(self.encoder_k(im_k), dim=1)
        logits = torch.cat([(q * k).sum(1, keepdim=True), q @ self.queue.clone().detach()], dim=1)  # type: ignore[operator]
        self._dequeue_and_enqueue(k)
        return logits / self.T


def moco(folder: Path, steps: int = 14, save_every: int = 4) -> Iterator[int]:
    """Contrast with a queue of keys; noise of the views comes from the global generator, which is saved.

    Source: facebookresearch/moco, main_moco.py and moco/builder.py.
    """
    torch.manual_seed(2)
    model = MoCo()
    optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], 0.03, 0.9, weight_decay=1e-4)
    start = 0
    if (folder / "checkpoint_last.pth.tar").exists():
        checkpoint = torch.load(folder / "checkpoint_last.pth.tar")
        start = checkpoint["step"]
        model.load_state_dict(checkpoint["state_dict"])
        optimizer.load_state_dict(checkpoint["optimizer"])
        torch.set_rng_state(checkpoint["rng"])
    for step in range(start, steps):
        yield step
        for group in optimizer.param_groups:
            group["lr"] = 0.03 * 0.5 * (1.0 + math.cos(math.pi * step / 50))
        images = IMAGES[torch.arange(step * 4, step * 4 + 4) % 48]
        output = model(images + 0.1 * torch.randn_like(images), images + 0.1 * torch.randn_like(images))
        loss = F.cross_entropy(output, torch.zeros(4, dtype=torch.long))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if (step + 1) % save_every == 0:
            checkpoint = {"step": step + 1, "state_dict": model.state_dict(), "optimizer": optimizer.state_dict()}
            torch.save({**checkpoint, "rng": torch.get_rng_state()}, folder / "checkpoint_last.pth.tar")
    return model.encoder_q.state_dict()


def dino(folder: Path, steps: int = 14, save_every: int = 5) -> Iterator[int]:
    """Distil without labels: a teacher that follows, a centre that follows, momentum from a table of the run.

    Source: facebookresearch/dino, main_dino.py (train_one_epoch, DINOLoss.update_center).
    """
    torch.manual_seed(6)
    student, teacher = encoder(), encoder()
    teacher.load_state_dict(student.state_dict())
    for p in teacher.parameters():
        p.requires_grad = False
    centre = torch.zeros(1, 6)
    opt = torch.optim.AdamW(student.parameters(), lr=5e-3)
    momenta = [1 - (1 - 0.9) * (math.cos(math.pi * i / 40) + 1) / 2 for i in range(40)]
    it = 0
    if (folder / "dino.safetensors").exists():
        flat = load_file(folder / "dino.safetensors")
        student.load_state_dict({k[2:]: v for k, v in flat.items() if k.startswith("s.")})
        teacher.load_state_dict({k[2:]: v for k, v in flat.items() if k.startswith("t.")})
        centre, it = flat["centre"], int(flat["it"])
        own = opt.state_dict()
        moments = {int(k.split(".")[1]) for k in flat if k.startswith("o.")}
        own["state"] = {n: {w: flat[f"o.{n}.{w}"] for w in ("step", "exp_avg", "exp_avg_sq")} for n in moments}
        opt.load_state_dict(own)
    while it < steps:
        yield it
        views = IMAGES[torch.arange(it * 6, it * 6 + 6) % 48]
        noise = torch.Generator().manual_seed(1000 + it)
        a, b = (views + 0.1 * torch.randn(views.shape, generator=noise) for _ in range(2))
        with torch.no_grad():
            goal = F.softmax((teacher(a) - centre) / 0.04, dim=-1)
        loss = -(goal * F.log_softmax(student(b) / 0.1, dim=-1)).sum(-1).mean()
        opt.zero_grad()
        loss.backward()
        student[3].weight.grad = None if it < 2 else student[3].weight.grad
        opt.step()
        with torch.no_grad():
            m = momenta[it]
            for s, t in zip(student.parameters(), teacher.parameters(), strict=True):
                t.data.mul_(m).add_((1 - m) * s.detach().data)
            centre = centre * 0.9 + teacher(a).mean(0, keepdim=True) * 0.1
        it += 1
        if it % save_every == 0:
            flat = {f"s.{k}": v for k, v in student.state_dict().items()}
            flat |= {f"t.{k}": v.clone() for k, v in teacher.state_dict().items()}
            flat |= {f"o.{n}.{w}": v for n, held in opt.state_dict()["state"].items() for w, v in held.items()}
            save_file({**flat, "centre": centre, "it": torch.tensor(it)}, folder / "dino.safetensors")
    torch.save(teacher.state_dict(), folder / "teacher.pt")


def byol(folder: Path, steps: int = 15) -> Iterator[int]:
    """Predict the target network's projection; the target is a deep copy that moves after each step.

    Source: Grill et al., "Bootstrap Your Own Latent", appendix J (pseudo-code), and lucidrains/byol-pytorch.
    """
    torch.manual_seed(8)
    online, predictor = encoder(), nn.Sequential(nn.Linear(6, 6), nn.ReLU(), nn.Linear(6, 6))
    target = copy.deepcopy(online)
    learner = torch.optim.Adam([*online.parameters(), *predictor.parameters()], lr=3e-3)
    done = 0
    path = folder / "improved-net.pt"
    if path.exists():
        net = torch.load(path)
        online.load_state_dict(net["online"])
        predictor.load_state_dict(net["predictor"])
        target.load_state_dict(net["target"])
        learner.load_state_dict(net["learner"])
        torch.random.set_rng_state(net["torch"])
        done = net["done"]

    def regression_loss(p: torch.Tensor, z: torch.Tensor) -> torch.Tensor:
        return 2 - 2 * (F.normalize(p, dim=-1) * F.normalize(z, dim=-1)).sum(-1)

    for n in range(done, steps):
        yield n
        batch = IMAGES[torch.randint(0, 48, (6,))]
        one, two = F.dropout(batch, 0.2), F.dropout(batch, 0.2)
        with torch.no_grad():
            target_one, target_two = target(one), target(two)
        loss = regression_loss(predictor(online(one)), target_two) + regression_loss(
            predictor(online(two)), target_one
        )
        learner.zero_grad()
        loss.mean().backward()
        learner.step()
        with torch.no_grad():
            for slow, fast in zip(target.parameters(), online.parameters(), strict=True):
                slow.lerp_(fast, 0.1)
        if n % 4 == 3:
            net = {"online": online.state_dict(), "predictor": predictor.state_dict(), "target": target.state_dict()}
            net |= {"learner": learner.state_dict(), "torch": torch.random.get_rng_state(), "done": n + 1}
            torch.save(net, path)
    return [p.detach() for p in target.parameters()]


class ModelEma:
    """Average of a model's weights."""

    def __init__(self, model: nn.Module, decay: float) -> None:
        self.module, self.decay = copy.deepcopy(model).eval(), decay

    @torch.no_grad()
    def update(self, model: nn.Module) -> None:
        """Move towards a model."""
        for ema_v, model_v in zip(self.module.state_dict().values(), model.state_dict().values(), strict=True):
            ema_v.copy_(self.decay * ema_v + (1 - self.decay) * model_v)


def timm_ema(folder: Path, steps: int = 16, save_every: int = 4, validate_every: int = 4) -> Iterator[int]:
    """Train with mixed pairs of samples, label smoothing and an EMA that is validated; top checkpoints are kept.

    Source: huggingface/pytorch-image-models, train.py with ModelEmaV2, Mixup and CheckpointSaver.
    """
    torch.manual_seed(12)
    model = encoder()
    model_ema = ModelEma(model, 0.9)
    optimizer = torch.optim.RMSprop(model.parameters(), lr=1e-2, alpha=0.9, momentum=0.9)
    best_metric: float | None = None
    num_updates = 0
    if (folder / "last.pth.tar").exists():
        held = torch.load(folder / "last.pth.tar", weights_only=False)
        model.load_state_dict(held["state_dict"])
        model_ema.module.load_state_dict(held["state_dict_ema"])
        optimizer.load_state_dict(held["optimizer"])
        num_updates, best_metric = held["num_updates"], held["metric"]
        torch.set_rng_state(held["rng"])
    while num_updates < steps:
        yield num_updates
        model.train()
        sel = torch.randperm(48)[:8]
        lam = float(torch.rand(()))
        mixed = lam * IMAGES[sel] + (1 - lam) * IMAGES[sel.flip(0)]
        loss = lam * F.cross_entropy(model(mixed), CLASSES[sel], label_smoothing=0.1)
        loss = loss + (1 - lam) * F.cross_entropy(model(mixed), CLASSES[sel.flip(0)], label_smoothing=0.1)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        model_ema.update(model)
        num_updates += 1
        if num_updates % validate_every == 0:
            with torch.no_grad():
                metric = float(F.cross_entropy(model_ema.module(IMAGES), CLASSES))
            if best_metric is None or metric < best_metric:
                best_metric = metric
                torch.save(model_ema.module.state_dict(), folder / "model_best.pth.tar")
        if num_updates % save_every == 0:
            held = {"state_dict": model.state_dict(), "state_dict_ema": model_ema.module.state_dict()}
            held |= {"optimizer": optimizer.state_dict(), "num_updates": num_updates, "metric": best_metric}
            torch.save({**held, "rng": torch.get_rng_state()}, folder / "last.pth.tar")


def swapped_average(folder: Path, steps: int = 15) -> Iterator[int]:
    """Evaluate with averaged weights that are swapped in and out again in place.

    Source: fadel/pytorch_ema (store, copy_to, restore), as score_sde_pytorch/run_lib.py uses it.
    """
    torch.manual_seed(13)
    net = nn.Sequential(nn.Linear(12, 8), nn.SiLU(), nn.Linear(8, 4))
    shadow = [p.clone().detach() for p in net.parameters()]
    updates, optim, begun, losses = 0, torch.optim.NAdam(net.parameters(), 2e-3), 0, deque(maxlen=3)
    if (folder / "meta.pth").exists():
        meta = torch.load(folder / "meta.pth")
        net.load_state_dict(meta["model"])
        optim.load_state_dict(meta["optim"])
        shadow, updates, begun = meta["shadow"], meta["updates"], meta["k"]
    for k in range(begun, steps):
        yield k
        idx = torch.arange(k * 5, k * 5 + 5) % 48
        optim.zero_grad()
        loss = F.cross_entropy(net(IMAGES[idx]), CLASSES[idx])
        loss.backward()
        optim.step()
        losses.append(loss.item())
        updates += 1
        decay = min(0.999, (1 + updates) / (10 + updates))
        with torch.no_grad():
            for s_param, param in zip(shadow, net.parameters(), strict=True):
                s_param.sub_((1.0 - decay) * (s_param - param))
        if k % 3 == 2:
            stored = [p.clone() for p in net.parameters()]
            for s_param, param in zip(shadow, net.parameters(), strict=True):
                param.data.copy_(s_param.data)
            with torch.no_grad():
                print("eval", F.cross_entropy(net(IMAGES), CLASSES).item())
            for c_param, param in zip(stored, net.parameters(), strict=True):
                param.data.copy_(c_param.data)
        if k % 4 == 3:
            meta = {"model": net.state_dict(), "optim": optim.state_dict(), "shadow": shadow}
            torch.save({**meta, "updates": updates, "k": k + 1}, folder / "meta.pth")
    torch.save(shadow, folder / "shadow.pth")


def transfer_learning(folder: Path, steps: int = 16) -> Iterator[int]:
    """Freeze a backbone, thaw it at an epoch with a new parameter group; keep the best weights and load them last.

    Source: PyTorch tutorial "Transfer Learning for Computer Vision", and torchvision's finetuning recipe.
    """
    torch.manual_seed(17)
    backbone, head = encoder(), nn.Linear(6, 4)
    backbone.requires_grad_(False)
    optimizer = torch.optim.SGD(head.parameters(), lr=0.05, momentum=0.9)
    best_acc, epoch, step = 0.0, 0, 0
    best_weights: dict[str, Any] = {}

    def thaw() -> None:
        backbone.requires_grad_(True)
        optimizer.add_param_group({"params": list(backbone.parameters()), "lr": 0.01})

    if (folder / "stage.pth").exists():
        stage = torch.load(folder / "stage.pth")
        epoch, step = stage["epoch"], stage["epoch"] * 4
        if len(stage["optimizer"]["param_groups"]) > 1:
            thaw()
        backbone.load_state_dict(stage["backbone"])
        head.load_state_dict(stage["head"])
        optimizer.load_state_dict(stage["optimizer"])
        best_acc, best_weights = stage["best_acc"], stage["best_weights"]
    while epoch < steps // 4:
        if epoch == 2 and len(optimizer.param_groups) == 1:
            thaw()
        for phase in ("train", "val"):
            backbone.train(phase == "train")
            hits = 0
            for at in range(0, 32 if phase == "train" else 16, 8):
                if phase == "train":
                    yield step
                offset = 0 if phase == "train" else 32
                inputs, labels = IMAGES[offset + at : offset + at + 8], CLASSES[offset + at : offset + at + 8]
                optimizer.zero_grad()
                with torch.set_grad_enabled(phase == "train"):
                    outputs = head(backbone(inputs))
                    loss = F.cross_entropy(outputs, labels)
                    if phase == "train":
                        loss.backward()
                        optimizer.step()
                        step += 1
                hits += int((outputs.argmax(1) == labels).sum())
            if phase == "val" and hits / 16 > best_acc:
                best_acc, best_weights = hits / 16, copy.deepcopy(head.state_dict())
        epoch += 1
        stage = {"epoch": epoch, "backbone": backbone.state_dict(), "head": head.state_dict()}
        stage |= {"optimizer": optimizer.state_dict(), "best_acc": best_acc, "best_weights": best_weights}
        torch.save(stage, folder / "stage.pth")
    torch.save({"last": head.state_dict(), "best": best_weights}, folder / "final.pth")


LOOPS = (
    Loop(train=moco, tags=("queue", "no_grad step", "averages")),
    Loop(train=dino, tags=("averages", "no_grad step", "safetensors")),
    Loop(train=byol, tags=("averages", "no_grad step", "target network"), steps=15),
    Loop(train=timm_ema, tags=("averages", "validation inline", "best"), steps=16, stop_at=10),
    Loop(train=swapped_average, tags=("averages swapped", "no_grad step", "validation inline"), steps=15, stop_at=9),
    Loop(
        train=transfer_learning,
        tags=("epochs", "best", "parameter groups", "validation inline"),
        steps=16,
        stop_at=10,
    ),
)
