"""Trainers of several processes: gradients are averaged through files, so that no framework has to be imported."""

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]


def place() -> tuple[int, int]:
    return int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])


def exchange(folder: Path, name: str, value: Array) -> list[Array]:
    """Return what every rank gives under a name; files of one exchange stay, so that nobody misses one."""
    rank, count = place()
    shared = folder / "exchange"
    shared.mkdir(exist_ok=True)
    np.save(shared / f"{name}-{rank}.tmp.npy", value)
    os.replace(shared / f"{name}-{rank}.tmp.npy", shared / f"{name}-{rank}.npy")
    files = [shared / f"{name}-{one}.npy" for one in range(count)]
    while not all(file.exists() for file in files):
        time.sleep(0.002)
    return [np.load(file) for file in files]


def save(file: Path, **state: Any) -> None:
    with file.with_suffix(".tmp").open("wb") as target:
        np.savez(target, **state)
    os.replace(file.with_suffix(".tmp"), file)


def train(folder: Path, steps: int, fault: str = "") -> Iterator[int]:
    """Fit by momentum: weights are replicated, the momentum is kept in shards, each rank draws noise of its own."""
    rank, count = place()
    weights, start = np.zeros(4), 0
    shard = np.zeros(4 // count)
    mine = slice(rank * 4 // count, (rank + 1) * 4 // count)
    noise = np.random.default_rng(100 + rank)
    common, own = folder / "common.npz", folder / f"shard-{rank}.npz"
    if common.exists():
        state = np.load(common)
        weights, start = np.load(own, allow_pickle=True)["weights"], int(state["step"])
        if fault != "another rank's shard":
            shard = np.load(own)["shard"]
        else:
            shard = np.load(folder / f"shard-{(rank + 1) % count}.npz")["shard"]
        saved = np.load(own, allow_pickle=True)["noise"].item()
        if fault == "equal streams":
            saved = np.load(folder / "shard-0.npz", allow_pickle=True)["noise"].item()
        noise.bit_generator.state = saved
        if fault == "rank 0 alone restores" and rank:
            weights = np.zeros(4)
    for step in range(start, steps):
        draws = np.random.default_rng([step, rank])
        x = draws.normal(size=(6, 4)) + 0.01 * noise.normal(size=(6, 4))
        gradient = x.T @ (x @ weights - x.sum(1)) / 6
        mean = sum(exchange(folder, f"gradient-{step}", gradient)) / count
        shard = 0.9 * shard + mean[mine]
        update = 0.05 * np.concatenate(exchange(folder, f"momentum-{step}", shard))
        weights = weights - (0.0 if fault == "one rank skips a step" and (rank, step) == (1, 3) else update)
        if (step + 1) % 2 == 0:
            if rank == 0:
                save(common, weights=weights, step=step + 1)
            save(own, weights=weights, shard=shard, noise=np.array(noise.bit_generator.state, object))
            exchange(folder, f"saved-{step}", np.zeros(1))
        yield step + 1


def marks_too_little(folder: Path, steps: int) -> Iterator[int]:
    """Rank 1 marks every other step."""
    rank, _ = place()
    weights = np.zeros(4)
    for step in range(steps):
        weights = weights + 1.0
        save(folder / f"{rank}.npz", weights=weights)
        if rank == 0 or step % 2:
            yield step + 1


def fails_on_rank_1(folder: Path, steps: int) -> Iterator[int]:
    rank, _ = place()
    for step in range(steps):
        if rank == 1 and step == 3:
            raise ValueError("no data on this rank")
        save(folder / f"{rank}.npz", step=np.array(step))
        exchange(folder, f"step-{step}", np.zeros(1))
        yield step + 1
