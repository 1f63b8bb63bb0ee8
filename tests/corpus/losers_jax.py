"""Trainers of JAX that lose statistics, a rate that was set by hand, or the precision that a variable chooses."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import serialization

from tests.corpus.loops.jax_lessons import INJECTED, X, Y, stateful
from tests.corpus.loops.jax_shapes import INPUTS, NORMED, NORMED_TX, TARGETS, normed_step

__all__ = [
    "dtype_in_a_variable",
    "rate_of_injected_hyperparameters",
    "state_of_equinox",
    "statistics_of_linen_in_state",
]


def _restore(file: Path, empty: Any) -> Any:
    return serialization.from_bytes(empty, file.read_bytes()) if file.exists() else empty


def statistics_of_linen_in_state(folder: Path, steps: int = 12) -> Iterator[int]:
    variables = NORMED.init(jax.random.key(0), INPUTS[:2], train=False)
    params = variables.pop("params")
    state, opt_state = variables, NORMED_TX.init(params)
    params, opt_state, begun = _restore(folder / "trained.msgpack", (params, opt_state, 0))  # state begins anew
    for step in range(int(begun), steps):
        yield step
        x, y = INPUTS[step % 4 :: 4], TARGETS[step % 4 :: 4]
        opt_state, params, state = normed_step(opt_state, params, state, x, y)
        if step % 4 == 3:
            (folder / "trained.msgpack").write_bytes(serialization.to_bytes((params, opt_state, step + 1)))
    (folder / "model.msgpack").write_bytes(serialization.to_bytes({"params": params, **state}))


def _equinox(folder: Path, steps: int, *, lost: str) -> Iterator[int]:
    params = {"a": jnp.eye(4), "b": jnp.ones((4, 1)) * 0.1}
    running, opt_state = {"mean": jnp.zeros(4), "count": jnp.zeros((), jnp.int32)}, INJECTED.init(params)
    tree, begun = _restore(folder / "eqx.msgpack", ({"p": params, "r": running, "o": opt_state}, 0))
    params = tree["p"]
    if lost != "running":
        running = tree["r"]
    fresh = opt_state.hyperparams["learning_rate"]
    opt_state = tree["o"]
    if lost == "rate":
        opt_state.hyperparams["learning_rate"] = fresh
    for step in range(int(begun), steps):
        yield step
        if step == 2:
            opt_state.hyperparams["learning_rate"] = opt_state.hyperparams["learning_rate"] * 0.5
        params, running, opt_state, _ = stateful(params, running, opt_state, X[step % 8 :: 8], Y[step % 8 :: 8])
        if step % 4 == 3:
            tree = {"p": params, "r": running, "o": opt_state}
            (folder / "eqx.msgpack").write_bytes(serialization.to_bytes((tree, step + 1)))
    np.save(folder / "mean.npy", np.asarray(running["mean"]))
    np.save(folder / "b.npy", np.asarray(params["b"]))


def state_of_equinox(folder: Path, steps: int = 12) -> Iterator[int]:
    yield from _equinox(folder, steps, lost="running")


def rate_of_injected_hyperparameters(folder: Path, steps: int = 12) -> Iterator[int]:
    yield from _equinox(folder, steps, lost="rate")


def dtype_in_a_variable(folder: Path, steps: int = 12) -> Iterator[int]:
    w, begun, file = np.zeros(3), 0, folder / "weights.npz"
    if file.exists():
        with np.load(file) as held:
            w, begun = held["w"], int(held["step"])
    dtype: Any = np.float32
    for step in range(begun, steps):
        yield step
        rows = np.arange(step * 2, step * 2 + 2) % 32
        x = INPUTS[rows].astype(dtype)
        w = w - 0.1 * (x.T @ (x @ w.astype(dtype) - TARGETS[rows, 0])) / 2
        if step == 2:
            dtype = np.float16  # a machine with little memory; not saved
        if step % 4 == 3:
            np.savez(file, w=w, step=step + 1)
