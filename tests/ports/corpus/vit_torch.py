"""A vision transformer and its trainer in PyTorch: a class token, dropout by given masks, AdamW, a moving average."""

import copy
from dataclasses import dataclass

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from tests.ports.corpus.initial import initial_torch
from tests.ports.corpus.loops import torch_loop

WIDTH, HEADS, HIDDEN, LAYERS, PATCHES, CLASSES, BATCH = 12, 3, 24, 2, 16, 5, 4
RATE, WARM, DECAY, DROP, AVERAGE = 1e-3, 5, 0.05, 0.2, 0.98


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1, self.norm2 = (nn.LayerNorm(WIDTH, eps=1e-6) for _ in range(2))
        self.qkv, self.proj = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.fc1, self.fc2 = nn.Linear(WIDTH, HIDDEN), nn.Linear(HIDDEN, WIDTH)

    def forward(self, x, keep):
        b, n, _ = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(b, n, 3, HEADS, -1).permute(2, 0, 3, 1, 4)
        y = functional.scaled_dot_product_attention(q, k, v)
        x = x + dropped(self.proj(y.transpose(1, 2).reshape(b, n, WIDTH)), keep[0])
        return x + dropped(self.fc2(functional.gelu(self.fc1(self.norm2(x)))), keep[1])


def dropped(x, keep):
    """Return what a mask keeps, scaled; all of it where there is none."""
    return x if keep is None else x * keep / (1 - DROP)


class ViT(nn.Module):
    def __init__(self):
        super().__init__()
        self.patch_embed = nn.Conv2d(3, WIDTH, 2, stride=2)
        self.cls_token = nn.Parameter(torch.zeros(1, 1, WIDTH))
        self.pos_embed = nn.Parameter(torch.zeros(1, PATCHES + 1, WIDTH))
        self.blocks = nn.ModuleList(Block() for _ in range(LAYERS))
        self.norm, self.head = nn.LayerNorm(WIDTH, eps=1e-6), nn.Linear(WIDTH, CLASSES)

    def forward(self, image, keep=None):
        x = self.patch_embed(image).flatten(2).transpose(1, 2)
        x = torch.cat((self.cls_token.expand(len(x), -1, -1), x), 1) + self.pos_embed
        for at, block in enumerate(self.blocks):
            x = block(x, (None, None) if keep is None else keep[at])
        return self.head(self.norm(x)[:, 0])


class Average(nn.Module):
    """A moving average of a model: the decay grows with the updates, to a limit."""

    def __init__(self, model):
        super().__init__()
        self.module = copy.deepcopy(model).requires_grad_(False)
        self.register_buffer("updates", torch.zeros((), dtype=torch.long))

    @torch.no_grad()
    def update(self, model):
        self.updates += 1
        done = int(self.updates)
        decay = min(AVERAGE, (1 + done) / (10 + done))
        for mine, new in zip(self.module.parameters(), model.parameters(), strict=True):
            mine.mul_(decay).add_(new, alpha=1 - decay)


def batch(step):
    """Return images, classes and what dropout keeps: float32 [layers, 2, batch, tokens, width] of 0 and 1."""
    rng = np.random.default_rng([15, step])
    keep = rng.random((LAYERS, 2, BATCH, PATCHES + 1, WIDTH)) >= DROP
    return {
        "image": rng.standard_normal((BATCH, 3, 8, 8)).astype(np.float32),
        "label": rng.integers(0, CLASSES, BATCH),
        "keep": keep.astype(np.float32),
    }


@dataclass(frozen=True)
class Trainer:
    foreach: bool = False

    inputs = ("f[2,3,8,8]",)
    batch = staticmethod(batch)

    def Model(self):
        return initial_torch(ViT())

    def loss(self, model, batch):
        image, label, keep = (torch.as_tensor(batch[name]) for name in ("image", "label", "keep"))
        return functional.cross_entropy(model(image, keep), label)

    def start(self, model):
        if self.foreach:  # a refactoring: one group for each leaf, as layer-wise rates need
            groups = [{"params": [p], "name": name} for name, p in model.named_parameters()]
            optimizer = torch.optim.AdamW(groups, RATE, weight_decay=DECAY, foreach=True)
        else:
            optimizer = torch.optim.AdamW(model.parameters(), RATE, weight_decay=DECAY)
        scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(1.0, (step + 1) / WARM))
        return {"model": model, "optimizer": optimizer, "scheduler": scheduler, "ema": Average(model)}

    def step(self, state, batch):
        loss = self.loss(state["model"], batch)
        state["optimizer"].zero_grad()
        loss.backward()
        state["optimizer"].step()
        state["scheduler"].step()
        state["ema"].update(state["model"])
        return state, loss.detach()

    def train(self, folder, steps=12):
        yield from torch_loop(self, folder, steps)


reference = Trainer()
