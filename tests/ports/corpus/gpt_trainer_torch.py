"""Trainer of the small GPT in PyTorch: AdamW in two groups, warm-up and cosine, clipping, two micro-batches."""

import math
from dataclasses import dataclass

import numpy as np
import torch
from torch.nn import functional

from tests.ports.corpus import gpt_torch
from tests.ports.corpus.gpt_torch import LENGTH, VOCABULARY
from tests.ports.corpus.initial import initial_torch
from tests.ports.corpus.loops import torch_loop

MICRO, BATCH, RATE, WARM, LAST, DECAY, CLIP = 2, 2, 3e-3, 4, 60, 0.1, 1.0


def batch(step):
    """Return the micro-batches of a step: tokens and the tokens after them, int64 [micro, batch, time]."""
    tokens = np.random.default_rng([11, step]).integers(0, VOCABULARY, (MICRO, BATCH, LENGTH + 1))
    return {"x": tokens[..., :-1], "y": tokens[..., 1:]}


def rate(step):
    """Return the factor of the learning rate: linear warm-up, then half a cosine to a tenth."""
    if step < WARM:
        return (step + 1) / WARM
    done = (step - WARM) / (LAST - WARM)
    return 0.1 + 0.9 * 0.5 * (1 + math.cos(math.pi * min(done, 1.0)))


def loss(model, batch):
    x, y = (torch.as_tensor(batch[name]).flatten(0, -2) for name in ("x", "y"))
    return functional.cross_entropy(model(x).flatten(0, 1), y.flatten())


@dataclass(frozen=True)
class Trainer:
    """The reference, and its refactoring with separate projections and an optimizer that is written out."""

    fused: bool = True
    by_hand: bool = False

    inputs = gpt_torch.inputs
    batch = staticmethod(batch)
    loss = staticmethod(loss)

    def Model(self):
        return initial_torch(gpt_torch.Model(fused=self.fused, dropout=0.0))

    def start(self, model):
        model.train()
        groups = [
            {"params": [p for p in model.parameters() if p.dim() >= 2], "weight_decay": DECAY},
            {"params": [p for p in model.parameters() if p.dim() < 2], "weight_decay": 0.0},
        ]
        if self.by_hand:
            return {"model": model, "optimizer": AdamW(groups)}
        optimizer = torch.optim.AdamW(groups, lr=RATE, betas=(0.9, 0.95))
        return {
            "model": model,
            "optimizer": optimizer,
            "scheduler": torch.optim.lr_scheduler.LambdaLR(optimizer, rate),
        }

    def step(self, state, batch):
        model, optimizer = state["model"], state["optimizer"]
        optimizer.zero_grad()
        total = 0.0
        for x, y in zip(batch["x"], batch["y"], strict=True):
            part = loss(model, {"x": x, "y": y}) / MICRO
            part.backward()
            total += part.detach()
        torch.nn.utils.clip_grad_norm_(model.parameters(), CLIP)
        optimizer.step()
        if "scheduler" in state:
            state["scheduler"].step()
        return state, total

    def train(self, folder, steps=12):
        yield from torch_loop(self, folder, steps)


class AdamW(torch.optim.Optimizer):
    """AdamW as a paper has it: the rate of the step, both moments, decay of the weights before the step."""

    def __init__(self, groups):
        super().__init__(groups, {"lr": RATE, "betas": (0.9, 0.95), "eps": 1e-8})

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for p in group["params"]:
                held = self.state[p]
                if not held:
                    held |= {"step": 0, "m": torch.zeros_like(p), "v": torch.zeros_like(p)}
                at, (one, two) = held["step"] + 1, group["betas"]
                lr = RATE * rate(held["step"])
                held["step"] = at
                held["m"] = one * held["m"] + (1 - one) * p.grad
                held["v"] = two * held["v"] + (1 - two) * p.grad**2
                mean, var = held["m"] / (1 - one**at), held["v"] / (1 - two**at)
                p.copy_(p - lr * (mean / (var.sqrt() + group["eps"]) + group["weight_decay"] * p))


reference = Trainer()
