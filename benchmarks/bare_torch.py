"""The loop a person would write in PyTorch for the same run: nothing of it comes from `torch_side`.

Same arithmetic as the twin in float32, so the losses are equal bit for bit on a CPU: modules with parameters in the
same order (the gradient norm adds in it), fused optimizers, clipping, the same rates and batches. Losses and norms
stay tensors on the device and are read once, after the last step. Dropout, if any, is PyTorch's own. It trains where
the state is that it starts from.
"""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from benchmarks.batches import Batches
from parity.spec import AdamSpec, CnnSpec, GptSpec, MlpSpec, RunSpec

__all__ = ["BareLoop", "bare_model", "bare_optimizer"]


class BareLoop:
    """Forward, backward, clip, update, over batches cut from arrays in memory, chunk by chunk."""

    def __init__(
        self, spec: RunSpec, steps: int, start: dict[str, Tensor], rng: Tensor | None, *, compiled: bool = False
    ) -> None:
        """Prepare a loop.

        Args:
            spec: The run, float32, without dropout or with the native one.
            steps: Steps of one run.
            start: The twin's `state_dict` at step 0.
            rng: State of the generator of the state's device, if dropout draws from it.
            compiled: Whether forward and loss go through `torch.compile`.
        """
        self.spec, self.batches = spec, Batches.of(spec, steps)
        self.rng = rng
        self.start = {name: value.clone() for name, value in start.items()}
        self.device = next(iter(self.start.values())).device
        self.model = bare_model(spec).to(self.device)
        self.params = list(self.model.parameters())
        self.optimizer = bare_optimizer(spec, self.params)
        self.loss = torch.compile(self._loss, dynamic=False) if compiled else self._loss

    def reset(self) -> None:
        """Go back to step 0."""
        self.model.load_state_dict(self.start)
        self.optimizer.state.clear()
        if self.rng is not None:
            own = torch.cuda.set_rng_state if self.device.type == "cuda" else torch.set_rng_state
            own(self.rng)

    def run(self) -> NDArray[np.float32]:
        """Train all steps; returns their losses."""
        self.model.train()
        rows: list[tuple[Tensor, Tensor]] = []
        for inputs, targets, rates in self.batches.chunks():
            x, y = (torch.from_numpy(part).to(self.device) for part in (inputs, targets))
            x, y = x if x.is_floating_point() else x.long(), y.long()
            rows += [self._step(x[i], y[i], lr) for i, lr in enumerate(rates.tolist())]
        losses, norms = (torch.stack(column).cpu().numpy() for column in zip(*rows, strict=True))
        assert len(norms) == len(losses)
        return losses

    def _step(self, x: Tensor, y: Tensor, lr: float) -> tuple[Tensor, Tensor]:
        self.optimizer.zero_grad(set_to_none=True)
        micros, losses = self.spec.accumulation, []
        for i in range(micros):
            loss = self.loss(x[i], y[i])
            (loss / micros if micros > 1 else loss).backward()
            losses.append(loss.detach())
        norm = nn.utils.clip_grad_norm_(self.params, self.spec.clip_norm)
        for group in self.optimizer.param_groups:
            group["lr"] = lr
        self.optimizer.step()
        return (torch.stack(losses).sum() / micros if micros > 1 else losses[0]), norm

    def _loss(self, x: Tensor, y: Tensor) -> Tensor:
        return F.cross_entropy(self.model(x).flatten(0, -2), y.flatten())


def bare_optimizer(spec: RunSpec, params: list[nn.Parameter]) -> torch.optim.Optimizer:
    """Return the fused optimizer of a spec, its groups in the twin's order."""
    own = spec.optimizer
    groups: list[dict[str, Any]] = [{"params": params, "weight_decay": own.weight_decay}]
    if own.decay == "matrices":
        groups[0]["params"] = [p for p in params if p.ndim >= 2]
        groups.append({"params": [p for p in params if p.ndim < 2], "weight_decay": 0.0})
    if isinstance(own, AdamSpec):
        return torch.optim.AdamW(groups, lr=own.lr, betas=(own.beta1, own.beta2), eps=own.eps, fused=True)
    return torch.optim.SGD(groups, lr=own.lr, momentum=own.momentum, nesterov=own.nesterov, fused=True)


def bare_model(spec: RunSpec) -> nn.Module:
    """Return a plain module whose `state_dict` has the twin's names."""
    kinds = {MlpSpec: _Mlp, CnnSpec: _Cnn, GptSpec: _Gpt}
    return kinds[type(spec.model)](spec.model, spec.dropout.rate)


class _Mlp(nn.Module):
    def __init__(self, model: MlpSpec, rate: float) -> None:
        super().__init__()
        widths = (model.inputs, *model.hidden, model.classes)
        self.layers = nn.ModuleList([nn.Linear(a, b) for a, b in itertools.pairwise(widths)])
        self.rate = rate

    def forward(self, x: Tensor) -> Tensor:
        *hidden, head = self.layers
        for layer in hidden:
            x = F.relu(layer(x))
            x = F.dropout(x, self.rate) if self.rate else x
        return head(x)


class _Cnn(nn.Module):
    def __init__(self, model: CnnSpec, rate: float) -> None:
        super().__init__()
        self.size, self.rate, channels = model.size, rate, (1, *model.channels)
        self.convs = nn.ModuleList(
            [nn.Conv2d(a, b, 3, padding=1, bias=False) for a, b in itertools.pairwise(channels)]
        )
        self.norms = nn.ModuleList([nn.BatchNorm2d(c) for c in model.channels])
        self.head = nn.Linear(channels[-1] * (model.size // 2 ** len(model.channels)) ** 2, model.classes)

    def forward(self, x: Tensor) -> Tensor:
        x = x.view(-1, 1, self.size, self.size)
        for conv, norm in zip(self.convs, self.norms, strict=True):
            x = F.avg_pool2d(F.relu(norm(conv(x))), 2)
        x = x.flatten(1)
        return self.head(F.dropout(x, self.rate) if self.rate else x)


class _Block(nn.Module):
    def __init__(self, width: int, heads: int, context: int, rate: float) -> None:
        super().__init__()
        self.heads, self.rate = heads, rate
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.register_buffer("causal", torch.ones(context, context, dtype=torch.bool).tril(), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self._drop(self.out(self._attend(self.qkv(self.norm1(x)))))
        return x + self._drop(self.down(F.gelu(self.up(self.norm2(x)))))

    def _attend(self, qkv: Tensor) -> Tensor:
        batch, context, _ = qkv.shape
        q, k, v = qkv.view(batch, context, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        scores = (q @ k.transpose(-2, -1)) * (q.shape[-1] ** -0.5)
        weights = torch.where(self.causal, scores, -torch.inf).softmax(-1)
        return (weights @ v).transpose(1, 2).reshape(batch, context, -1)

    def _drop(self, x: Tensor) -> Tensor:
        return F.dropout(x, self.rate) if self.rate else x


class _Gpt(nn.Module):
    def __init__(self, model: GptSpec, rate: float) -> None:
        super().__init__()
        self.rate = rate
        self.tokens = nn.Embedding(model.vocabulary, model.width)
        self.positions = nn.Embedding(model.context, model.width)
        self.blocks = nn.ModuleList(
            [_Block(model.width, model.heads, model.context, rate) for _ in range(model.layers)]
        )
        self.norm = nn.LayerNorm(model.width)
        self.head = nn.Linear(model.width, model.vocabulary, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        x = self.tokens(x) + self.positions.weight[: x.shape[1]]
        x = F.dropout(x, self.rate) if self.rate else x
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))
