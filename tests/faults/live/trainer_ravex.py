"""A PyTorch loop without a line that saves or loads: ravex does both, and the check looks at what comes back."""

from __future__ import annotations

import math
from pathlib import Path

import torch
from torch.nn import functional
from torch.utils.data import DataLoader

import parity
from tests.faults.live.trainer_torch import Average, Net, Tokens, build_optimizer, rate

__all__ = ["train"]

EPOCHS = 3


def train(folder: Path, *, steps: int = 24, asks_first: bool = False, keeps: bool = False) -> None:
    """Train under `ravex.train_loop`, which saves every 5 steps.

    Args:
        folder: What ravex saves into.
        steps: Steps of the whole run.
        asks_first: Whether the loop asks `ravex.step()` where it is, before the first batch.
        keeps: Whether the loop keeps a moving average of the parameters and the best validation, in plain objects.
    """
    import ravex

    home = {"type": "local", "path": str(folder)}

    @ravex.train_loop(checkpoint_every=5, backend="torch_save", storage=home, max_steps=steps)
    def run() -> None:
        torch.manual_seed(3)
        model = Net(dropout=0.25, tied=True)
        optimizer = build_optimizer(model)
        scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, rate)
        scaler = torch.amp.GradScaler("cpu", init_scale=64.0, growth_interval=6)
        loader = DataLoader(Tokens(32, seed=1), batch_size=4, shuffle=True)
        held_out = Tokens(16, seed=6)
        average, best = (Average(model), math.inf) if keeps else (None, 0.0)
        for _ in range(EPOCHS):
            if asks_first and ravex.step() >= steps:
                break
            for inputs, targets in loader:
                parity.mark(ravex.step())
                optimizer.zero_grad()
                loss = functional.cross_entropy(model(inputs), targets)
                scaler.scale(loss).backward()
                scaler.step(optimizer)
                scaler.update()
                scheduler.step()
                if average is not None:
                    average.update(model)
                    if ravex.step() % 4 == 0:
                        with average.swapped_in(model), torch.no_grad():
                            model.eval()
                            value = functional.cross_entropy(model(held_out.inputs), held_out.targets).item()
                            model.train()
                        if value < best:
                            best = value
                            torch.save({"value": best, "model": average.shadow}, folder / "best_model.pt")

    run()
