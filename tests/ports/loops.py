"""One training loop in PyTorch, NNX and plain Optax, with conversions between their files and what they may lose.

All three train one model in float32: AdamW in groups, a clip, a schedule. What a loop does not save, and what a
conversion does not carry, is a word.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import torch
from flax import nnx
from torch import nn

from tests.ports.port_jax import clip

FEATURES, WIDTH, CLASSES, ROWS, EVERY, HORIZON, RATE, DECAY, CLIP = 6, 12, 4, 8, 3, 40, 1e-2, 0.1, 0.5
inputs = "f[8,6]"


def batch(step: int) -> dict[str, np.ndarray]:
    draws = np.random.default_rng([3, step])
    return {"x": draws.normal(size=(ROWS, FEATURES)).astype(np.float32), "y": draws.integers(0, CLASSES, ROWS)}


def initial() -> dict[str, np.ndarray]:
    """Return what every loop begins from, by PyTorch's names and in its layout."""
    draws = np.random.default_rng(2)
    shapes = {"first.weight": (WIDTH, FEATURES), "first.bias": (WIDTH,), "norm.weight": (WIDTH,),
              "norm.bias": (WIDTH,), "last.weight": (CLASSES, WIDTH), "last.bias": (CLASSES,)}  # fmt: skip
    return {name: (draws.normal(size=shape) / 3 * (len(shape) > 1) + (name == "norm.weight")).astype(np.float32)
            for name, shape in shapes.items()}  # fmt: skip


def share(step: Any, numbers: Any) -> Any:
    return numbers.where(step < 4, (step + 1) / 4, 0.5 * (1 + numbers.cos(math.pi * (step - 4) / (HORIZON - 4))))


class TorchModel(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm, self.last = nn.Linear(FEATURES, WIDTH), nn.LayerNorm(WIDTH), nn.Linear(WIDTH, CLASSES)
        self.load_state_dict({name: torch.from_numpy(value.copy()) for name, value in initial().items()})

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(torch.tanh(self.norm(self.first(x))))


def torch_loss(model: nn.Module, batch: dict[str, np.ndarray]) -> torch.Tensor:
    return nn.functional.cross_entropy(model(torch.from_numpy(batch["x"])), torch.from_numpy(batch["y"]))


def torch_start(model: nn.Module) -> dict[str, Any]:
    decayed, rest = ([p for p in model.parameters() if (p.ndim > 1) == wanted] for wanted in (True, False))
    optimizer = torch.optim.AdamW([{"params": decayed, "weight_decay": DECAY}, {"params": rest, "weight_decay": 0.0}],
                                  lr=RATE)  # fmt: skip
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: float(share(step, np)))
    return {"model": model, "optimizer": optimizer, "scheduler": scheduler}


def torch_step(state: dict[str, Any], batch: dict[str, np.ndarray]) -> tuple[dict[str, Any], float]:
    value = torch_loss(state["model"], batch)
    state["optimizer"].zero_grad()
    value.backward()
    nn.utils.clip_grad_norm_(state["model"].parameters(), CLIP)
    state["optimizer"].step()
    state["scheduler"].step()
    return state, value.item()


def torch_loop(lost: str = "") -> Callable[..., Iterator[int]]:
    def train_torch(folder: Path, steps: int = 12) -> Iterator[int]:
        state, begin = torch_start(TorchModel()), 0
        if (folder / "last.pt").exists():
            held = torch.load(folder / "last.pt", weights_only=True)
            begin = held.pop("step")
            for name, part in held.items():
                state[name].load_state_dict(part)
        for at in range(begin, steps):
            yield at
            state, loss = torch_step(state, batch(at))  # noqa: RUF059 - the checks read it
            if (at + 1) % EVERY == 0:
                held = {name: part.state_dict() for name, part in state.items() if name != lost}
                torch.save({**held, "step": at + 1}, folder / "last.pt")

    return train_torch


