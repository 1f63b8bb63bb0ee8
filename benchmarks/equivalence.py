"""The generator of docs/optimizers.md: every optimizer of PyTorch against its obvious translation and the exact one.

`python -m benchmarks.equivalence [--steps N]` measures, and writes the figures and the page; `make equivalence`.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
import torch

from jax_side import optim
from jax_side.optim import by_name
from parity.checks import least_squares, measure_optimizer
from parity.environment import versions
from parity.report import equivalence_page
from parity.state import OPTIMIZERS

ROOT = Path(__file__).resolve().parents[1]
FIGURES = ROOT / "parity" / "results" / "equivalence.json"
PAGE = ROOT / "docs" / "optimizers.md"
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
"""Class to its arguments, and to what one would write for it."""

DECAYED: dict[str, dict[str, Any]] = {
    "SGD": {"weight_decay": 5e-4},
    **{name: {"weight_decay": 0.01, "decoupled_weight_decay": True} for name in ("Adam", "NAdam", "RAdam")},
    **{name: {"weight_decay": 0.01} for name in ("Adamax", "RMSprop", "Adagrad", "Adadelta", "Adafactor")},
}
"""What is added to the arguments in float32 and bfloat16, where each optimizer decays that can."""

NARROW = ("float32", "bfloat16")
EXACT_STEPS = 50
"""For how many steps Muon has to be exact at least. It rounds to bfloat16 some 300 times in an update here; where a
sum in float32, taken in another order, falls on the other side of a tie, an element differs by a unit of bfloat16."""

PROBLEM = least_squares()
START = PROBLEM.start


class Run(NamedTuple):
    """What a training leaves: an array for each step."""

    weights: np.ndarray[Any, Any]
    """After the step; those of bfloat16 as float32."""
    gradients: np.ndarray[Any, Any]


def torch_run(name: str, arguments: dict[str, Any], steps: int, *, dtype: str = "float64", given: Any = None) -> Run:
    """Train with torch.optim, called plainly; its losses in float64 are those of `torch_side.optim.losses`.

    Args:
        name: Class of torch.optim.
        arguments: Its arguments.
        steps: How many.
        dtype: Of the weight, its gradients and the data.
        given: Gradients to take in place of those of the loss; the weight is then moved by one unit in the last
            place, up or down, before each step.
    """
    kind, narrow = getattr(torch, dtype), torch.float64 if dtype == "float64" else torch.float32
    weight = torch.nn.Parameter(torch.from_numpy(START.copy()).to(kind))
    optimizer = getattr(torch.optim, name)([weight], **arguments)
    xs, ys = (torch.from_numpy(part).to(kind) for part in (PROBLEM.x, PROBLEM.y))
    signs = torch.from_numpy(np.random.default_rng(1).choice([-np.inf, np.inf], (steps, *START.shape))).to(kind)
    weights, gradients = [], []
    for step in range(steps):
        batch, wanted = xs[step % len(xs)], ys[step % len(ys)]
        difference = batch @ weight.detach() - wanted
        weight.grad = batch.T @ difference * (2 / difference.numel())
        if given is not None:
            weight.grad = torch.from_numpy(given[step]).to(kind)
            with torch.no_grad():
                weight.copy_(torch.nextafter(weight, signs[step]))
        gradients.append(weight.grad.to(narrow).numpy())
        optimizer.step()
        weights.append(weight.detach().to(narrow).numpy().copy())
    return Run(np.array(weights), np.array(gradients))


def jax_weights(tx: Any, gradients: np.ndarray[Any, Any], dtype: str) -> np.ndarray[Any, Any]:
    """Return the weights after each step with given gradients, compiled."""

    def body(carry: Any, gradient: jax.Array) -> tuple[Any, jax.Array]:
        weight, state = carry
        updates, state = tx.update(gradient, state, weight)
        weight = optax.apply_updates(weight, updates)
        return (weight, state), weight.astype(jnp.float32)

    weight, given = jnp.asarray(START).astype(dtype), jnp.asarray(gradients).astype(dtype)
    return np.asarray(jax.jit(lambda c, g: jax.lax.scan(body, c, g))((weight, tx.init(weight)), given)[1])


def narrow(name: str, arguments: dict[str, Any], steps: int) -> dict[str, Any]:
    """Return a row's differences of the weights in float32 and bfloat16, given the gradients of torch's training."""
    arguments = {**arguments, **DECAYED.get(name, {})}
    found: dict[str, Any] = {"arguments": arguments}
    for dtype in NARROW:
        theirs = torch_run(name, arguments, steps, dtype=dtype)
        noisy = torch_run(name, arguments, steps, dtype=dtype, given=theirs.gradients)
        ours = jax_weights(by_name(name, arguments), theirs.gradients, dtype)
        apart, floor = (np.abs(one - theirs.weights).max(axis=(1, 2)) for one in (ours, noisy.weights))
        judged = EXACT_STEPS if name == "Muon" else steps
        if not apart[:judged].max() <= floor.max():
            raise SystemExit(
                f"{name}: {apart[:judged].max():.1e} apart in {dtype}, torch from itself {floor.max():.1e}"
            )
        found[dtype] = {"exact": float(apart.max()), "floor": float(floor.max())}
    return found


def measure(name: str, steps: int) -> dict[str, Any]:
    """Return the row of an optimizer: what `parity optim` measures, and the narrow types."""
    arguments, obvious = OBVIOUS[name]
    found = measure_optimizer(OPTIMIZERS[name], arguments, steps)
    if name == "Muon" and found.apart is not None:  # up to a tie of bfloat16, which counts as rounding
        found = replace(measure_optimizer(OPTIMIZERS[name], arguments, max(found.apart, EXACT_STEPS)),
                        translations=found.translations)  # fmt: skip
    if found.apart is not None:
        raise SystemExit(f"{name}: the exact call is {found.exact:.1e} apart, at step {found.apart} the first time")
    plain = found.translations[0]
    return {
        "arguments": arguments,
        "obvious": obvious,
        "first": plain.first,
        "after_200": plain.after_200,
        "after_all": plain.after_all,
        "exact": found.exact,
        "judged": found.judged,
        "torch_source": found.source,
        "optax_source": plain.source,
        "narrow": narrow(name, arguments, steps),
    }


def main() -> None:
    """Measure every optimizer; write the figures and the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=10_000)
    steps = parser.parse_args().steps
    torch.set_num_threads(1)  # a second one waits longer for the first than it multiplies such matrices
    found = versions()
    used = {name: found[name] for name in ("torch", "jax", "optax") if name in found}
    names = {"steps": steps, "package": optim.__name__}
    measured = {"versions": used, **names, "rows": {name: measure(name, steps) for name in OBVIOUS}}
    FIGURES.write_text(json.dumps(measured, indent=1) + "\n", encoding="utf-8")
    PAGE.write_text(equivalence_page(measured), encoding="utf-8")


if __name__ == "__main__":
    main()
