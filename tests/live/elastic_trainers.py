"""Trainers that another number of processes may resume, in NumPy: ranks exchange through files, nothing is imported.

The batch is one of the whole run: each rank takes its part, so that any number of processes trains alike but for the
order of sums. The momentum is kept in shards, weights are replicated, and each rank counts its own samples.
"""

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from tests.live.rank_trainers import exchange, place, read, save

BATCH = 12


def gather(folder: Path, name: str, value: np.ndarray[Any, Any]) -> list[np.ndarray[Any, Any]]:
    """Return what every rank gives; another number of processes has other files."""
    return exchange(folder, f"{name}-of-{place()[1]}", value)


def train(folder: Path, steps: int, fault: str = "", each: int = 0) -> Iterator[int]:
    """Fit by momentum; `each` gives every rank so many samples a step, in place of its part of one batch.

    Rank 0 leaves a report: the steps trained in all, the number of processes, and the weights.
    """
    rank, count = place()
    weights, momentum, seen, start = np.zeros(4), np.zeros(4), 0, 0
    mine = each if each else BATCH // count
    parts = sorted(folder.glob("saved-*.npz"))
    if parts:
        states = [read(part) for part in parts]
        state, before = states[0], len(states)
        if fault == "refuses" and before != count:
            raise ValueError(f"saved by {before} processes, started with {count}")
        momentum = np.concatenate([one["momentum"] for one in states])
        weights, start = state["weights"], int(state["step"])
        seen = int(state["seen"]) * before // count
        if before != count:
            match fault:
                case "a shard dropped":
                    momentum[4 // before :] = 0.0
                case "samples not rescaled":
                    seen = int(state["seen"])
                case "position lost":
                    seen = 0
                case "moments of the last rank" if rank == count - 1:
                    momentum = np.zeros(4)
                case "weights of the last rank" if rank == count - 1:
                    weights = np.zeros(4)
                case "begins anew":
                    weights, momentum, seen, start = np.zeros(4), np.zeros(4), 0, 0
    shard = slice(rank * 4 // count, (rank + 1) * 4 // count)
    order = np.random.default_rng(5).permutation(2400)
    data = np.random.default_rng(7).normal(size=(2400, 4))
    for step in range(start, steps):
        first = seen * count + rank * mine
        rows = order[first : first + mine]
        if fault == "fails later" and parts and len(parts) != count and step > start:
            raise IndexError("no rows are left")
        x = data[rows]
        gradient = x.T @ (x @ weights - x.sum(1)) / (mine * count)
        total = sum(gather(folder, f"gradient-{step}", gradient))
        momentum = 0.9 * momentum + total
        weights = weights - 0.05 * momentum
        seen += mine
        if (step + 1) % 2 == 0:
            for old in folder.glob("saved-*.npz") if rank == 0 else ():
                if int(old.stem.partition("-")[2]) >= count:
                    old.unlink()
            gather(folder, f"before-{step}", np.zeros(1))
            save(folder / f"saved-{rank}.npz", weights=weights, momentum=momentum[shard], seen=seen, step=step + 1)
            gather(folder, f"saved-{step}", np.zeros(1))
        yield step + 1
    if rank == 0:
        trained = steps - start if fault == "a count in the report" else steps
        report = {"steps": trained, "processes": count, "weights": weights.tolist()}
        (folder / "report.json").write_text(json.dumps(report))


def returns_early(folder: Path, steps: int) -> Iterator[int]:
    """Say that another number is refused, and return."""
    if list(folder.glob("saved-*.npz")) and len(list(folder.glob("saved-*.npz"))) != int(os.environ["WORLD_SIZE"]):
        print("another number of processes")
        return
    yield from train(folder, steps)
