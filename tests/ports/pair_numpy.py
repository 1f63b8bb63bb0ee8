"""A trainer in NumPy and its port with other names, layouts and order of sums; a fault is one line of the port."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

Array = np.ndarray
STEPS, EVERY, WIDTH = 30, 5, 9
FAULTS = {
    "start": "model.params",
    "order": "data.batch",
    "forward": "loss",
    "loss": "loss",
    "gradient": "optimizer.first_moment",
    "clip": "optimizer.first_moment",
    "beta1": "optimizer.first_moment",
    "beta2": "optimizer.second_moment",
    "epsilon": "model.params",
    "decay": "model.params",
    "late": "model.params",
    "rate": "schedule.lr",
    "frozen": "optimizer.first_moment",
    "ema": "ema",
    "ends": "counters.step",
}
"""Fault to the component that it must be named as."""


def samples() -> tuple[Array, Array]:
    draws = np.random.default_rng(0)
    x = draws.normal(size=(48, 5))
    return x, np.sin(x.sum(axis=1, keepdims=True))


def start() -> tuple[Array, Array, Array]:
    draws = np.random.default_rng(1)
    return draws.normal(size=(WIDTH, 5)) / 2, np.zeros(WIDTH), draws.normal(size=(1, WIDTH)) / 3


def rate(step: int) -> float:
    return 1e-2 * (1 - step / 100)


def rows(step: int) -> Array:
    return (np.arange(8) + 8 * step) % 48


def train(folder: Path, steps: int = STEPS, dtype: str = "float64") -> Iterator[int]:
    """The trainer: weights [out, in], Adam with decoupled decay, an average."""
    x, y = (part.astype(dtype) for part in samples())
    params = dict(zip(("w1", "b1", "w2"), (part.astype(dtype) for part in start()), strict=True))
    opt_state = {"exp_avg": {k: np.zeros_like(v) for k, v in params.items()},
                 "exp_avg_sq": {k: np.zeros_like(v) for k, v in params.items()}, "step": 0}  # fmt: skip
    ema = {k: v.copy() for k, v in params.items()}
    begin, lr = 0, rate(0)
    if (folder / "state.npz").exists():
        held = dict(np.load(folder / "state.npz"))
        begin = opt_state["step"] = int(held["step"])
        for tree, name in ((params, "p"), (opt_state["exp_avg"], "m"), (opt_state["exp_avg_sq"], "v"), (ema, "e")):
            tree.update({k: held[f"{name}.{k}"] for k in tree})
    for step in range(begin, steps):
        yield step
        batch, targets = x[rows(step)], y[rows(step)]
        hidden = np.tanh(batch @ params["w1"].T + params["b1"])
        error = hidden @ params["w2"].T - targets
        loss = (error**2).mean(dtype=dtype)
        back = (2 / error.size * error @ params["w2"]) * (1 - hidden**2)
        grads = {"w1": back.T @ batch, "b1": back.sum(0), "w2": 2 / error.size * error.T @ hidden}
        norm = np.sqrt(sum((g**2).sum() for g in grads.values()))
        lr, count = rate(step), opt_state["step"] + 1
        opt_state["step"] = count
        for k, g in grads.items():
            g = (g * min(1.0, 0.5 / float(norm + 1e-6))).astype(dtype)
            m, v = opt_state["exp_avg"], opt_state["exp_avg_sq"]
            m[k] = (0.9 * m[k] + 0.1 * g).astype(dtype)
            v[k] = (0.999 * v[k] + 0.001 * g * g).astype(dtype)
            update = (m[k] / (1 - 0.9**count)) / (np.sqrt(v[k] / (1 - 0.999**count)) + 1e-8)
            params[k] = (params[k] - lr * (update + 0.01 * params[k])).astype(dtype)
            ema[k] = (0.9 * ema[k] + 0.1 * params[k]).astype(dtype)
        if (step + 1) % EVERY == 0:
            trees = {"p": params, "m": opt_state["exp_avg"], "v": opt_state["exp_avg_sq"], "e": ema}
            flat = {f"{name}.{k}": value for name, tree in trees.items() for k, value in tree.items()}
            np.savez(folder / "state.npz", step=step + 1, **flat)
        assert np.isfinite(loss)
        assert lr > 0


def port(fault: str = "", dtype: str = "float64") -> Callable[..., Iterator[int]]:
    """Return the port: weights [in, out] in a nested tree, Optax's names, sums in another order."""

    def train_port(folder: Path, steps: int = STEPS) -> Iterator[int]:
        x, y = (part.astype(dtype) for part in samples())
        w1, b1, w2 = (part.astype(dtype) for part in start())
        shift = 1e-3 if fault == "start" else 0.0
        params = {"first": {"kernel": w1.T.copy(), "bias": b1 + 0}, "last": {"kernel": (w2.T + shift).astype(dtype)}}
        tree = [("first", "kernel"), ("first", "bias"), ("last", "kernel")]
        mu = {m: {k: np.zeros_like(v) for k, v in leaves.items()} for m, leaves in params.items()}
        nu = {m: {k: np.zeros_like(v) for k, v in leaves.items()} for m, leaves in params.items()}
        opt_state = {"mu": mu, "nu": nu, "count": 0}
        ema = {m: {k: v.copy() for k, v in leaves.items()} for m, leaves in params.items()}
        begin, lr = 0, rate(0)
        if (folder / "step.json").exists():
            begin = json.loads((folder / "step.json").read_text())["step"]
            held = dict(np.load(folder / "port.npz"))
            opt_state["count"] = int(held["count"])
            for one, name in ((params, "p"), (mu, "mu"), (nu, "nu"), (ema, "ema")):
                for m, k in tree:
                    one[m][k] = held[f"{name}.{m}.{k}"]
        for step in range(begin, steps - 5 if fault == "ends" else steps):
            yield step
            picked = rows(step + (fault == "order" and step == 11))
            batch, targets = x[picked], y[picked]
            hidden = np.tanh(np.einsum("bi,io->bo", batch, params["first"]["kernel"]) + params["first"]["bias"])
            hidden = hidden * (1 + 1e-5) if fault == "forward" else hidden
            error = np.einsum("bi,io->bo", hidden, params["last"]["kernel"]) - targets
            loss = np.einsum("bo,bo->", error, error).astype(dtype) / (error.size - (fault == "loss"))
            back = np.einsum("bo,io->bi", 2 / error.size * error, params["last"]["kernel"]) * (1 - hidden**2)
            grads = {
                "first": {"kernel": np.einsum("bi,bo->io", batch, back), "bias": back.sum(0)},
                "last": {"kernel": np.einsum("bi,bo->io", hidden, 2 / error.size * error)},
            }
            if fault == "gradient":
                grads["first"]["bias"] = grads["first"]["bias"] * (1 - 1e-4)
            norm = np.sqrt(sum((grads[m][k] ** 2).sum() for m, k in tree))
            scale = min(1.0, 0.5 / float(norm + (0.05 if fault == "clip" else 1e-6)))
            lr = rate(step + (fault == "rate" and step > 8))
            opt_state["count"] += 1
            count = opt_state["count"]
            b1_, b2_ = (0.91 if fault == "beta1" else 0.9), (0.998 if fault == "beta2" else 0.999)
            eps = 1e-6 if fault == "epsilon" else 1e-8
            decay = 0.0101 if fault == "decay" or (fault == "late" and step >= 22) else 0.01
            for m, k in tree:
                if fault == "frozen" and (m, k) == ("last", "kernel"):
                    continue
                g = (grads[m][k] * scale).astype(dtype)
                mu[m][k] = (b1_ * mu[m][k] + (1 - b1_) * g).astype(dtype)
                nu[m][k] = (b2_ * nu[m][k] + (1 - b2_) * g * g).astype(dtype)
                update = (mu[m][k] / (1 - b1_**count)) / (np.sqrt(nu[m][k] / (1 - b2_**count)) + eps)
                params[m][k] = (params[m][k] - lr * (update + decay * params[m][k])).astype(dtype)
                kept = 0.899 if fault == "ema" else 0.9
                ema[m][k] = (kept * ema[m][k] + (1 - kept) * params[m][k]).astype(dtype)
            if fault == "nan" and step == 9:
                loss = loss * np.nan
            if (step + 1) % EVERY == 0:
                trees = {"p": params, "mu": mu, "nu": nu, "ema": ema}
                flat = {f"{name}.{m}.{k}": one[m][k] for name, one in trees.items() for m, k in tree}
                np.savez(folder / "port.npz", count=count, **flat)
                (folder / "step.json").write_text(json.dumps({"step": step + 1}))
            assert lr > 0

    return train_port


