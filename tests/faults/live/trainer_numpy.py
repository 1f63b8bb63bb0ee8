"""A small trainer without a framework, in the style of JAX: immutable state, two generators, a windowed shuffle.

Without a switch it resumes exactly. Each switch puts the lines of a real report in the place of the right ones.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

__all__ = ["train"]

Array = np.ndarray[Any, Any]
FEATURES, LAYERS, WINDOW, BATCH = 4, 12, 8, 2


class ScheduleState(NamedTuple):
    """Counts updates, for the rate."""

    count: Array


class AdamState(NamedTuple):
    """Moments."""

    count: Array
    mu: dict[int, Array]
    nu: dict[int, Array]


class TrainState(NamedTuple):
    """All that a step changes."""

    step: Array
    params: dict[int, Array]
    opt_state: tuple[AdamState, ScheduleState]
    tokens_seen: Array


def init(params: dict[int, Array]) -> tuple[AdamState, ScheduleState]:
    """Return the state of the optimizer before the first update."""
    zeros = {at: np.zeros_like(value) for at, value in params.items()}
    moments = AdamState(np.int32(0), zeros, {at: z.copy() for at, z in zeros.items()})
    return moments, ScheduleState(np.int32(0))


def update(
    grads: dict[int, Array], state: tuple[AdamState, ScheduleState]
) -> tuple[dict[int, Array], tuple[AdamState, ScheduleState]]:
    """Return the updates and the next state."""
    adam, schedule = state
    count = np.int32(adam.count + 1)
    mu = {at: np.float32(0.9) * adam.mu[at] + np.float32(0.1) * g for at, g in grads.items()}
    nu = {at: np.float32(0.99) * adam.nu[at] + np.float32(0.01) * g * g for at, g in grads.items()}
    rate = np.float32(0.05 * max(0.1, 1 - float(schedule.count) / 40) * min(1.0, (float(schedule.count) + 1) / 4))
    up = {
        at: -rate * (mu[at] / (1 - 0.9 ** float(count))) / (np.sqrt(nu[at] / (1 - 0.99 ** float(count))) + 1e-6)
        for at in grads
    }
    updates = {at: value.astype(np.float32) for at, value in up.items()}
    return updates, (AdamState(count, mu, nu), ScheduleState(np.int32(schedule.count + 1)))


def forward(params: dict[int, Array], x: Array, keep: Array) -> Array:
    """Return the outputs of a chain of layers, each a scale of its own."""
    for at in range(LAYERS):
        x = x + keep * np.tanh(x * params[at]) / LAYERS
    return x


def gradients(params: dict[int, Array], x: Array, target: Array, keep: Array) -> tuple[float, dict[int, Array]]:
    """Return the loss and its gradients."""
    inputs, acts = [], []
    for at in range(LAYERS):
        inputs.append(x)
        acts.append(np.tanh(x * params[at]))
        x = x + keep * acts[-1] / LAYERS
    error = x - target
    back = 2 * error / error.size
    found: dict[int, Array] = {}
    for at in reversed(range(LAYERS)):
        inner = back * keep / LAYERS * (1 - acts[at] ** 2)
        found[at] = (inner * inputs[at]).sum(axis=0).astype(np.float32)
        back = back + inner * params[at]
    return float((error**2).mean()), dict(sorted(found.items()))


class WindowShuffle:
    """Shuffles within windows of the rows, one after the other."""

    def __init__(self, rows: int, seed: int) -> None:
        self.rows, self.seed = rows, seed
        self.window, self.at, self.filled = 0, 0, False
        self.order = np.arange(WINDOW)

    def __next__(self) -> int:
        if not self.filled:
            self.order = np.random.default_rng([self.seed, self.window]).permutation(WINDOW)
            self.window, self.at, self.filled = self.window + 1, 0, True
        row = (self.window - 1) * WINDOW + int(self.order[self.at])
        self.at += 1
        if self.at == WINDOW:
            self.filled = False
        return row % self.rows

    def get_state(self) -> dict[str, Any]:
        """Return where it is."""
        return {"window": self.window, "at": self.at, "filled": self.filled, "order": self.order.tolist()}

    def set_state(self, state: dict[str, Any], fault: str) -> None:
        """Go there."""
        self.window, self.at, self.filled = state["window"], state["at"], state["filled"]
        self.order = np.array(state["order"])
        if fault == "shuffle_window_flag_lost":
            self.filled = False  # was not in the state: the window is drawn anew


def save(path: Path, state: TrainState, shuffle: WindowShuffle, keys: dict[str, Any], fault: str) -> None:
    """Write the checkpoint: arrays by their path, the rest as JSON."""
    arrays = {"step": state.step, "tokens_seen": state.tokens_seen}
    adam, schedule = state.opt_state
    arrays |= {"adam/count": adam.count, "schedule/count": schedule.count}
    for name, tree in (("params", state.params), ("mu", adam.mu), ("nu", adam.nu)):
        for at, value in tree.items():
            arrays[f"{name}/{at}"] = value
    arrays["told"] = np.array(json.dumps({"shuffle": shuffle.get_state(), "keys": keys}))
    temporary = path.with_suffix(".tmp")
    with temporary.open("wb") as file:
        np.savez(file, **arrays)
    os.replace(temporary, path)


def restore(path: Path, template: TrainState, fault: str) -> tuple[TrainState, dict[str, Any]]:
    """Return what a checkpoint holds, in the shape of a template."""
    with np.load(path) as file:
        arrays = {name: file[name] for name in file.files}
    trees: dict[str, dict[int, Array]] = {}
    for name in ("params", "mu", "nu"):
        keys = [key.partition("/")[2] for key in arrays if key.startswith(f"{name}/")]
        if fault == "int_keys_become_str":  # "10" comes before "2"
            trees[name] = {at: arrays[f"{name}/{key}"] for at, key in enumerate(sorted(keys))}
        else:
            trees[name] = {int(key): arrays[f"{name}/{key}"] for key in keys}
    count, tokens = np.int32(arrays["schedule/count"]), np.int32(arrays["tokens_seen"])
    if fault == "restore_casts_silently":
        tokens = np.float32(tokens)  # type: ignore[assignment]  # the template has a float there
    adam = AdamState(np.int32(arrays["adam/count"]), trees["mu"], trees["nu"])
    opt_state = (adam, ScheduleState(count))
    if fault == "optax_count_reinit":
        opt_state = (adam, init(trees["params"])[1])
    state = template._replace(step=np.int32(arrays["step"]), params=trees["params"], tokens_seen=tokens)
    if fault == "opt_replace_discarded":
        state._replace(opt_state=opt_state)
    else:
        state = state._replace(opt_state=opt_state)
    return state, json.loads(str(arrays["told"]))


def train(folder: Path, *, fault: str = "", steps: int = 24, save_every: int = 5) -> Iterator[int]:
    """Train, save, and continue from what the folder holds.

    Args:
        folder: Checkpoint of this run.
        fault: Bug of the catalogue.
        steps: Steps of the whole run.
        save_every: Steps between two checkpoints.
    """
    folder.mkdir(parents=True, exist_ok=True)
    host_rng, device_rng = np.random.default_rng(1), np.random.default_rng(2)
    source = np.random.default_rng(3)
    rows = source.normal(size=(40, FEATURES)).astype(np.float32)
    targets = (1.5 * rows).astype(np.float32)
    params = {at: source.normal(size=FEATURES).astype(np.float32) for at in range(LAYERS)}
    state = TrainState(np.int32(0), params, init(params), np.int32(16_777_213))
    shuffle = WindowShuffle(len(rows), seed=7)
    path = folder / "state.npz"
    if path.exists():
        state, told = restore(path, state, fault)
        shuffle.set_state(told["shuffle"], fault)
        host_rng.bit_generator.state = told["keys"]["host"]
        if fault != "split_rng_two_sources":
            device_rng.bit_generator.state = told["keys"]["device"]
    while state.step < steps:
        yield int(state.step)
        chosen = [next(shuffle) for _ in range(BATCH)]
        batch = rows[chosen] + host_rng.normal(scale=0.01, size=(BATCH, FEATURES)).astype(np.float32)
        keep = (device_rng.random((BATCH, FEATURES)) > 0.1).astype(np.float32)
        _, grads = gradients(state.params, batch, targets[chosen], keep)
        updates, opt_state = update(grads, state.opt_state)
        state = TrainState(
            step=np.int32(state.step + 1),
            params={at: value + updates[at] for at, value in state.params.items()},
            opt_state=opt_state,
            tokens_seen=state.tokens_seen + state.tokens_seen.dtype.type(1),
        )
        if state.step % save_every == 0:
            keys = {"host": host_rng.bit_generator.state, "device": device_rng.bit_generator.state}
            save(path, state, shuffle, keys, fault)
