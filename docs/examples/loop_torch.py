"""A training loop in PyTorch, with the one line that a resume check needs."""

from collections.abc import Iterator
from pathlib import Path

import torch
from torch import nn


def train(folder: Path, steps: int = 60) -> Iterator[int]:
    """Train a classifier; continue from `folder/state.pt` if there is one."""
    torch.manual_seed(0)
    inputs, labels = torch.randn(256, 8), torch.randint(0, 3, (256,))
    model = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Dropout(0.1), nn.Linear(32, 3))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 60)
    start = 0
    if (folder / "state.pt").exists():
        state = torch.load(folder / "state.pt", weights_only=True)
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        scheduler.load_state_dict(state["scheduler"])
        torch.set_rng_state(state["rng"])
        start = state["step"]
    for step in range(start, steps):
        yield step  # the line that was added: the number of completed steps
        batch = torch.arange(step * 32, step * 32 + 32) % 256
        loss = nn.functional.cross_entropy(model(inputs[batch]), labels[batch])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        scheduler.step()
        if (step + 1) % 10 == 0:
            state = {
                "model": model.state_dict(),
                "optimizer": optimizer.state_dict(),
                "scheduler": scheduler.state_dict(),
                "rng": torch.get_rng_state(),
                "step": step + 1,
            }
            torch.save(state, folder / "state.pt")
