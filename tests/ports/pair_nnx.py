"""A small classifier in PyTorch and its port to Flax NNX, with the faults that ports have."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import cache, partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import torch
from flax import nnx
from torch import nn

WIDTH, BATCH, EVERY, CLASSES = 16, 8, 5, 3
FAULTS = ("start", "epsilon", "decay", "beta2", "order", "smoothing", "clip", "ema", "schedule", "nesterov", "rate")


def samples() -> tuple[np.ndarray, np.ndarray]:
    draws = np.random.default_rng(0)
    return draws.normal(size=(64, 6)), draws.integers(0, CLASSES, 64)


def start() -> dict[str, np.ndarray]:
    draws = np.random.default_rng(1)
    return {
        "0.weight": draws.normal(size=(WIDTH, 6)) / 3,
        "0.bias": np.zeros(WIDTH),
        "1.weight": np.ones(WIDTH),
        "1.bias": np.zeros(WIDTH),
        "3.weight": draws.normal(size=(CLASSES, WIDTH)) / 4,
        "3.bias": np.zeros(CLASSES),
    }


def rows(step: int) -> np.ndarray:
    return (np.arange(BATCH) + step * BATCH) % 64


def rate(step: int) -> float:
    return 1e-2 * (1 - step / 80)


def train_torch(folder: Path, steps: int = 40, dtype: str = "float64") -> Iterator[int]:
    kind = getattr(torch, dtype)
    x, y = samples()
    inputs, labels = torch.tensor(x, dtype=kind), torch.tensor(y)
    model = nn.Sequential(nn.Linear(6, WIDTH), nn.LayerNorm(WIDTH), nn.GELU(), nn.Linear(WIDTH, CLASSES)).to(kind)
    model.load_state_dict({name: torch.tensor(value, dtype=kind) for name, value in start().items()})
    optimizer = torch.optim.AdamW(model.parameters(), lr=rate(0), weight_decay=1e-2)
    ema = {name: value.detach().clone() for name, value in model.named_parameters()}
    begin = 0
    if (folder / "state.pt").exists():
        held = torch.load(folder / "state.pt", weights_only=True)
        model.load_state_dict(held["model"])
        optimizer.load_state_dict(held["optimizer"])
        ema, begin = held["ema"], held["step"]
    for step in range(begin, steps):
        yield step
        batch = rows(step)
        for group in optimizer.param_groups:
            group["lr"] = rate(step)
        loss = nn.functional.cross_entropy(model(inputs[batch]), labels[batch])
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        optimizer.step()
        for name, value in model.named_parameters():
            ema[name].mul_(0.9).add_(value.detach(), alpha=0.1)
        if (step + 1) % EVERY == 0:
            torch.save(
                {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "ema": ema, "step": step + 1},
                folder / "state.pt",
            )


class Port(nnx.Module):
    def __init__(self, dtype: Any, epsilon: float) -> None:
        rngs = nnx.Rngs(0)
        self.first = nnx.Linear(6, WIDTH, rngs=rngs, param_dtype=dtype)
        self.norm = nnx.LayerNorm(WIDTH, epsilon=epsilon, rngs=rngs, param_dtype=dtype)
        self.last = nnx.Linear(WIDTH, CLASSES, rngs=rngs, param_dtype=dtype)

    def __call__(self, x: jax.Array) -> jax.Array:
        return self.last(jax.nn.gelu(self.norm(self.first(x)), approximate=False))


COUNTS = ("[1]['opt_state'][1][0]['count']", "[1]['opt_state'][1][2]['count']", "[1]['step']")
NAMES = {"0": "first", "1": "norm", "3": "last"}


def clip(norm: float) -> optax.GradientTransformation:
    """PyTorch adds 1e-6 to the norm, Optax does not."""

    def update(grads: Any, state: Any, params: Any = None) -> Any:
        scale = jnp.minimum(1.0, norm / (optax.tree.norm(grads) + 1e-6))
        return jax.tree.map(lambda g: g * scale, grads), state

    return optax.GradientTransformation(lambda _: optax.EmptyState(), update)


def to_port(name: str, value: np.ndarray) -> tuple[str, str, np.ndarray]:
    module, field = name.split(".")
    if field == "bias":
        return NAMES[module], "bias", value
    return (NAMES[module], "scale", value) if module == "1" else (NAMES[module], "kernel", value.T)


@cache
def transform(dtype: str, fault: str) -> optax.GradientTransformation:
    """Return one object for all runs, so that their steps are compiled once."""
    late = 1 if fault == "schedule" else 0
    return optax.chain(
        optax.clip_by_global_norm(0.5) if fault == "clip" else clip(0.5),
        optax.adamw(
            lambda count: 1e-2 * (1 - (count if fault == "rate" else (count + late).astype(dtype)) / 80),
            b2=0.99 if fault == "beta2" else 0.999,
            nesterov=fault == "nesterov",
            weight_decay=1e-4 if fault == "decay" else 1e-2,
        ),
    )


@partial(nnx.jit, static_argnums=4)
def train_step(model: Port, optimizer: nnx.Optimizer, x: jax.Array, y: jax.Array, smooth: bool) -> jax.Array:
    def loss_of(model: Port) -> jax.Array:
        logits = model(x)
        if smooth:
            targets = optax.smooth_labels(jax.nn.one_hot(y, CLASSES), 1e-6)
            return optax.softmax_cross_entropy(logits, targets).mean()
        return optax.softmax_cross_entropy_with_integer_labels(logits, y).mean()

    loss, grads = nnx.value_and_grad(loss_of)(model)
    optimizer.update(model, grads)
    return loss


def train_nnx(folder: Path, steps: int = 40, dtype: str = "float64", fault: str = "") -> Iterator[int]:
    x, y = samples()
    inputs, labels = jnp.asarray(x, dtype), jnp.asarray(y)
    model = Port(jnp.dtype(dtype), 1e-6 if fault == "epsilon" else 1e-5)
    for name, value in start().items():
        module, field, values = to_port(name, value)
        moved = values + (1e-9 if fault == "start" and name == "0.weight" else 0)
        getattr(getattr(model, module), field)[...] = jnp.asarray(moved, dtype)
    optimizer = nnx.Optimizer(model, transform(dtype, fault), wrt=nnx.Param)
    ema = jax.tree.map(jnp.asarray, nnx.to_pure_dict(nnx.state(model, nnx.Param)))
    begin = 0
    if (folder / "step.json").exists():
        begin = json.loads((folder / "step.json").read_text())["step"]
        held = dict(np.load(folder / "state.npz"))
        nnx.update((model, optimizer), _from_flat((model, optimizer), held))
        ema = jax.tree_util.tree_map_with_path(lambda k, _: jnp.asarray(held["ema" + jax.tree_util.keystr(k)]), ema)

    for step in range(begin, steps):
        yield step
        batch = rows(step + (1 if fault == "order" and step == 7 else 0))
        smooth = fault == "smoothing"
        loss = train_step(model, optimizer, inputs[batch], labels[batch], smooth)  # noqa: F841 - the checks read it
        params = nnx.to_pure_dict(nnx.state(model, nnx.Param))
        kept = 0.99 if fault == "ema" else 0.9
        ema = jax.tree.map(lambda e, p, k=kept: e * k + p * (1 - k), ema, params)
        if (step + 1) % EVERY == 0:
            write_port(folder, step + 1, (model, optimizer), ema)


def write_port(folder: Path, step: int, both: Any, ema: Any) -> None:
    leaves = jax.tree_util.tree_leaves_with_path(nnx.to_pure_dict(nnx.state(both)))
    flat = {jax.tree_util.keystr(path): np.asarray(leaf) for path, leaf in leaves}
    flat |= {"ema" + jax.tree_util.keystr(p): np.asarray(v) for p, v in jax.tree_util.tree_leaves_with_path(ema)}
    np.savez(folder / "state.npz", **flat)
    (folder / "step.json").write_text(json.dumps({"step": step}))


def _from_flat(both: Any, held: Any) -> Any:
    state = nnx.state(both)
    pure = jax.tree_util.tree_map_with_path(
        lambda path, leaf: jnp.asarray(held[jax.tree_util.keystr(path)]), nnx.to_pure_dict(state)
    )
    nnx.replace_by_pure_dict(state, pure)
    return state


def to_nnx(source: Path, target: Path, lost: str = "") -> None:
    """Convert what `train_torch` saved into what `train_nnx` resumes from."""
    held = torch.load(source / "state.pt", weights_only=True)
    names = list(held["model"])
    ends = {name: to_port(name, np.zeros((1, 1)))[:2] for name in names}
    flat: dict[str, np.ndarray] = {}
    moments = held["optimizer"]["state"]
    for index, name in enumerate(names):
        module, field = ends[name]
        key = f"['{module}']['{field}']"
        flat[f"[0]{key}"] = to_port(name, held["model"][name].numpy())[2]
        flat[f"ema{key}"] = to_port(name, held["ema"][name].numpy())[2]
        for slot, theirs in (("mu", "exp_avg"), ("nu", "exp_avg_sq")):
            value = moments[index][theirs].numpy()
            value = np.zeros_like(value) if lost == theirs else value
            flat[f"[1]['opt_state'][1][0]['{slot}']{key}"] = to_port(name, value)[2]
    count = np.asarray(0 if lost == "step" else held["step"])
    for key in COUNTS:
        flat[key] = count.astype(np.uint32 if key.endswith("['step']") else np.int32)
    np.savez(target / "state.npz", **flat)
    (target / "step.json").write_text(json.dumps({"step": held["step"]}))


def to_torch(source: Path, target: Path) -> None:
    """Convert what `train_nnx` saved into what `train_torch` resumes from."""
    held = dict(np.load(source / "state.npz"))
    step = json.loads((source / "step.json").read_text())["step"]
    model, ema, state = {}, {}, {}
    for index, name in enumerate(start()):
        module, field = to_port(name, np.zeros((1, 1)))[:2]
        key = f"['{module}']['{field}']"

        def read(path: str, key: str = key, turned: bool = field == "kernel") -> torch.Tensor:
            value = held[path + key]
            return torch.tensor(value.T.copy() if turned else value)

        model[name], ema[name] = read("[0]"), read("ema")
        state[index] = {
            "step": torch.tensor(float(step)),
            "exp_avg": read("[1]['opt_state'][1][0]['mu']"),
            "exp_avg_sq": read("[1]['opt_state'][1][0]['nu']"),
        }
    fresh = torch.optim.AdamW([nn.Parameter(value) for value in model.values()], lr=rate(step), weight_decay=1e-2)
    groups = fresh.state_dict()["param_groups"]
    torch.save(
        {"model": model, "optimizer": {"state": state, "param_groups": groups}, "ema": ema, "step": step},
        target / "state.pt",
    )
