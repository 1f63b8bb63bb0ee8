"""Training functions whose modules do something when they are imported, and what a process shows of itself."""

import json
import os
import pickle
import random
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np

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
    weights = {name: np.full(2, float(at + 1)) for at, name in enumerate(NAMES)}
    file, start = folder / "weights.pickle", 0
    if file.exists():
        start, saved = pickle.loads(file.read_bytes())
        weights |= dict(zip(ordered(NAMES), saved, strict=True))
    for step in range(start, 12):
        yield step
        for name in weights:
            weights[name] = weights[name] * 1.01
        if (step + 1) % 4 == 0:
            file.write_bytes(pickle.dumps((step + 1, [weights[name] for name in ordered(NAMES)])))


def draws(folder: Path) -> Iterator[int]:
    """Train by draws from generators that all code shares; only a module that imports this may have seeded them."""
    weight, file, start = np.zeros(3), folder / "state.pickle", 0
    if file.exists():
        start, weight, drawn, python = pickle.loads(file.read_bytes())
        random.setstate(python)
        np.random.set_state(drawn)  # noqa: NPY002 - the state that all code shares
    for step in range(start, 12):
        yield step
        weight = weight + np.random.normal(size=3) * random.random()  # noqa: NPY002
        if (step + 1) % 4 == 0:
            file.write_bytes(pickle.dumps((step + 1, weight, np.random.get_state(), random.getstate())))  # noqa: NPY002
