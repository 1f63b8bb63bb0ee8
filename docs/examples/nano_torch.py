"""A small GPT and its training, as nanoGPT has them: AdamW in two groups, a warm-up and a cosine, a clip."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.nn import functional


@dataclass
class Config:
    """Sizes of the model."""

    layers: int = 2
    heads: int = 2
    width: int = 16
    words: int = 40
    block: int = 12


class Attention(nn.Module):
    """Causal attention with one projection for query, key and value."""

    def __init__(self, c: Config) -> None:
        super().__init__()
        self.heads = c.heads
        self.c_attn, self.c_proj = nn.Linear(c.width, 3 * c.width), nn.Linear(c.width, c.width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return what each place takes from those before it."""
        b, t, n = x.shape
        q, k, v = (one.view(b, t, self.heads, -1).transpose(1, 2) for one in self.c_attn(x).split(n, dim=2))
        y = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.c_proj(y.transpose(1, 2).reshape(b, t, n))


class Block(nn.Module):
    """Attention and two linear layers, each after a norm and beside a residual."""

    def __init__(self, c: Config) -> None:
        super().__init__()
        self.ln_1, self.ln_2, self.attn = nn.LayerNorm(c.width), nn.LayerNorm(c.width), Attention(c)
        self.c_fc, self.c_proj = nn.Linear(c.width, 4 * c.width), nn.Linear(4 * c.width, c.width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the next hidden state."""
        x = x + self.attn(self.ln_1(x))
        return x + self.c_proj(functional.gelu(self.c_fc(self.ln_2(x))))


class GPT(nn.Module):
    """Logits of the next words; the head is tied to the embedding."""

    def __init__(self) -> None:
        super().__init__()
        c = Config()
        self.wte, self.wpe = nn.Embedding(c.words, c.width), nn.Embedding(c.block, c.width)
        self.h, self.ln_f = nn.ModuleList(Block(c) for _ in range(c.layers)), nn.LayerNorm(c.width)
        self.lm_head = nn.Linear(c.width, c.words, bias=False)
        self.lm_head.weight = self.wte.weight
        for one in self.modules():
            if isinstance(one, nn.Linear | nn.Embedding):
                nn.init.normal_(one.weight, std=0.02)

    def forward(self, idx: torch.Tensor) -> torch.Tensor:
        """Return logits, [batch, time, words], of words, int64 [batch, time]."""
        x = self.wte(idx) + self.wpe(torch.arange(idx.shape[1]))
        for block in self.h:
            x = block(x)
        return self.lm_head(self.ln_f(x))


def make_optimizer(model: nn.Module) -> torch.optim.Optimizer:
    """Return AdamW, whose decay is of matrices alone."""
    parts = ([p for p in model.parameters() if (p.dim() >= 2) == wanted] for wanted in (True, False))
    groups = [{"params": some, "weight_decay": decay} for some, decay in zip(parts, (0.1, 0.0), strict=True)]
    return torch.optim.AdamW(groups, lr=3e-3, betas=(0.9, 0.95))


def rate(step: int, top: float = 3e-3, warmup: int = 10, decay: int = 60, least: float = 3e-4) -> float:
    """Return the learning rate of a step: a warm-up, then a cosine down to the least."""
    if step < warmup:
        return top * (step + 1) / (warmup + 1)
    share = min(1.0, (step - warmup) / (decay - warmup))
    return least + 0.5 * (1.0 + math.cos(math.pi * share)) * (top - least)


def batch(step: int) -> tuple[np.ndarray, np.ndarray]:
    """Return words and the next ones, int64 [4, 12], from a text of 20 phrases."""
    draws = np.random.default_rng(7)
    phrases = draws.integers(0, Config.words, (20, 5))
    text = np.concatenate([phrases[one] for one in draws.integers(0, 20, 400)])
    at = np.random.default_rng([1, step]).integers(0, len(text) - Config.block - 1, 4)
    x, y = (np.stack([text[i + d : i + d + Config.block] for i in at]) for d in (0, 1))
    return x, y


def train(folder: Path, steps: int = 40, every: int = 10, dtype: torch.dtype = torch.float32) -> Iterator[int]:
    """Train; continue from `folder/ckpt.pt` if there is one."""
    torch.manual_seed(1337)
    model, begin, path = GPT().to(dtype), 0, folder / "ckpt.pt"
    optimizer = make_optimizer(model)
    if path.exists():
        held = torch.load(path, weights_only=True)
        model.load_state_dict(held["model"])
        optimizer.load_state_dict(held["optimizer"])
        begin = held["iter_num"]
    for step in range(begin, steps):
        yield step
        for group in optimizer.param_groups:
            group["lr"] = rate(step)
        x, y = map(torch.from_numpy, batch(step))
        loss = functional.cross_entropy(model(x).flatten(0, 1), y.flatten())
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        with (folder / "losses.txt").open("a") as file:
            print(step, loss.item(), file=file)
        if (step + 1) % every == 0:
            held = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "iter_num": step + 1}
            torch.save(held, path)