NAMES = {"first.weight": ("first", "kernel"), "first.bias": ("first", "bias"), "norm.weight": ("norm", "scale"),
         "norm.bias": ("norm", "bias"), "last.weight": ("last", "kernel"), "last.bias": ("last", "bias")}  # fmt: skip


def turned(name: str, value: Any) -> Any:
    return value.T if name in ("first.weight", "last.weight") else value


def to_tree(values: dict[str, np.ndarray]) -> dict[str, dict[str, jax.Array]]:
    tree: dict[str, dict[str, jax.Array]] = {}
    for name, (module, field) in NAMES.items():
        tree.setdefault(module, {})[field] = jnp.asarray(turned(name, values[name]))
    return tree


def from_tree(tree: Any) -> dict[str, torch.Tensor]:
    return {name: torch.from_numpy(np.array(turned(name, np.asarray(tree[module][field])), order="C"))
            for name, (module, field) in NAMES.items()}  # fmt: skip


def decayed(params: Any) -> Any:
    return jax.tree.map(lambda one: one.ndim > 1, params)


TX = optax.chain(
    clip(CLIP),
    optax.adamw(lambda count: RATE * share(count, jnp), weight_decay=DECAY, mask=decayed),
)


class NnxModel(nnx.Module):
    def __init__(self, *, rngs: nnx.Rngs) -> None:
        self.first = nnx.Linear(FEATURES, WIDTH, rngs=rngs)
        self.norm = nnx.LayerNorm(WIDTH, epsilon=1e-5, rngs=rngs)
        self.last = nnx.Linear(WIDTH, CLASSES, rngs=rngs)
        for module, fields in to_tree(initial()).items():
            for field, value in fields.items():
                getattr(getattr(self, module), field)[...] = value

    def __call__(self, x: jax.Array) -> jax.Array:
        return self.last(jnp.tanh(self.norm(self.first(x))))


def nnx_loss(model: Any, batch: dict[str, Any]) -> jax.Array:
    logits = model(jnp.asarray(batch["x"]))
    return optax.softmax_cross_entropy_with_integer_labels(logits, jnp.asarray(batch["y"])).mean()


def nnx_start(model: nnx.Module) -> dict[str, Any]:
    return {"model": model, "optimizer": nnx.Optimizer(model, TX, wrt=nnx.Param)}


@nnx.jit
def nnx_update(model: nnx.Module, optimizer: nnx.Optimizer, batch: dict[str, Any]) -> jax.Array:
    value, grads = nnx.value_and_grad(nnx_loss)(model, batch)
    optimizer.update(model, grads)
    return value


def nnx_step(state: dict[str, Any], batch: dict[str, Any]) -> tuple[dict[str, Any], jax.Array]:
    return state, nnx_update(state["model"], state["optimizer"], batch)


def flat(tree: Any) -> dict[str, np.ndarray]:
    return {jax.tree_util.keystr(path): np.asarray(leaf) for path, leaf in jax.tree_util.tree_leaves_with_path(tree)}


def filled(tree: Any, held: Any) -> Any:
    return jax.tree_util.tree_map_with_path(lambda path, _: jnp.asarray(held[jax.tree_util.keystr(path)]), tree)


def nnx_loop(lost: str = "") -> Callable[..., Iterator[int]]:
    def train_nnx(folder: Path, steps: int = 12) -> Iterator[int]:
        state, begin = nnx_start(NnxModel(rngs=nnx.Rngs(0))), 0
        if (folder / "nnx.npz").exists():
            held = dict(np.load(folder / "nnx.npz"))
            begin = int(held.pop("step"))
            pure = nnx.to_pure_dict(nnx.state(state))
            kept = filled({name: pure[name] for name in pure if name != lost}, held)
            nnx.update(state, nnx.merge_state(nnx.state(state), _as_state(state, {**pure, **kept})))
        for at in range(begin, steps):
            yield at
            state, loss = nnx_step(state, batch(at))  # noqa: RUF059 - the checks read it
            if (at + 1) % EVERY == 0:
                np.savez(folder / "nnx.npz", step=at + 1, **flat(nnx.to_pure_dict(nnx.state(state))))

    return train_nnx


