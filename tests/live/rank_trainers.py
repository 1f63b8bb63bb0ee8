"""Trainers of several processes: gradients are averaged through files, so that no framework has to be imported."""

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]


def place() -> tuple[int, int]:
    """Return rank and count, as torchrun, `mpirun` or `srun` tell them: a trainer of these reads theirs."""
    pairs = (("RANK", "WORLD_SIZE"), ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
             ("PMI_RANK", "PMI_SIZE"), ("SLURM_PROCID", "SLURM_NTASKS"))  # fmt: skip
    rank, count = next(pair for pair in pairs if pair[0] in os.environ)
    return int(os.environ[rank]), int(os.environ[count])


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
    momentum, scale = np.zeros(4 // count), 1.0
    mine = slice(rank * 4 // count, (rank + 1) * 4 // count)
    noise = np.random.default_rng(100 + rank)
    order, offset = np.arange(24), rank * 3  # of its rows in a batch; each rank keeps its own

    def own(number: int) -> Path:
        return folder / f"shard-{number}.npz"

    if own(0).exists():
        state = read(own(rank))
        weights, start, momentum = state["weights"], int(state["step"]), state["momentum"]
        scale, offset = float(state["scale"]), int(state["offset"])
        noise.bit_generator.state = state["noise"].item()
        next_one = read(own((rank + 1) % count))
        match fault:
            case "another rank's shard":
                momentum = next_one["momentum"]
            case "shards in another order":
                momentum = momentum[::-1].copy()
            case "equal streams":
                noise.bit_generator.state = read(own(0))["noise"].item()
            case "swapped streams":
                noise.bit_generator.state = next_one["noise"].item()
            case "rank 0 draws at the restore" if rank == 0:
                noise.normal()
            case "shard of rank 0 on all":
                momentum = read(own(0))["momentum"]
            case "streams begin anew":
                noise = np.random.default_rng(100 + rank)
            case "rank 0 alone restores" if rank:
                weights = np.zeros(4)
            case "no moments on rank 1" if rank:
                momentum = np.zeros(4 // count)
            case "scale of rank 1" if rank:
                scale = 1.0
            case "last element dropped" if rank:
                momentum[-1] = 0.0
            case "position of rank 0":
                offset = int(read(own(0))["offset"])
            case "stale shard of rank 1" if rank:
                momentum = state["momentum_before"]
    before = momentum
    for step in range(start, steps):
        epoch, batch = divmod(step, 4)
        if batch == 0 or step == start:  # a sampler is given the epoch, or not
            seen = 0 if fault == "sampler without its epoch" and step == start else epoch
            order = np.random.default_rng(seen).permutation(24)
        rows = order[batch * 6 + offset : batch * 6 + offset + 3]
        x = np.random.default_rng(7).normal(size=(24, 4))[rows] + 0.01 * noise.normal(size=(3, 4))
        gradient = x.T @ (x @ weights - x.sum(1)) / 3
        mean = sum(exchange(folder, f"gradient-{step}", gradient)) / count
        momentum = 0.9 * momentum + scale * mean[mine]
        scale *= 0.99
        update = 0.05 * np.concatenate(exchange(folder, f"momentum-{step}", momentum))
        weights = weights - (0.0 if fault == "one rank skips a step" and (rank, step) == (1, 3) else update)
        if (step + 1) % 2 == 0:
            drawn = np.array(noise.bit_generator.state, object)
            state = {"weights": weights, "step": step + 1, "momentum": momentum, "momentum_before": before}
            save(own(rank), noise=drawn, scale=scale, offset=offset, **state)
            before = momentum
            exchange(folder, f"saved-{step}", np.zeros(1))
        yield step + 1


def read(file: Path) -> dict[str, Any]:
    with np.load(file, allow_pickle=True) as state:
        return dict(state)


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
