"""A small classifier in PyTorch as a trainer: AdamW in two groups, clipping, accumulation, cosine, an average."""

import math
from pathlib import Path

import numpy as np
import torch
from torch import nn

WIDTH, CLASSES, FEATURES, BATCH, HORIZON = 12, 4, 6, 8, 60
RATE, DECAY, CLIP, AVERAGE = 1e-2, 0.1, 0.5, 0.99

inputs = np.random.default_rng(5).normal(size=(BATCH, FEATURES)).astype(np.float32)


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.norm = nn.Linear(FEATURES, WIDTH), nn.LayerNorm(WIDTH)
        self.batch_norm, self.head = nn.BatchNorm1d(WIDTH), nn.Linear(WIDTH, CLASSES)
        self.dropout = nn.Dropout(0.1)
        for one in (self.first, self.head):
            nn.init.normal_(one.weight, std=0.3)
            nn.init.zeros_(one.bias)

    def forward(self, x):
        x = nn.functional.gelu(self.norm(self.first(x)))
        return self.head(self.dropout(self.batch_norm(x)))


def batch(step):
    draws = np.random.default_rng([1, step])
    x = draws.normal(size=(BATCH, FEATURES)).astype(np.float32)
    mask = np.ones(BATCH, bool)
    mask[: step % 3] = False
    return {"x": x, "y": draws.integers(0, CLASSES, BATCH), "mask": mask}


def loss(model, batch):
    logits = model(torch.from_numpy(batch["x"]))
    mask = torch.from_numpy(batch["mask"])
    each = nn.functional.cross_entropy(logits, torch.from_numpy(batch["y"]), reduction="none")
    return (each * mask).sum() / mask.sum()


def rate(step):
    return (step + 1) / 5 if step < 5 else 0.5 * (1 + math.cos(math.pi * (step - 5) / (HORIZON - 5)))


def start(model):
    decayed = [one for one in model.parameters() if one.ndim > 1]
    plain = [one for one in model.parameters() if one.ndim == 1]
    groups = [{"params": decayed, "weight_decay": DECAY}, {"params": plain, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=RATE)
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, rate)
    ema = {name: one.detach().clone() for name, one in model.named_parameters()}
    return {"model": model, "optimizer": optimizer, "scheduler": scheduler, "ema": ema}


def step(state, batch):
    model, optimizer = state["model"], state["optimizer"]
    optimizer.zero_grad()
    value = loss(model, batch)
    value.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), CLIP)
    optimizer.step()
    state["scheduler"].step()
    with torch.no_grad():
        for name, one in model.named_parameters():
            state["ema"][name].mul_(AVERAGE).add_(one, alpha=1 - AVERAGE)
    return state, value.item()


def train(folder: Path, steps: int = 12):
    torch.manual_seed(0)
    state, begin = start(Model()), 0
    if (folder / "last.pt").exists():
        held = torch.load(folder / "last.pt", weights_only=True)
        for name in ("model", "optimizer", "scheduler"):
            state[name].load_state_dict(held[name])
        state["ema"], begin = held["ema"], held["step"]
        torch.set_rng_state(held["rng"])  # of dropout
    for at in range(begin, steps):
        yield at
        state, _loss = step(state, batch(at))
        if (at + 1) % 4 == 0:
            held = {name: state[name].state_dict() for name in ("model", "optimizer", "scheduler")}
            held |= {"ema": state["ema"], "step": at + 1, "rng": torch.get_rng_state()}
            torch.save(held, folder / "last.pt")
