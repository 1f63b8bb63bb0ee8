"""A trainer in JAX over several processes, and what one rank of it may lose or do otherwise.

Weights and momentum are sharded over all processes, a bias is replicated in all, and each process has a key.
"""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec


def train(folder: Path, steps: int, fault: str = "", axes: int = 1) -> Iterator[int]:
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    count, rank = int(os.environ["WORLD_SIZE"]), int(os.environ["RANK"])
    jax.distributed.initialize(num_processes=count, process_id=rank)
    devices = np.array(jax.devices())
    mesh = Mesh(devices.reshape(2, -1) if axes == 2 else devices, ("y", "x") if axes == 2 else ("x",))
    over, everywhere = NamedSharding(mesh, PartitionSpec("x")), NamedSharding(mesh, PartitionSpec())
    parts = mesh.shape["x"]
    mine = rank % parts

    def put(part: Any, to: NamedSharding = over) -> jax.Array:
        local = [jax.device_put(part, device) for device in jax.local_devices()]
        shape = (len(part) * parts, *part.shape[1:]) if to is over else part.shape
        return jax.make_array_from_single_device_arrays(shape, to, local)

    def part_of(array: jax.Array) -> Any:
        return np.asarray(array.addressable_shards[0].data)

    weights, momentum = put(np.zeros(4 // parts, np.float32)), put(np.zeros(4 // parts, np.float32))
    bias, key, start = put(np.zeros(2, np.float32), everywhere), jax.random.key(rank), 0
    own = folder / f"rank-{rank}.npz"
    if own.exists():
        state = read(own)
        other = read(folder / f"rank-{(rank + 1) % count}.npz")
        kept, words, start = state["momentum"], state["key"], int(state["step"])
        weights, low = put(state["weights"]), state["bias"]
        match fault:
            case "momentum of rank 1" if rank == 1:
                kept = np.zeros_like(kept)
            case "another rank's shard":
                kept = other["momentum"]
            case "shards in another order":
                kept = kept[::-1].copy()
            case "stale shard of rank 1" if rank == 1:
                kept = state["before"]
            case "keys equal":
                words = read(folder / "rank-0.npz")["key"]
            case "keys swapped":
                words = other["key"]
            case "bias of rank 1" if rank == 1:
                low = np.zeros_like(low)
            case "last element dropped" if mine == parts - 1:
                kept[-1] = 0.0
        momentum = put(kept)
        if fault == "replicated by the file":
            whole = np.concatenate([read(folder / f"rank-{one}.npz")["momentum"] for one in range(parts)])
            momentum = put(whole, everywhere)
        bias, key = put(low, everywhere), jax.random.wrap_key_data(words)
        if fault == "rank 0 draws at the restore" and rank == 0:
            key, _ = jax.random.split(key)

    @jax.jit
    def update(weights: jax.Array, momentum: jax.Array, bias: jax.Array, x: Any, y: Any) -> Any:
        def loss(weights: jax.Array, bias: jax.Array) -> jax.Array:
            return jnp.square(x @ weights + bias.sum() - y).mean()

        slope, of_bias = jax.grad(loss, (0, 1))(weights, bias)
        momentum = 0.9 * momentum + slope
        return weights - 0.05 * momentum, momentum, bias - 0.05 * of_bias

    step_of = jax.jit(update, out_shardings=(over, momentum.sharding, everywhere))
    before = part_of(momentum)
    for step in range(start, steps):
        key, drawn = jax.random.split(key)
        seen = step + (1 if fault == "position of rank 1" and rank == 1 and start else 0)
        x = np.random.default_rng(seen * parts + mine).normal(size=(4, 4)).astype(np.float32)
        noise = np.asarray(jax.random.normal(drawn if axes == 1 else jax.random.key(step * parts + mine), x.shape))
        shared, y = put(x + 0.01 * noise), put(x.sum(1))
        weights, momentum, bias = step_of(weights, momentum, bias, shared, y)
        if fault == "bias by its own part":  # each process moves its copy by what it sees alone
            bias = put(part_of(bias) - 0.01 * x.mean(), everywhere)
        state = {"weights": part_of(weights), "momentum": part_of(momentum), "bias": part_of(bias), "before": before}
        if (step + 1) % 2 == 0:
            with (folder / f"next-{rank}").open("wb") as file:
                np.savez(file, key=jax.random.key_data(key), step=step + 1, **state)
            os.replace(folder / f"next-{rank}", own)
            before = state["momentum"]
        yield step + 1


def read(file: Path) -> dict[str, Any]:
    with np.load(file) as state:
        return dict(state)
