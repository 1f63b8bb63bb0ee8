"""A small language model in PyTorch: packed documents, prefetched batches, an adapter, masters of narrow weights.

Without a switch it resumes exactly. Each switch puts the lines of a real report in the place of the right ones.
"""

from __future__ import annotations

import copy
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.nn import functional

__all__ = ["train"]

VOCABULARY, WIDTH, CONTEXT = 16, 8, 6


class Rotary(nn.Module):
    """Turns features by their position; its table is computed, not saved."""

    frequency: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("frequency", 1.0 / 10 ** torch.linspace(0, 1, WIDTH // 2), persistent=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the turned features."""
        angle = torch.arange(x.shape[1]).unsqueeze(1) * self.frequency
        cos, sin = angle.cos().to(x.dtype), angle.sin().to(x.dtype)
        a, b = x.chunk(2, dim=-1)
        return torch.cat([a * cos - b * sin, a * sin + b * cos], dim=-1)


class QuantizedLinear(nn.Linear):
    """Linear layer whose inputs are rounded with a scale from the largest values of the last calls."""

    scale: torch.Tensor
    history: torch.Tensor

    def __init__(self, inputs: int, outputs: int, *, extra: bool, fault: str) -> None:
        super().__init__(inputs, outputs)
        self.register_buffer("scale", torch.ones(1), persistent=not extra)
        self.register_buffer("scale_inverse", torch.ones(1), persistent=False)
        self.register_buffer("history", torch.zeros(4), persistent=not extra)
        self.extra, self.fault, self.called = extra, fault, False

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Round the inputs, and multiply."""
        rounded = ((x * self.scale).round() * self.scale_inverse).to(x.dtype)
        if self.training:
            self.called = True
            self.history = torch.cat([self.history[1:], x.detach().float().abs().amax().reshape(1)])
            self.scale = 32.0 / self.history.amax().reshape(1)
            self.scale_inverse = 1.0 / self.scale
        return super().forward(x + (rounded - x).detach())

    def derive(self) -> None:
        """Compute what is not saved."""
        self.scale_inverse = 1.0 / self.scale

    def get_extra_state(self) -> dict[str, torch.Tensor]:
        """Return what is saved beside parameters and buffers."""
        if not self.extra or (self.fault == "fp8_extra_state_empty" and not self.called):
            return {}
        return {"scale": self.scale.clone(), "history": self.history.clone()}

    def set_extra_state(self, state: dict[str, torch.Tensor]) -> None:
        """Load it."""
        if state:
            self.scale, self.history = state["scale"], state["history"]


class SeedDropout(nn.Module):
    """Dropout with a generator of its own."""

    def __init__(self, rate: float, seed: int) -> None:
        super().__init__()
        self.rate, self.seed_generator = rate, torch.Generator().manual_seed(seed)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Drop some of the features while training."""
        if not self.training:
            return x
        keep = torch.rand(x.shape, generator=self.seed_generator) >= self.rate
        return x * keep.to(x.dtype) / (1 - self.rate)


class Adapter(nn.Module):
    """Low-rank addition to a layer."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.down = nn.Linear(inputs, 2, bias=False)
        self.up = nn.Linear(2, outputs, bias=False)
        nn.init.zeros_(self.up.weight)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the addition."""
        return self.up(self.down(x))


class LanguageModel(nn.Module):
    """Embedding, rotation, a quantized layer, dropout, a head with an adapter."""

    def __init__(self, *, extra: bool, fault: str) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, WIDTH)
        self.rotary = Rotary()
        self.inner = QuantizedLinear(WIDTH, WIDTH, extra=extra, fault=fault)
        self.dropout = SeedDropout(0.2, seed=5)
        self.head = nn.Linear(WIDTH, VOCABULARY)
        self.adapter = Adapter(WIDTH, VOCABULARY)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Return the logits of the next tokens."""
        x = self.rotary(self.embedding(tokens))
        x = x + self.dropout(torch.tanh(self.inner(x)))
        return self.head(x) + self.adapter(x)


class MasterAdam:
    """AdamW on float32 copies of narrow parameters."""

    def __init__(self, parameters: list[nn.Parameter]) -> None:
        self.parameters = parameters
        self.masters = [nn.Parameter(p.detach().float().clone()) for p in parameters]
        self.optimizer = torch.optim.AdamW(self.masters, lr=0.01)

    def zero_grad(self) -> None:
        """Drop the gradients."""
        for p in self.parameters:
            p.grad = None

    def step(self) -> None:
        """Update the copies, and round them to the parameters."""
        for p, master in zip(self.parameters, self.masters, strict=True):
            assert p.grad is not None
            master.grad = p.grad.float()
        self.optimizer.step()
        self.optimizer.zero_grad()
        with torch.no_grad():
            for p, master in zip(self.parameters, self.masters, strict=True):
                p.copy_(master)

    def state_dict(self) -> dict[str, Any]:
        """Return moments and copies."""
        return {"adam": self.optimizer.state_dict(), "masters": [m.detach().clone() for m in self.masters]}

    def load_state_dict(self, state: dict[str, Any], fault: str = "") -> None:
        """Load them."""
        self.optimizer.load_state_dict(state["adam"])
        for master, p, saved in zip(self.masters, self.parameters, state["masters"], strict=True):
            if fault == "master_rebuilt_from_bf16":
                master.data.copy_(p.detach().float())
            elif fault != "master_weights_random":
                master.data.copy_(saved)


class SmallAdam(torch.optim.Optimizer):
    """Adam whose moments are kept in bfloat16."""

    def __init__(self, parameters: list[nn.Parameter]) -> None:
        super().__init__(parameters, {"lr": 0.01, "betas": (0.9, 0.99)})

    @torch.no_grad()
    def step(self) -> None:  # type: ignore[override]
        """Update the parameters."""
        for group in self.param_groups:
            first, second = group["betas"]
            for p in group["params"]:
                slots = self.state[p]
                if not slots:
                    slots["exp_avg"] = torch.zeros_like(p, dtype=torch.bfloat16)
                    slots["exp_avg_sq"] = torch.zeros_like(p, dtype=torch.bfloat16)
                slots["exp_avg"].lerp_(p.grad.to(slots["exp_avg"].dtype), 1 - first)
                slots["exp_avg_sq"].lerp_(p.grad.square().to(slots["exp_avg_sq"].dtype), 1 - second)
                p.sub_(group["lr"] * slots["exp_avg"].float() / (slots["exp_avg_sq"].float().sqrt() + 1e-6))

    def load_state_dict(self, state: dict[str, Any], fault: str = "") -> None:
        """Load them; PyTorch casts them to the type of the parameters, which is put right."""
        super().load_state_dict(state)
        if fault != "opt_state_cast_up":
            for slots in self.state.values():
                for name, value in slots.items():
                    slots[name] = value.to(torch.bfloat16)


class Packed:
    """Documents of any length, cut into rows; what is left of a document waits in a buffer."""

    def __init__(self, fault: str) -> None:
        generator = torch.Generator().manual_seed(11)
        self.ends = torch.randint(3, 20, (200,), generator=generator).cumsum(0)
        self.tokens = torch.randint(VOCABULARY, (int(self.ends[-1]),), generator=generator)
        self.cursor, self.buffer, self.fault = 0, list[int](), fault

    def rows(self, count: int) -> torch.Tensor:
        """Return the next rows."""
        size = CONTEXT + 1
        while len(self.buffer) < count * size:
            at = self.cursor % len(self.ends)
            self.buffer += self.tokens[self.ends[at - 1] if at else 0 : self.ends[at]].tolist()
            self.cursor += 1
        taken, self.buffer = self.buffer[: count * size], self.buffer[count * size :]
        return torch.tensor(taken).reshape(count, size)

    def state_dict(self) -> dict[str, Any]:
        """Return where it is."""
        return {"cursor": self.cursor, "buffer": list(self.buffer)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go there."""
        self.cursor = state["cursor"]
        self.buffer = [] if self.fault == "packing_buffer_lost" else list(state["buffer"])


class Rows:
    """Rows of one table in a shuffled order, counted one by one: the batch may grow."""

    def __init__(self, fault: str) -> None:
        self.table = torch.randint(VOCABULARY, (200, CONTEXT + 1), generator=torch.Generator().manual_seed(12))
        self.order = torch.randperm(200, generator=torch.Generator().manual_seed(13)).tolist()
        self.consumed, self.batches, self.size, self.fault = 0, 0, 0, fault

    def rows(self, count: int) -> torch.Tensor:
        """Return the next rows."""
        chosen = [self.order[at % len(self.order)] for at in range(self.consumed, self.consumed + count)]
        self.consumed, self.batches, self.size = self.consumed + count, self.batches + 1, count
        return self.table[chosen]

    def state_dict(self) -> dict[str, Any]:
        """Return where it is."""
        if self.fault == "batch_size_changed_offset":
            return {"batches": self.batches, "consumed": self.batches * self.size}
        return {"batches": self.batches, "consumed": self.consumed}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go there."""
        self.batches, self.consumed = state["batches"], state["consumed"]


class Prefetched:
    """Makes batches ahead of the loop; each one carries the state of its source behind it."""

    def __init__(self, source: Packed | Rows, ahead: int, sizes: Any, fault: str) -> None:
        self.source, self.ahead, self.sizes, self.fault = source, ahead, sizes, fault
        self.ready: deque[tuple[torch.Tensor, dict[str, Any]]] = deque()
        self.made, self.behind = 0, source.state_dict()

    def take(self) -> torch.Tensor:
        """Return the next batch."""
        while len(self.ready) <= self.ahead:
            rows = self.source.rows(self.sizes(self.made))
            self.made += 1
            self.ready.append((rows, self.source.state_dict()))
        batch, self.behind = self.ready.popleft()
        return batch

    def state_dict(self) -> dict[str, Any]:
        """Return the state behind the batch that was taken last."""
        if self.fault == "prefetch_ahead_saved":
            return {"source": self.source.state_dict(), "made": self.made}
        return {"source": copy.deepcopy(self.behind), "made": self.made - len(self.ready)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go there."""
        self.source.load_state_dict(state["source"])
        self.made, self.behind = state["made"], state["source"]


def build_optimizer(model: nn.Module, kind: str) -> Any:
    """Return the optimizer of the parameters that are trained."""
    parameters = [p for p in model.parameters() if p.requires_grad]
    if kind == "masters":
        return MasterAdam(parameters)
    return SmallAdam(parameters) if kind == "small" else torch.optim.AdamW(parameters, lr=0.01)


def train(
    folder: Path, *, fault: str = "", steps: int = 24, save_every: int = 5, optimizer_kind: str = "adamw",
    data: str = "packed", ahead: int = 0, extra: bool = False, save_on_start: bool = False,
) -> Iterator[int]:  # fmt: skip
    """Train, save, and continue from what the folder holds.

    Args:
        folder: Checkpoints of this run.
        fault: Bug of the catalogue.
        steps: Steps of the whole run.
        save_every: Steps between two checkpoints.
        optimizer_kind: `adamw`; `masters`: bfloat16 parameters; `small`: bfloat16 moments.
        data: `packed` documents, or `rows` with a batch that grows.
        ahead: Batches made ahead.
        extra: Whether scales are saved as extra state of their module.
        save_on_start: Whether a process that resumed saves at once.
    """
    folder.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(4)
    model = LanguageModel(extra=extra, fault=fault)
    if optimizer_kind == "masters":
        model.to(torch.bfloat16)
        model.inner.scale, model.inner.history = model.inner.scale.float(), model.inner.history.float()
        model.rotary.frequency = model.rotary.frequency.float()
    optimizer = build_optimizer(model, optimizer_kind)
    source = Packed(fault) if data == "packed" else Rows(fault)
    grows = data == "rows"
    feed = Prefetched(source, ahead, lambda batch: 4 if grows and batch >= 8 else 2, fault)
    step = 0
    newest = folder / "last.pt"
    if newest.exists():
        state = torch.load(newest, weights_only=False)
        model.load_state_dict(state["model"])
        if fault != "fp8_scale_inverse_stale":
            model.inner.derive()
        if fault == "nonpersistent_buffer_garbage":  # made on the meta device, and left as the memory was
            model.rotary.frequency = torch.full_like(model.rotary.frequency, 0.37)
        if fault == "adapter_rewrapped":
            model.adapter = Adapter(WIDTH, VOCABULARY)
            optimizer = build_optimizer(model, optimizer_kind)
        if fault == "master_feature_off_on_resume":
            optimizer = build_optimizer(model, "adamw")
            optimizer.load_state_dict(state["optimizer"]["adam"])
        elif optimizer_kind == "adamw":
            optimizer.load_state_dict(state["optimizer"])
        else:
            optimizer.load_state_dict(state["optimizer"], fault)
        feed.load_state_dict(state["feed"])
        if fault != "keras_seed_generator_lost":
            model.dropout.seed_generator.set_state(state["dropout"])
        step = state["step"]
        if save_on_start:
            save(newest, model, optimizer, feed, step)
    while step < steps:
        yield step
        tokens = feed.take()
        logits = model(tokens[:, :-1])
        loss = functional.cross_entropy(logits.flatten(0, 1).float(), tokens[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        step += 1
        if step % save_every == 0:
            save(newest, model, optimizer, feed, step)


def save(path: Path, model: LanguageModel, optimizer: Any, feed: Prefetched, step: int) -> None:
    """Write the checkpoint."""
    state = {
        "step": step,
        "model": model.state_dict(),
        "optimizer": optimizer.state_dict(),
        "feed": feed.state_dict(),
        "dropout": model.dropout.seed_generator.get_state(),
    }
    torch.save(state, path.with_suffix(".tmp"))
    path.with_suffix(".tmp").replace(path)
