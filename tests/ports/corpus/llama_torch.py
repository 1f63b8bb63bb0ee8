"""A Llama-shaped model and its trainer in PyTorch: rotary, grouped queries, RMSNorm, SwiGLU; padded texts."""

from dataclasses import dataclass

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from tests.ports.corpus.initial import initial_torch
from tests.ports.corpus.loops import torch_loop

WIDTH, HEADS, GROUPS, HIDDEN, LAYERS, VOCABULARY, LENGTH, BATCH = 16, 4, 2, 24, 2, 29, 9, 3
SIZE = WIDTH // HEADS
BASE, EPS = 10000.0, 1e-6
RATE, WARM, LAST, DECAY, CLIP = 2e-3, 5, 60, 0.1, 0.5


class RMSNorm(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(WIDTH))

    def forward(self, x):
        return self.weight * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + EPS))


def angles(time, like):
    inverse = 1.0 / BASE ** (torch.arange(0, SIZE, 2, dtype=like.dtype) / SIZE)
    return torch.outer(torch.arange(time, dtype=like.dtype), inverse)


def rotate(x):
    """Turn pairs of a half and the other half by the place, [batch, heads, time, size]."""
    both = angles(x.shape[-2], x).repeat(1, 2)
    left, right = x.chunk(2, -1)
    return x * both.cos() + torch.cat((-right, left), -1) * both.sin()


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.q_proj = nn.Linear(WIDTH, HEADS * SIZE, bias=False)
        self.k_proj, self.v_proj = (nn.Linear(WIDTH, GROUPS * SIZE, bias=False) for _ in range(2))
        self.o_proj = nn.Linear(HEADS * SIZE, WIDTH, bias=False)

    def forward(self, x):
        b, t, _ = x.shape
        q, k, v = (one(x).view(b, t, -1, SIZE).transpose(1, 2) for one in (self.q_proj, self.k_proj, self.v_proj))
        k, v = (one.repeat_interleave(HEADS // GROUPS, 1) for one in (rotate(k), v))
        y = functional.scaled_dot_product_attention(rotate(q), k, v, is_causal=True)
        return self.o_proj(y.transpose(1, 2).reshape(b, t, -1))


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.input_layernorm, self.post_attention_layernorm = RMSNorm(), RMSNorm()
        self.self_attn = Attention()
        self.gate_proj, self.up_proj = (nn.Linear(WIDTH, HIDDEN, bias=False) for _ in range(2))
        self.down_proj = nn.Linear(HIDDEN, WIDTH, bias=False)

    def forward(self, x):
        x = x + self.self_attn(self.input_layernorm(x))
        h = self.post_attention_layernorm(x)
        return x + self.down_proj(functional.silu(self.gate_proj(h)) * self.up_proj(h))


class Llama(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed_tokens = nn.Embedding(VOCABULARY, WIDTH)
        self.layers = nn.ModuleList(Layer() for _ in range(LAYERS))
        self.norm, self.lm_head = RMSNorm(), nn.Linear(WIDTH, VOCABULARY, bias=False)

    def forward(self, tokens):
        x = self.embed_tokens(tokens)
        for layer in self.layers:
            x = layer(x)
        return self.lm_head(self.norm(x))


class Wide(nn.Module):
    """The same layer refactored: one matrix for queries, keys and values, one for gate and up; complex turns."""

    def __init__(self):
        super().__init__()
        self.n1, self.n2 = (nn.Parameter(torch.ones(WIDTH)) for _ in range(2))
        self.wqkv = nn.Linear(WIDTH, (HEADS + 2 * GROUPS) * SIZE, bias=False)
        self.wo, self.w13 = nn.Linear(WIDTH, WIDTH, bias=False), nn.Linear(WIDTH, 2 * HIDDEN, bias=False)
        self.w2 = nn.Linear(HIDDEN, WIDTH, bias=False)

    def forward(self, x):
        b, t, _ = x.shape
        h = functional.rms_norm(x, (WIDTH,), self.n1, EPS)
        q, k, v = self.wqkv(h).view(b, t, -1, SIZE).split([HEADS, GROUPS, GROUPS], 2)
        turns = torch.polar(torch.ones_like(angles(t, x)), angles(t, x))[:, None]
        q, k = (self.turned(one, turns) for one in (q, k))
        scores = torch.einsum("bqghd,bkgd->bghqk", q.reshape(b, t, GROUPS, -1, SIZE), k) * SIZE**-0.5
        late = torch.ones(t, t, dtype=torch.bool).triu(1)
        y = torch.einsum("bghqk,bkgd->bqghd", scores.masked_fill(late, -torch.inf).softmax(-1), v)
        x = x + self.wo(y.reshape(b, t, WIDTH))
        gate, up = self.w13(functional.rms_norm(x, (WIDTH,), self.n2, EPS)).chunk(2, -1)
        return x + self.w2(functional.silu(gate) * up)

    @staticmethod
    def turned(x, turns):
        pairs = torch.complex(x[..., : SIZE // 2], x[..., SIZE // 2 :]) * turns
        return torch.cat((pairs.real, pairs.imag), -1)


class WideLlama(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.norm = nn.Embedding(VOCABULARY, WIDTH), RMSNorm()
        self.body, self.head = (
            nn.Sequential(*(Wide() for _ in range(LAYERS))),
            nn.Linear(WIDTH, VOCABULARY, bias=False),
        )

    def forward(self, tokens):
        return self.head(self.norm(self.body(self.embed(tokens))))


def batch(step):
    """Return tokens, those after them, int64 [batch, time], and which of them are no padding, float32."""
    rng = np.random.default_rng([14, step])
    tokens = rng.integers(1, VOCABULARY, (BATCH, LENGTH + 1))
    lengths = rng.integers(3, LENGTH + 1, BATCH)
    mask = np.arange(LENGTH) < lengths[:, None]
    return {"x": tokens[:, :-1], "y": np.where(mask, tokens[:, 1:], 0), "mask": mask.astype(np.float32)}


def rate(step):
    """Return the factor of the rate: linear up, then linear down to zero."""
    return min((step + 1) / WARM, (LAST - step) / (LAST - WARM))


@dataclass(frozen=True)
class Trainer:
    wide: bool = False

    inputs = ("i[2,7]<29",)
    batch = staticmethod(batch)

    def Model(self):
        return initial_torch(WideLlama() if self.wide else Llama())

    def loss(self, model, batch):
        x, y, mask = (torch.as_tensor(batch[name]) for name in ("x", "y", "mask"))
        losses = functional.cross_entropy(model(x).transpose(1, 2), y, reduction="none")
        return (losses * mask).sum() / mask.sum()

    def start(self, model):
        groups = [
            {"params": [p for p in model.parameters() if p.dim() > 1], "weight_decay": DECAY},
            {"params": [p for p in model.parameters() if p.dim() == 1], "weight_decay": 0.0},
        ]
        optimizer = torch.optim.AdamW(groups, RATE, betas=(0.9, 0.95))
        return {
            "model": model,
            "optimizer": optimizer,
            "scheduler": torch.optim.lr_scheduler.LambdaLR(optimizer, rate),
        }

    def step(self, state, batch):
        loss = self.loss(state["model"], batch)
        state["optimizer"].zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(state["model"].parameters(), CLIP)
        state["optimizer"].step()
        state["scheduler"].step()
        return state, loss.detach()

    def train(self, folder, steps=12):
        yield from torch_loop(self, folder, steps)


reference = Trainer()
