"""A trainer in JAX that another number of processes may resume: each saves its part, and reads the parts of all.

A fault acts where another number resumes than saved.
"""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import multihost_utils
from jax.sharding import Mesh, NamedSharding, PartitionSpec

BATCH = 8


def train(folder: Path, steps: int, fault: str = "") -> Iterator[int]:
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    jax.config.update("jax_enable_x64", True)
    count, rank = int(os.environ["WORLD_SIZE"]), int(os.environ["RANK"])
    if count > 1:
        jax.distributed.initialize(num_processes=count, process_id=rank)
    mesh = Mesh(np.array(jax.devices()), ("x",))
    over, everywhere = NamedSharding(mesh, PartitionSpec("x")), NamedSharding(mesh, PartitionSpec())

    def put(whole: Any, to: NamedSharding) -> jax.Array:
        return jax.make_array_from_callback(whole.shape, to, lambda index: whole[index])

    weights, momentum, bias, start = np.zeros(4), np.zeros(4), np.zeros(2), 0
    files = sorted(folder.glob("part-*.npz"))
    if files:
        parts = [read(file) for file in files]
        weights, momentum = (np.concatenate([one[name] for one in parts]) for name in ("weights", "momentum"))
        bias, start = parts[0]["bias"], int(parts[0]["step"])
        if len(files) != count:
            match fault:
                case "a shard dropped":
                    momentum[len(parts[0]["momentum"]) :] = 0.0
                case "bias lost":
                    bias = np.zeros(2)
                case "shards in another order":
                    momentum = np.concatenate([one["momentum"] for one in parts[::-1]])
    weights, momentum, bias = put(weights, over), put(momentum, over), put(bias, everywhere)

    @jax.jit
    def update(weights: jax.Array, momentum: jax.Array, bias: jax.Array, x: jax.Array) -> Any:
        def loss(weights: jax.Array, bias: jax.Array) -> jax.Array:
            return jnp.square(x @ weights + bias.sum() - x.sum(1)).mean()

        slope, of_bias = jax.grad(loss, (0, 1))(weights, bias)
        momentum = 0.9 * momentum + slope
        return weights - 0.05 * momentum, momentum, bias - 0.05 * of_bias

    step_of = jax.jit(update, out_shardings=(over, over, everywhere))
    for step in range(start, steps):
        yield step
        x = put(np.random.default_rng(step).normal(size=(BATCH, 4)), over)
        weights, momentum, bias = step_of(weights, momentum, bias, x)
        mine = {"weights": part_of(weights), "momentum": part_of(momentum), "bias": part_of(bias)}
        if (step + 1) % 2 == 0:
            meet("before")
            for old in folder.glob("part-*.npz") if rank == 0 else ():
                if int(old.stem.partition("-")[2]) >= count:
                    old.unlink()
            with (folder / f"next-{rank}").open("wb") as file:
                np.savez(file, step=step + 1, **mine)
            os.replace(folder / f"next-{rank}", folder / f"part-{rank}.npz")
            meet("after")
    yield steps


def meet(name: str) -> None:
    if jax.process_count() > 1:
        multihost_utils.sync_global_devices(name)


def part_of(array: jax.Array) -> Any:
    return np.asarray(array.addressable_shards[0].data)


def read(file: Path) -> dict[str, Any]:
    with np.load(file) as state:
        return dict(state)
