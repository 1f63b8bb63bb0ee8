"""A small vision-language-action model and its trainer in PyTorch: two experts that attend as one, flow matching."""

import math
from dataclasses import dataclass

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from tests.ports.corpus.initial import initial_torch
from tests.ports.corpus.loops import torch_loop

WIDTH, ACTION_WIDTH, HEADS, SIZE, LAYERS, VOCABULARY = 12, 8, 2, 4, 2, 17
TOKENS, HORIZON, ACTIONS, REAL, STATE, BATCH = 5, 4, 6, 4, 3, 3
RATE, WARM, LAST, DECAY, CLIP, AVERAGE = 1e-3, 4, 60, 1e-2, 1.0, 0.95
SHORTEST, LONGEST, WORDS = 4e-3, 4.0, 0.1


class RMSNorm(nn.Module):
    """As Gemma has it: the parameter is what the scale is above one."""

    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(width))

    def forward(self, x):
        return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6) * (1 + self.weight)


class Expert(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.pre, self.post = RMSNorm(width), RMSNorm(width)
        self.q, self.k, self.v = (nn.Linear(width, HEADS * SIZE, bias=False) for _ in range(3))
        self.o = nn.Linear(HEADS * SIZE, width, bias=False)
        self.gate, self.up, self.down = (
            nn.Linear(width, 2 * width, bias=False),
            nn.Linear(width, 2 * width, bias=False),
            nn.Linear(2 * width, width, bias=False),
        )

    def heads(self, x):
        x = self.pre(x)
        return [one(x).view(*x.shape[:2], HEADS, SIZE).transpose(1, 2) for one in (self.q, self.k, self.v)]

    def rest(self, x, y):
        x = x + self.o(y.transpose(1, 2).flatten(2))
        h = self.post(x)
        return x + self.down(functional.gelu(self.gate(h), approximate="tanh") * self.up(h))


def time_embedding(time, width):
    """Return sines and cosines of a time in [0, 1], whose periods lie between two limits."""
    share = torch.linspace(0.0, 1.0, width // 2, dtype=time.dtype)
    period = SHORTEST * (LONGEST / SHORTEST) ** share
    turns = time[:, None] * (2 * math.pi / period)
    return torch.cat((turns.sin(), turns.cos()), -1)


class Policy(nn.Module):
    def __init__(self):
        super().__init__()
        self.vision, self.embed = nn.Conv2d(3, WIDTH, 4, stride=4), nn.Embedding(VOCABULARY, WIDTH)
        self.language = nn.ModuleList(Expert(WIDTH) for _ in range(LAYERS))
        self.action = nn.ModuleList(Expert(ACTION_WIDTH) for _ in range(LAYERS))
        self.state_proj = nn.Linear(STATE, ACTION_WIDTH)
        self.action_in, self.action_out = nn.Linear(ACTIONS, ACTION_WIDTH), nn.Linear(ACTION_WIDTH, ACTIONS)
        self.time_in = nn.Linear(2 * ACTION_WIDTH, ACTION_WIDTH)
        self.time_out = nn.Linear(ACTION_WIDTH, ACTION_WIDTH)
        self.norm = RMSNorm(ACTION_WIDTH)

    def forward(self, image, tokens, state, actions, time):
        seen = self.vision(image).flatten(2).transpose(1, 2)
        prefix = torch.cat((seen, self.embed(tokens) * WIDTH**0.5), 1)
        when = time_embedding(time, ACTION_WIDTH)[:, None].expand(-1, HORIZON, -1)
        h = functional.silu(self.time_in(torch.cat((self.action_in(actions), when), -1)))
        suffix = torch.cat((self.state_proj(state)[:, None], self.time_out(h)), 1)
        n, m = prefix.shape[1], suffix.shape[1]
        mask = torch.ones(n + m, n + m, dtype=torch.bool)
        mask[:n, n:] = False  # what is seen and said knows nothing of the actions
        mask[n, n + 1 :] = False  # nor does the state
        for left, right in zip(self.language, self.action, strict=True):
            q, k, v = (torch.cat(both, 2) for both in zip(left.heads(prefix), right.heads(suffix), strict=True))
            y = functional.scaled_dot_product_attention(q, k, v, attn_mask=mask)
            prefix, suffix = left.rest(prefix, y[:, :, :n]), right.rest(suffix, y[:, :, n:])
        words = functional.linear(prefix[:, -TOKENS:], self.embed.weight)
        return self.action_out(self.norm(suffix[:, 1:])), words


def batch(step, time_first=False):
    """Return what a robot saw, was told and did, with the noise and the times of the step, float32."""
    rng = np.random.default_rng([16, step])
    made = {
        "image": rng.standard_normal((BATCH, 3, 8, 8)),
        "tokens": rng.integers(0, VOCABULARY, (BATCH, TOKENS)),
        "state": rng.standard_normal((BATCH, STATE)),
        "actions": rng.standard_normal((BATCH, HORIZON, ACTIONS)) * (np.arange(ACTIONS) < REAL),
    }
    draws = {
        "noise": lambda: rng.standard_normal((BATCH, HORIZON, ACTIONS)),
        "time": lambda: rng.beta(1.5, 1.0, BATCH) * 0.999 + 0.001,
    }
    for name in sorted(draws, reverse=time_first):
        made[name] = draws[name]()
    return {name: one if name == "tokens" else one.astype(np.float32) for name, one in made.items()}


def rate(step):
    done = min(max(step - WARM, 0) / (LAST - WARM), 1.0)
    return (step + 1) / (WARM + 1) if step < WARM else 0.1 + 0.45 * (1 + math.cos(math.pi * done))


@dataclass(frozen=True)
class Trainer:
    inputs = ("f[2,3,8,8]", "i[2,5]<17", "f[2,3]", "f[2,4,6]", "f[2]")
    batch = staticmethod(batch)

    def Model(self):
        return initial_torch(Policy())

    def loss(self, model, batch):
        image, tokens, state, actions, noise, time = (
            torch.as_tensor(batch[name]) for name in ("image", "tokens", "state", "actions", "noise", "time")
        )
        at = time[:, None, None]
        velocity, words = model(image, tokens, state, at * noise + (1 - at) * actions, time)
        said = functional.cross_entropy(words.flatten(0, 1), tokens.roll(-1, 1).flatten())
        return (velocity - (noise - actions))[..., :REAL].square().mean() + WORDS * said

    def start(self, model):
        model.vision.requires_grad_(False)
        trained = [p for p in model.parameters() if p.requires_grad]
        optimizer = torch.optim.AdamW(trained, RATE, betas=(0.9, 0.95), weight_decay=DECAY)
        scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, rate)
        average = torch.optim.swa_utils.AveragedModel(
            model, multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(AVERAGE)
        )
        return {"model": model, "optimizer": optimizer, "scheduler": scheduler, "ema": average}

    def step(self, state, batch):
        loss = self.loss(state["model"], batch)
        state["optimizer"].zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(state["model"].parameters(), CLIP)
        state["optimizer"].step()
        state["scheduler"].step()
        state["ema"].update_parameters(state["model"])
        return state, loss.detach()

    def train(self, folder, steps=12):
        yield from torch_loop(self, folder, steps)


reference = Trainer()
