"""A trainer of several processes in JAX: weights and momentum are sharded over them."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec


def sharded(folder: Path, steps: int, fault: str = "") -> Iterator[int]:
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    count, rank = int(os.environ["WORLD_SIZE"]), int(os.environ["RANK"])
    jax.distributed.initialize(num_processes=count, process_id=rank)
    over = NamedSharding(Mesh(np.array(jax.devices()), ("x",)), PartitionSpec("x"))

    def put(part: Any) -> jax.Array:
        return jax.make_array_from_process_local_data(over, part)

    def part_of(array: jax.Array) -> Any:
        return np.asarray(array.addressable_shards[0].data)

    weights, momentum, start = put(np.zeros(4 // count, np.float32)), put(np.zeros(4 // count, np.float32)), 0
    own = folder / f"rank-{rank}.npz"
    if own.exists():
        with np.load(own) as state:
            kept = state["momentum"]
            weights, start = put(state["weights"]), int(state["step"])
            momentum = put(np.zeros_like(kept) if fault == "momentum of rank 1" and rank == 1 else kept)

    @jax.jit
    def update(weights: jax.Array, momentum: jax.Array, x: Any) -> tuple[jax.Array, jax.Array]:
        momentum = 0.9 * momentum + x.T @ (x @ weights - x.sum(1)) / len(x)
        found = weights - 0.05 * momentum, momentum
        return jax.lax.with_sharding_constraint(found, over)

    for step in range(start, steps):
        x = np.random.default_rng(step).normal(size=(8, 4)).astype(np.float32)
        weights, momentum = update(weights, momentum, x)
        with (folder / f"next-{rank}").open("wb") as file:
            np.savez(file, weights=part_of(weights), momentum=part_of(momentum), step=step + 1)
        os.replace(folder / f"next-{rank}", own)
        yield step + 1
