"""The five models trained by a plain loop of PyTorch: AdamW in the usual two groups, a warm-up and a cosine, a clip.

All of it is float64, and the casts to float32 inside transformers are answered in float64 (`exact`): what is compared
is the training and not the rounding of a library.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.optim.lr_scheduler import CosineAnnealingLR, LinearLR, SequentialLR

from tests.ports.five import hugging
from torch_side.probes.islands import Islands

__all__ = ["AFTER", "BEFORE", "CLIP", "DECAY", "RATE", "ROWS", "WARMUP", "TorchRun", "batch", "exact", "one_ulp"]

BEFORE, AFTER, WARMUP, ROWS = 30, 50, 10, 8
"""Steps before the handover and after it, steps of the warm-up, rows of a batch."""
RATE, DECAY, CLIP = 1e-3, 0.1, 0.5
"""The clip is at work: after the handover the norms are above it at all 50 steps, of T5 at 27."""


@contextmanager
def exact(*, lift: bool = True) -> Iterator[Islands]:
    """Compute in float64, what the libraries cast to float32 too unless `lift` is off; yields those casts."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        with Islands(lift=lift) as islands:
            yield islands
    finally:
        torch.set_default_dtype(before)


def optimizer_of(model: Any) -> torch.optim.AdamW:
    """Return AdamW that decays what has two axes and more."""
    some = [one for one in model.parameters() if one.requires_grad]
    groups = [{"params": [one for one in some if one.ndim >= 2], "weight_decay": DECAY},
              {"params": [one for one in some if one.ndim < 2], "weight_decay": 0.0}]  # fmt: skip
    return torch.optim.AdamW(groups, lr=RATE)


def both(name: str) -> tuple[Any, torch.optim.AdamW]:
    """Return a model and its optimizer, as `parity convert --model` takes them."""
    with exact():
        torch.manual_seed(0)
        model = hugging.MODELS[name]().double()
    return model, optimizer_of(model)


gpt2, llama, bert, vit, t5 = (partial(both, name) for name in ("gpt2", "llama", "bert", "vit", "t5"))


def batch(name: str, step: int) -> dict[str, np.ndarray[Any, Any]]:
    """Return the rows of a step, the same in both frameworks."""
    return hugging.BATCHES[name](ROWS, 1000 + step)


class TorchRun:
    """A run of one model.

    Args:
        name: Of the model.
    """

    def __init__(self, name: str) -> None:
        self.name, self.step = name, 0
        self.islands: dict[str, Any] = {}
        """Place to the cast to float32 there that was answered in float64."""
        self.model, self.optimizer = both(name)
        self.model.train()
        warm = LinearLR(self.optimizer, start_factor=0.1, total_iters=WARMUP)
        cosine = CosineAnnealingLR(self.optimizer, T_max=2 * (BEFORE + AFTER), eta_min=RATE / 10)
        self.scheduler = SequentialLR(self.optimizer, [warm, cosine], [WARMUP])

    def advance(self, steps: int) -> list[float]:
        """Train, and return the loss of each step."""
        losses = []
        for _ in range(steps):
            with exact() as islands:
                loss = self.model(**self._given(self.step)).loss
                self.optimizer.zero_grad()
                loss.backward()
            self.islands |= {one.where: one for one in islands.found}
            torch.nn.utils.clip_grad_norm_(self.model.parameters(), CLIP)
            self.optimizer.step()
            self.scheduler.step()
            self.step += 1
            losses.append(loss.item())
        return losses

    def loss(self, step: int, *, lift: bool) -> float:
        """Return the loss of a step, with the casts of the libraries or without them."""
        with exact(lift=lift), torch.no_grad():
            return float(self.model(**self._given(step)).loss)

    def _given(self, step: int) -> dict[str, torch.Tensor]:
        return {key: torch.from_numpy(value) for key, value in batch(self.name, step).items()}

    def save(self, path: Path) -> None:
        """Write all of it."""
        torch.save({"model": self.model.state_dict(), "optimizer": self.optimizer.state_dict(),
                    "scheduler": self.scheduler.state_dict(), "step": self.step}, path)  # fmt: skip

    def load(self, path: Path) -> None:
        """Continue from a file."""
        held = torch.load(path, weights_only=True)
        self.model.load_state_dict(held["model"])
        self.optimizer.load_state_dict(held["optimizer"])
        self.scheduler.load_state_dict(held["scheduler"])
        self.step = int(held["step"])


def one_ulp(model: Any, seed: int = 0) -> None:
    """Move every parameter by one unit in its last place, up or down."""
    rng = np.random.default_rng(seed)
    with torch.no_grad():
        for one in model.parameters():
            side = torch.from_numpy(rng.choice((-np.inf, np.inf), tuple(one.shape)))
            one.copy_(torch.nextafter(one, side))
