"""The generator of docs/optimizers.md: every optimizer of PyTorch against its obvious translation and the exact one.

`python -m benchmarks.equivalence [--steps N]` measures, and writes the figures and the page; `make equivalence`.
"""

from __future__ import annotations

import argparse
import inspect
import json
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any
from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np
import optax
import torch

from jax_side import optim
from jax_side.optim import by_name
from parity.environment import versions
from parity.report import equivalence_page

ROOT = Path(__file__).resolve().parents[1]
FIGURES = ROOT / "parity" / "results" / "equivalence.json"
PAGE = ROOT / "docs" / "optimizers.md"
BAR = 1e-12
FLOOR = 1e-13
"""From where one unit in the last place of the start takes torch this far from itself, nothing is judged."""


OBVIOUS: dict[str, tuple[dict[str, Any], str]] = {
    "SGD": ({"lr": 0.01, "momentum": 0.9, "dampening": 0.5}, "optax.sgd(0.01, momentum=0.9)"),
    "Adam": ({"lr": 0.01}, "optax.adam(0.01)"),
    "AdamW": ({"lr": 0.01}, "optax.adamw(0.01)"),
    "NAdam": ({"lr": 0.01}, "optax.nadam(0.01)"),
    "RAdam": ({"lr": 0.01}, "optax.radam(0.01)"),
    "Adamax": ({"lr": 0.01}, "optax.adamax(0.01)"),
    "RMSprop": ({"lr": 0.01}, "optax.rmsprop(0.01, decay=0.99)"),
    "Adagrad": ({"lr": 0.1}, "optax.adagrad(0.1)"),
    "Adadelta": ({"lr": 1.0}, "optax.adadelta(1.0, rho=0.9, eps=1e-6)"),
    "Rprop": ({"lr": 0.01}, "optax.rprop(0.01)"),
    "ASGD": ({"lr": 0.01}, "optax.sgd(0.01)"),
    "Adafactor": ({"lr": 0.01}, "optax.adafactor(0.01)"),
    "Muon": ({"lr": 0.01}, "optax.contrib.muon(0.01)"),
}
"""Class to its arguments, and to what one would write for it; Muon's iteration is lifted to float64 on torch's side
and on that of the exact call."""

BATCH = 8
"""Rows of a batch, a quarter of the data: at the minimum of all of it, gradients would be rounding noise."""

generator = np.random.default_rng(0)
X = generator.normal(size=(32, 6))
Y = X @ generator.normal(size=(6, 4)) + generator.normal(size=(32, 4))
START = 0.3 * generator.normal(size=(6, 4))


def torch_losses(name: str, arguments: dict[str, Any], steps: int, start: Any = START) -> np.ndarray[Any, Any]:
    """Return the losses of a training with torch.optim."""
    weight = torch.nn.Parameter(torch.from_numpy(start.copy()))
    optimizer = getattr(torch.optim, name)([weight], **arguments)
    x, y, losses = torch.from_numpy(X), torch.from_numpy(Y), []
    lifted = mock.patch.object(torch.Tensor, "bfloat16", torch.Tensor.clone, create=True)
    with lifted if name == "Muon" else nullcontext():
        for step in range(steps):
            batch = x[BATCH * (step % 4) :][:BATCH]
            difference = batch @ weight.detach() - y[BATCH * (step % 4) :][:BATCH]
            losses.append((difference**2).mean().item())
            weight.grad = batch.T @ difference * (2 / difference.numel())
            optimizer.step()
    return np.array(losses)


def jax_losses(tx: Any, steps: int) -> np.ndarray[Any, Any]:
    """Return the losses of the same training with a transformation."""

    batches = jnp.asarray(X.reshape(4, BATCH, -1)), jnp.asarray(Y.reshape(4, BATCH, -1))

    def body(carry: Any, step: jax.Array) -> tuple[Any, jax.Array]:
        weight, state = carry
        x, y = (part[step % 4] for part in batches)
        difference = x @ weight - y
        gradient = x.T @ difference * (2 / difference.size)
        updates, state = tx.update(gradient, state, weight)
        return (weight + updates, state), (difference**2).mean()

    weight = jnp.asarray(START)
    return np.asarray(jax.jit(lambda c: jax.lax.scan(body, c, jnp.arange(steps)))((weight, tx.init(weight)))[1])


def line(value: Callable[..., Any]) -> str:
    """Return file and line of a definition, from its package on."""
    value = getattr(value, "func", value)  # optax.nadam is a partial
    path, at = Path(inspect.getsourcefile(value) or ""), inspect.getsourcelines(value)[1]
    parts = path.parts
    top = max(i for i, part in enumerate(parts) if part in ("torch", "optax"))
    return f"{'/'.join(parts[top:])}:{at}"


def measure(name: str, steps: int) -> dict[str, Any]:
    """Return the row of an optimizer."""
    arguments, obvious = OBVIOUS[name]
    theirs = torch_losses(name, arguments, steps)
    with jax.enable_x64(True):
        plain = jax_losses(eval(obvious, {"optax": optax}), steps)
        lifted = {"iteration_dtype": "float64"} if name == "Muon" else {}
        exact = jax_losses(by_name(name, arguments, **lifted), steps)
    apart, ours = (np.abs(curve - theirs) / theirs for curve in (plain, exact))
    moved = torch_losses(name, arguments, steps, np.nextafter(START, np.inf))
    own = np.flatnonzero(np.abs(moved - theirs) / theirs > FLOOR)
    judged = int(own[0]) if own.size else steps
    if ours[:judged].max() > BAR:
        raise SystemExit(f"{name}: the exact call is {ours.max():.1e} apart at step {int(ours.argmax())}")
    differs = np.flatnonzero(apart > BAR)
    function = eval(obvious.partition("(")[0], {"optax": optax})
    return {
        "arguments": arguments,
        "obvious": obvious,
        "first": int(differs[0]) if differs.size else None,
        "after_200": float(apart[:200].max()),
        "after_all": float(apart.max()),
        "exact": float(ours[:judged].max()),
        "judged": judged,
        "torch_source": line(getattr(torch.optim, name).__init__),
        "optax_source": line(function),
    }


def main() -> None:
    """Measure every optimizer; write the figures and the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=10_000)
    steps = parser.parse_args().steps
    found = versions()
    used = {name: found[name] for name in ("torch", "jax", "optax") if name in found}
    names = {"steps": steps, "package": optim.__name__}
    measured = {"versions": used, **names, "rows": {name: measure(name, steps) for name in OBVIOUS}}
    FIGURES.write_text(json.dumps(measured, indent=1) + "\n", encoding="utf-8")
    PAGE.write_text(equivalence_page(measured), encoding="utf-8")


if __name__ == "__main__":
    main()
