"""Training loops on a GPU: PyTorch with mixed precision and its own generators, JAX with NNX; faults by name."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import torch
from torch import nn

FAULTS = {
    "cuda generator": "rng.cuda",
    "scaler": "scaler.",
    "moments": "optimizer.",
    "scheduler": "schedule",
}
"""What is not restored, to what the name of the first component must begin with."""


def train_cuda(folder: Path, steps: int = 24, lost: str = "", narrow: str = "float16") -> Iterator[int]:
    """Train with dropout on the device, autocast, a loss scale that grows and a schedule."""
    torch.manual_seed(0)
    device = torch.device("cuda")
    inputs, labels = torch.randn(256, 32, device=device), torch.randint(0, 5, (256,), device=device)
    model = nn.Sequential(nn.Linear(32, 64), nn.GELU(), nn.Dropout(0.2), nn.Linear(64, 5)).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 60)
    scaler = torch.amp.GradScaler("cuda", init_scale=1024.0, growth_interval=5, enabled=narrow == "float16")
    start = 0
    if (folder / "state.pt").exists():
        held = torch.load(folder / "state.pt", weights_only=True)
        model.load_state_dict(held["model"])
        if lost != "moments":
            optimizer.load_state_dict(held["optimizer"])
        if lost != "scheduler":
            scheduler.load_state_dict(held["scheduler"])
        if lost != "scaler":
            scaler.load_state_dict(held["scaler"])
        torch.set_rng_state(held["cpu"])
        if lost != "cuda generator":
            torch.cuda.set_rng_state(held["cuda"])
        start = held["step"]
    for step in range(start, steps):
        yield step
        batch = torch.arange(step * 32, step * 32 + 32, device=device) % 256
        with torch.autocast("cuda", getattr(torch, narrow)):
            loss = nn.functional.cross_entropy(model(inputs[batch]), labels[batch])
        optimizer.zero_grad()
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        scheduler.step()
        if (step + 1) % 4 == 0:
            torch.save(
                {
                    "model": model.state_dict(),
                    "optimizer": optimizer.state_dict(),
                    "scheduler": scheduler.state_dict(),
                    "scaler": scaler.state_dict(),
                    "cpu": torch.get_rng_state(),
                    "cuda": torch.cuda.get_rng_state(),
                    "step": step + 1,
                },
                folder / "state.pt",
            )


def train_atomics(folder: Path, steps: int = 24) -> Iterator[int]:
    """Train with sums of rows by atomic additions, whose order no two runs share."""
    torch.manual_seed(0)
    device = torch.device("cuda")
    table = nn.Parameter(torch.randn(64, 64, device=device))
    optimizer = torch.optim.SGD([table], lr=0.1, momentum=0.9)
    rows = torch.randint(0, 64, (200_000,), device=device)
    weight = torch.randn(200_000, 64, device=device)
    start = 0
    if (folder / "state.pt").exists():
        held = torch.load(folder / "state.pt", weights_only=True)
        table.data.copy_(held["table"])
        optimizer.load_state_dict(held["optimizer"])
        start = held["step"]
    for step in range(start, steps):
        yield step
        summed = torch.zeros_like(table).index_add_(0, rows, weight * 1e-3)
        loss = ((table - summed) ** 2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if (step + 1) % 4 == 0:
            torch.save(
                {"table": table.data, "optimizer": optimizer.state_dict(), "step": step + 1}, folder / "state.pt"
            )