def _as_state(state: Any, pure: Any) -> Any:
    made = nnx.state(state)
    nnx.replace_by_pure_dict(made, pure)
    return made


def apply(params: Any, x: jax.Array) -> jax.Array:
    h = x @ params["first"]["kernel"] + params["first"]["bias"]
    h = (h - h.mean(-1, keepdims=True)) / jnp.sqrt(h.var(-1, keepdims=True) + 1e-5)
    h = jnp.tanh(h * params["norm"]["scale"] + params["norm"]["bias"])
    return h @ params["last"]["kernel"] + params["last"]["bias"]


def OptaxModel() -> tuple[Any, Callable[..., jax.Array]]:
    return to_tree(initial()), apply


def optax_loss(model: Any, batch: dict[str, Any]) -> jax.Array:
    params, function = model
    logits = function(params, jnp.asarray(batch["x"]))
    return optax.softmax_cross_entropy_with_integer_labels(logits, jnp.asarray(batch["y"])).mean()


def optax_start(model: Any) -> dict[str, Any]:
    return {"params": model[0], "opt_state": TX.init(model[0])}


@jax.jit
def optax_update(state: dict[str, Any], batch: dict[str, Any]) -> tuple[dict[str, Any], jax.Array]:
    value, grads = jax.value_and_grad(lambda params: optax_loss((params, apply), batch))(state["params"])
    updates, opt_state = TX.update(grads, state["opt_state"], state["params"])
    return {"params": optax.apply_updates(state["params"], updates), "opt_state": opt_state}, value


def optax_step(state: dict[str, Any], batch: dict[str, Any]) -> tuple[dict[str, Any], jax.Array]:
    return optax_update(state, batch)


def optax_loop(lost: str = "") -> Callable[..., Iterator[int]]:
    def train_optax(folder: Path, steps: int = 12) -> Iterator[int]:
        state, begin = optax_start(OptaxModel()), 0
        if (folder / "optax.npz").exists():
            held = dict(np.load(folder / "optax.npz"))
            begin = int(held.pop("step"))
            state = {**state, **{name: filled({name: state[name]}, held)[name] for name in state if name != lost}}
        for at in range(begin, steps):
            yield at
            state, loss = optax_step(state, batch(at))  # noqa: RUF059 - the checks read it
            if (at + 1) % EVERY == 0:
                np.savez(folder / "optax.npz", step=at + 1, **flat(state))

    return train_optax


TORCH = {"Model": TorchModel, "inputs": inputs, "batch": batch, "loss": torch_loss, "start": torch_start,
         "step": torch_step, "train": torch_loop()}  # fmt: skip
NNX = {"Model": NnxModel, "inputs": inputs, "batch": batch, "loss": nnx_loss, "start": nnx_start, "step": nnx_step,
       "train": nnx_loop()}  # fmt: skip
OPTAX = {"Model": OptaxModel, "inputs": inputs, "batch": batch, "loss": optax_loss, "start": optax_start,
         "step": optax_step, "train": optax_loop()}  # fmt: skip


MOMENTS = {"exp_avg": "mu", "exp_avg_sq": "nu"}


def held_by_torch(folder: Path) -> tuple[int, dict[str, dict[str, np.ndarray]]]:
    """Return the step of `last.pt`, and its parameters and moments by PyTorch's names."""
    held = torch.load(folder / "last.pt", weights_only=True)
    optimizer = held["optimizer"]
    order = [at for group in optimizer["param_groups"] for at in group["params"]]
    names = sorted(held["model"], key=lambda name: held["model"][name].ndim == 1)  # matrices are the first group
    found = {"model": {name: held["model"][name].numpy() for name in names}}
    for slot in MOMENTS:
        found[slot] = {name: optimizer["state"][at][slot].numpy() for at, name in zip(order, names, strict=True)}
    return held["step"], found


