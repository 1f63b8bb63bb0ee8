"""A small ResNet and its trainer in PyTorch: batch norm, SGD with momentum, decay of kernels, steps of the rate."""

from dataclasses import dataclass

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from tests.ports.corpus.initial import initial_torch
from tests.ports.corpus.loops import torch_loop

WIDTH, CLASSES, BATCH, SIZE = 6, 5, 5, 8
RATE, MOMENTUM, DECAY, MILESTONES = 0.05, 0.9, 1e-2, (20, 40)


class Block(nn.Module):
    def __init__(self, inner, width, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(inner, width, 3, stride, padding=1, bias=False)
        self.conv2 = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.bn1, self.bn2 = nn.BatchNorm2d(width), nn.BatchNorm2d(width)
        self.short = nn.Conv2d(inner, width, 1, stride, bias=False) if stride > 1 else nn.Identity()

    def forward(self, x):
        y = functional.relu(self.bn1(self.conv1(x)))
        return functional.relu(self.bn2(self.conv2(y)) + self.short(x))


class ResNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.bn = nn.Conv2d(3, WIDTH, 3, padding=1, bias=False), nn.BatchNorm2d(WIDTH)
        self.pool = nn.MaxPool2d(3, stride=2, padding=1)
        self.layer1, self.layer2 = Block(WIDTH, WIDTH, 1), Block(WIDTH, 2 * WIDTH, 2)
        self.fc = nn.Linear(2 * WIDTH, CLASSES)

    def forward(self, image):
        x = self.pool(functional.relu(self.bn(self.conv(image))))
        return self.fc(self.layer2(self.layer1(x)).mean((2, 3)))


class Normed(nn.Module):
    """A convolution with its batch norm, written out: the statistics are those of the batch in training."""

    def __init__(self, inner, width, size, stride=1):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(width, inner, size, size))
        self.gain, self.shift = nn.Parameter(torch.ones(width)), nn.Parameter(torch.zeros(width))
        self.register_buffer("running_mean", torch.zeros(width))
        self.register_buffer("running_var", torch.ones(width))
        self.stride, self.size = stride, size

    def forward(self, x):
        y = functional.conv2d(x, self.weight, None, self.stride, self.size // 2)
        mean, var = self.running_mean, self.running_var
        if self.training:
            mean, var = y.mean((0, 2, 3)), y.var((0, 2, 3), unbiased=False)
            count = y.numel() / y.shape[1]
            with torch.no_grad():
                self.running_mean.lerp_(mean, 0.1)
                self.running_var.lerp_(var * count / (count - 1), 0.1)
        scale = self.gain * torch.rsqrt(var + 1e-5)
        return (y - mean[:, None, None]) * scale[:, None, None] + self.shift[:, None, None]


class Written(nn.Module):
    """The same model with batch norms that are written out."""

    def __init__(self):
        super().__init__()
        wide = 2 * WIDTH
        self.stem = Normed(3, WIDTH, 3)
        self.a, self.b = Normed(WIDTH, WIDTH, 3), Normed(WIDTH, WIDTH, 3)
        self.c, self.d = Normed(WIDTH, wide, 3, 2), Normed(wide, wide, 3)
        self.skip, self.out = nn.Conv2d(WIDTH, wide, 1, 2, bias=False), nn.Linear(wide, CLASSES)

    def forward(self, image):
        x = functional.max_pool2d(self.stem(image).relu(), 3, 2, 1)
        x = (self.b(self.a(x).relu()) + x).relu()
        x = (self.d(self.c(x).relu()) + self.skip(x)).relu()
        return self.out(x.flatten(2).mean(-1))


def batch(step):
    """Return images, float32 [batch, 3, 8, 8], and classes, int64 [batch]."""
    rng = np.random.default_rng([13, step])
    return {
        "image": rng.standard_normal((BATCH, 3, SIZE, SIZE)).astype(np.float32),
        "label": rng.integers(0, CLASSES, BATCH),
    }


@dataclass(frozen=True)
class Trainer:
    written: bool = False

    inputs = ("f[3,3,8,8]",)
    batch = staticmethod(batch)

    def Model(self):
        return initial_torch(Written() if self.written else ResNet())

    def loss(self, model, batch):
        model.train()
        return functional.cross_entropy(model(torch.as_tensor(batch["image"])), torch.as_tensor(batch["label"]))

    def start(self, model):
        kernels = [p for p in model.parameters() if p.dim() > 1]
        others = [p for p in model.parameters() if p.dim() == 1]
        groups = [{"params": kernels, "weight_decay": DECAY}, {"params": others}]
        optimizer = torch.optim.SGD(groups, RATE, MOMENTUM)
        scheduler = torch.optim.lr_scheduler.MultiStepLR(optimizer, MILESTONES)
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
