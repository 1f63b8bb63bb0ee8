"""An MLP-Mixer and its trainer in PyTorch: SGD with Nesterov's momentum and L2, a cosine, label smoothing."""

from dataclasses import dataclass

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from tests.ports.corpus.initial import initial_torch
from tests.ports.corpus.loops import torch_loop

WIDTH, PATCHES, TOKENS, HIDDEN, LAYERS, CLASSES, BATCH = 12, 16, 8, 20, 2, 5, 6
RATE, MOMENTUM, L2, LAST, SMOOTHING = 0.05, 0.9, 5e-3, 60, 0.1


class Mlp(nn.Module):
    def __init__(self, width, hidden):
        super().__init__()
        self.fc1, self.fc2 = nn.Linear(width, hidden), nn.Linear(hidden, width)

    def forward(self, x):
        return self.fc2(functional.gelu(self.fc1(x)))


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.tokens, self.channels = Mlp(PATCHES, TOKENS), Mlp(WIDTH, HIDDEN)

    def forward(self, x):
        x = x + self.tokens(self.norm1(x).transpose(1, 2)).transpose(1, 2)
        return x + self.channels(self.norm2(x))


class Mixer(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(3, WIDTH, 2, stride=2)
        self.blocks = nn.Sequential(*(Block() for _ in range(LAYERS)))
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, CLASSES)

    def forward(self, image):
        x = self.stem(image).flatten(2).transpose(1, 2)
        return self.head(self.norm(self.blocks(x)).mean(1))


class Stacked(nn.Module):
    """The same model with the layers of one kind in one parameter each, and einsum for matrices."""

    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(3, WIDTH, 2, stride=2)
        shapes = {
            "g1": (WIDTH,), "b1": (WIDTH,), "g2": (WIDTH,), "b2": (WIDTH,),
            "t1": (PATCHES, TOKENS), "tb1": (TOKENS,), "t2": (TOKENS, PATCHES), "tb2": (PATCHES,),
            "c1": (WIDTH, HIDDEN), "cb1": (HIDDEN,), "c2": (HIDDEN, WIDTH), "cb2": (WIDTH,),
        }  # fmt: skip
        for name, shape in shapes.items():
            start = torch.ones if name.startswith("g") else torch.zeros
            self.register_parameter(name, nn.Parameter(start(LAYERS, *shape)))
        for name in ("t1", "t2", "c1", "c2"):
            nn.init.normal_(getattr(self, name), 0.0, 0.2)
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, CLASSES)
        initial_torch(self.stem), initial_torch(self.head)

    def forward(self, image):
        x = self.stem(image).flatten(2).transpose(1, 2)
        for at in range(LAYERS):
            h = functional.layer_norm(x, (WIDTH,), self.g1[at], self.b1[at])
            h = functional.gelu(torch.einsum("bpc,pt->btc", h, self.t1[at]) + self.tb1[at][:, None])
            x = x + torch.einsum("btc,tp->bpc", h, self.t2[at]) + self.tb2[at][:, None]
            h = functional.layer_norm(x, (WIDTH,), self.g2[at], self.b2[at])
            x = x + functional.gelu(h @ self.c1[at] + self.cb1[at]) @ self.c2[at] + self.cb2[at]
        return self.head(self.norm(x).mean(1))


def batch(step):
    """Return images, float32 [batch, 3, 8, 8], and classes, int64 [batch]."""
    rng = np.random.default_rng([12, step])
    return {
        "image": rng.standard_normal((BATCH, 3, 8, 8)).astype(np.float32),
        "label": rng.integers(0, CLASSES, BATCH),
    }


@dataclass(frozen=True)
class Trainer:
    stacked: bool = False

    inputs = ("f[2,3,8,8]",)
    batch = staticmethod(batch)

    def Model(self):
        return Stacked() if self.stacked else initial_torch(Mixer())

    def loss(self, model, batch):
        logits = model(torch.as_tensor(batch["image"]))
        return functional.cross_entropy(logits, torch.as_tensor(batch["label"]), label_smoothing=SMOOTHING)

    def start(self, model):
        optimizer = torch.optim.SGD(model.parameters(), RATE, MOMENTUM, weight_decay=L2, nesterov=True)
        scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, LAST)
        return {"model": model, "optimizer": optimizer, "scheduler": scheduler}

    def step(self, state, batch):
        loss = self.loss(state["model"], batch)
        state["optimizer"].zero_grad()
        loss.backward()
        state["optimizer"].step()
        state["scheduler"].step()
        return state, loss.detach()

    def train(self, folder, steps=12):
        yield from torch_loop(self, folder, steps)


reference = Trainer()