def moved(opt_state: Any, step: int, trees: dict[str, Any], lost: str) -> Any:
    """Return the state of `TX` at a step with moments, without what is lost."""
    empty, (adam, decay, schedule) = opt_state
    kept = {MOMENTS[slot]: trees[slot] for slot in MOMENTS if lost not in ("moments", slot)}
    adam = adam._replace(count=jnp.asarray(0 if lost == "count" else step, jnp.int32), **kept)
    schedule = schedule._replace(count=jnp.asarray(0 if lost == "schedule" else step, jnp.int32))
    return empty, (adam, decay, schedule)


def to_optax(source: Path, target: Path, lost: str = "") -> None:
    step, found = held_by_torch(source)
    trees = {slot: to_tree(values) for slot, values in found.items()}
    state = optax_start((trees["model"], apply))
    state["opt_state"] = moved(state["opt_state"], step, trees, lost)
    np.savez(target / "optax.npz", step=step, **flat(state))


def to_nnx(source: Path, target: Path, lost: str = "") -> None:
    step, found = held_by_torch(source)
    trees = {slot: to_tree(values) for slot, values in found.items()}
    pure = nnx.to_pure_dict(nnx.state(nnx_start(NnxModel(rngs=nnx.Rngs(0)))))
    optimizer, count = pure["optimizer"], np.asarray(0 if lost == "count" else step)
    optimizer["step"] = count.astype(np.uint32)
    adam = optimizer["opt_state"][1][0]
    adam["count"] = count.astype(np.int32)
    adam |= {MOMENTS[slot]: trees[slot] for slot in MOMENTS if lost not in ("moments", slot)}
    optimizer["opt_state"][1][2]["count"] = np.asarray(0 if lost == "schedule" else step, np.int32)
    np.savez(target / "nnx.npz", step=step, **flat({"model": trees["model"], "optimizer": optimizer}))


def to_torch(step: int, trees: dict[str, Any], target: Path, lost: str) -> None:
    values = {slot: from_tree(tree) for slot, tree in trees.items()}
    state = torch_start(TorchModel())
    state["model"].load_state_dict(values["model"])
    for name, parameter in state["model"].named_parameters():
        kept = {slot: values[slot][name] if lost not in ("moments", slot) else torch.zeros_like(parameter.data)
                for slot in MOMENTS}  # fmt: skip
        state["optimizer"].state[parameter] = {"step": torch.tensor(0.0 if lost == "count" else float(step)), **kept}
    for _ in range(0 if lost == "schedule" else step):
        state["optimizer"]._opt_called = True  # the rates are moved on by themselves
        state["scheduler"].step()
    held = {name: part.state_dict() for name, part in state.items()}
    torch.save({**held, "step": step}, target / "last.pt")


def from_optax(source: Path, target: Path, lost: str = "") -> None:
    held = dict(np.load(source / "optax.npz"))
    state = filled(optax_start(OptaxModel()), held)
    adam = state["opt_state"][1][0]
    to_torch(int(held["step"]), {"model": state["params"], "exp_avg": adam.mu, "exp_avg_sq": adam.nu}, target, lost)


def from_nnx(source: Path, target: Path, lost: str = "") -> None:
    held = dict(np.load(source / "nnx.npz"))
    pure = filled(nnx.to_pure_dict(nnx.state(nnx_start(NnxModel(rngs=nnx.Rngs(0))))), held)
    adam = pure["optimizer"]["opt_state"][1][0]
    trees = {"model": pure["model"], "exp_avg": adam["mu"], "exp_avg_sq": adam["nu"]}
    to_torch(int(held["step"]), trees, target, lost)