NAMES = {"w1": ("first", "kernel"), "b1": ("first", "bias"), "w2": ("last", "kernel")}
TREES = {"p": "p", "m": "mu", "v": "nu", "e": "ema"}


def to_port(source: Path, target: Path, lost: str = "") -> None:
    """Convert what the trainer saved into what its port resumes from; `lost` names what it forgets."""
    held = dict(np.load(source / "state.npz"))
    flat = {}
    for ours, theirs in TREES.items():
        for name, (module, field) in NAMES.items():
            value = held[f"{ours}.{name}"]
            value = value.T if field == "kernel" and lost != "transpose" else value
            flat[f"{theirs}.{module}.{field}"] = np.zeros_like(value) if lost == ours else value
    if lost == "transpose":
        flat = {k: np.ascontiguousarray(v.reshape(v.T.shape)) if "kernel" in k else v for k, v in flat.items()}
    step = int(held["step"])
    np.savez(target / "port.npz", count=0 if lost == "count" else step, **flat)
    if lost != "all":
        (target / "step.json").write_text(json.dumps({"step": step - (lost == "position")}))


def to_trainer(source: Path, target: Path, lost: str = "") -> None:
    """Convert the other way."""
    held = dict(np.load(source / "port.npz"))
    flat = {}
    for ours, theirs in TREES.items():
        for name, (module, field) in NAMES.items():
            value = held[f"{theirs}.{module}.{field}"]
            value = value.T if field == "kernel" else value
            flat[f"{ours}.{name}"] = np.zeros_like(value) if lost == ours else value
    np.savez(target / "state.npz", step=json.loads((source / "step.json").read_text())["step"], **flat)
