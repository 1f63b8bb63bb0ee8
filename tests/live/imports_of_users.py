"""Training functions whose modules do something when they are imported, and what a process shows of itself."""

import json
import os
import random
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from torch.utils.data import DataLoader, TensorDataset

NAMES = [f"layer-{number}" for number in range(12)]


def in_saved_order(folder: Path, note: str = "") -> Iterator[int]:
    """Train one value for each name; save them in an order by name, and note which process this is."""
    told = {"pid": os.getpid(), "parent": os.getppid(), "hash": hash("layer"), "threads": threading.active_count()}
    if note:
        with Path(note).open("a") as lines:
            lines.write(json.dumps(told) + "\n")
    yield from _train(folder, list)


def in_order_of_a_set(folder: Path) -> Iterator[int]:
    """Save the values in the order of a set, and read them in that of another process: a real bug."""
    yield from _train(folder, lambda names: list(set(names)))


def _train(folder: Path, ordered) -> Iterator[int]:  # type: ignore[no-untyped-def]
    weights = {name: torch.full((2,), float(at + 1)) for at, name in enumerate(NAMES)}
    file, start = folder / "weights.pt", 0
    if file.exists():
        start, saved = torch.load(file)
        weights |= dict(zip(ordered(NAMES), saved, strict=True))
    for step in range(start, 12):
        yield step
        for name in weights:
            weights[name] = weights[name] * 1.01
        if (step + 1) % 4 == 0:
            torch.save((step + 1, [weights[name] for name in ordered(NAMES)]), file)


def draws(folder: Path) -> Iterator[int]:
    """Train by draws from generators that all code shares; only a module that imports this may have seeded them."""
    weight, file, start = torch.zeros(3), folder / "state.pt", 0
    if file.exists():
        start, weight, drawn, python = torch.load(file, weights_only=False)
        random.setstate(python)
        np.random.set_state(drawn)  # noqa: NPY002 - the state that all code shares
    for step in range(start, 12):
        yield step
        weight = weight + torch.from_numpy(np.random.normal(size=3)) * random.random()  # noqa: NPY002
        if (step + 1) % 4 == 0:
            torch.save((step + 1, weight, np.random.get_state(), random.getstate()), file)  # noqa: NPY002


def loads_by_a_lambda(folder: Path) -> Iterator[int]:
    """Load batches by a worker process that takes a lambda: fine where workers are forked, as on Linux by default."""
    torch.manual_seed(0)
    weight, file, start = torch.zeros(2), folder / "weight.pt", 0
    if file.exists():
        start, weight, drawn = torch.load(file)
        torch.set_rng_state(drawn)
    data = TensorDataset(torch.arange(24.0).reshape(12, 2))
    loader = DataLoader(data, num_workers=1, collate_fn=lambda rows: torch.stack([row for (row,) in rows]))
    for step in range(start, 12):
        yield step
        for batch in loader:
            weight = 0.9 * weight + batch.sum(0)
        if (step + 1) % 4 == 0:
            torch.save((step + 1, weight, torch.get_rng_state()), file)
