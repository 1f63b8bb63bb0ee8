"""An update of `jax_side.optim` against the same equations in bare `jax.numpy`: 10 M parameters in 100 leaves."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest

from benchmarks.paired import Arm, run_all, run_paired, slower

jax = pytest.importorskip("jax")
optax = pytest.importorskip("optax")

LEAVES = 100
SHAPE = (400, 250)
STEPS = {"Muon": 1}
"""Updates in a run; 10 of the others. Muon multiplies matrices in bfloat16, fifteen times for each."""

RATE = 1e-3
QUICK = ("AdamW",)
"""What `make bench-quick` runs; the others are marked slow."""

NEAREST: dict[str, Callable[[], Any]] = {
    "SGD": lambda: optax.sgd(RATE, momentum=0.9),
    "Adam": lambda: optax.adam(RATE),
    "AdamW": lambda: optax.adamw(RATE, weight_decay=1e-2),
    "NAdam": lambda: optax.nadam(RATE),
    "RAdam": lambda: optax.radam(RATE),
    "Adamax": lambda: optax.adamax(RATE),
    "RMSprop": lambda: optax.rmsprop(RATE, decay=0.99, eps_in_sqrt=False),
    "Adagrad": lambda: optax.adagrad(RATE),
    "Adadelta": lambda: optax.adadelta(RATE, rho=0.9, eps=1e-6),
    "Rprop": lambda: optax.rprop(RATE),
    "ASGD": lambda: optax.sgd(RATE),
    "Adafactor": lambda: optax.adafactor(RATE),
    "Muon": lambda: optax.contrib.muon(RATE),
    "Lion": lambda: optax.lion(RATE),
}
"""The Optax optimizer that one would take; most of them take other steps: docs/optimizers.md."""


class Training:
    """Updates of the same parameters by the same gradients, from the same start, in one compiled and donated call."""

    def __init__(self, init: Callable[[Any], Any], step: Callable[..., Any], steps: int) -> None:
        self.init, self.steps = init, steps
        self.step = jax.jit(step, donate_argnums=(0, 1))
        self.grads = tree(2)

    def reset(self) -> None:
        self.params = tree(1)
        self.state = jax.block_until_ready(self.init(self.params))

    def run(self) -> Any:
        params, state, rate = self.params, self.state, np.float32(RATE)
        for _ in range(self.steps):
            params, state = self.step(params, state, self.grads, rate)
        self.params, self.state = jax.block_until_ready((params, state))
        return self.params


def tree(seed: int) -> dict[str, Any]:
    """Return 10 million drawn parameters, or gradients."""
    generator = np.random.default_rng(seed)
    drawn = generator.standard_normal(SHAPE, np.float32)
    return {f"layer {at}": jax.numpy.asarray(np.roll(drawn, at, axis=0)) for at in range(LEAVES)}


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=() if n in QUICK else pytest.mark.slow) for n in NEAREST], ids=str
)
def test_update_against_bare_equations(benchmark: Any, name: str) -> None:
    """The nearest Optax optimizer beside both, without a bar: it may take other steps."""
    from benchmarks.bare_optim import BARE
    from jax_side.optim import by_name

    tx = by_name(name, {"momentum": 0.9} if name == "SGD" else {})
    nearest, bare, steps = NEAREST[name](), BARE[name], STEPS.get(name, 10)

    def ours(params: Any, state: Any, grads: Any, rate: Any) -> Any:
        updates, state = tx.update(grads, state, params, learning_rate=rate)
        return optax.apply_updates(params, updates), state

    def of_optax(params: Any, state: Any, grads: Any, rate: Any) -> Any:
        updates, state = nearest.update(grads, state, params)
        return optax.apply_updates(params, updates), state

    trainings = {
        "ours": Training(tx.init, ours, steps),
        "bare": Training(bare.init, bare.step, steps),
        "optax": Training(nearest.init, of_optax, steps),
    }
    arms = [Arm(name=arm, run=t.run, reset=t.reset, steps=steps) for arm, t in trainings.items()]
    found = run_all(arms)
    for leaf, value in found["bare"].items():
        np.testing.assert_allclose(found["ours"][leaf], value, rtol=1e-5, atol=1e-6)
    run_paired(benchmark, arms, [slower("ours", "bare", bar=1.05), slower("ours", "optax")], rounds=25)


COMPILED = ("AdamW", "NAdam", "RAdam")
MANY = 300
"""Leaves of 1,000 parameters: scalars of a step are computed once for all, and those of one shape share a kernel."""


@pytest.mark.slow
@pytest.mark.parametrize("name", COMPILED)
def test_compilation_against_optax(benchmark: Any, name: str) -> None:
    """Trace, lower and compile one training step; beside it, without a bar, the step itself."""
    from jax_side.optim import by_name

    small = {f"layer {at}": jax.numpy.ones((40, 25)) for at in range(MANY)}
    made: dict[str, Any] = {"ours": by_name(name, {}), "optax": NEAREST[name]()}

    def compiled(tx: Any) -> Any:
        def step(params: Any, state: Any, grads: Any) -> Any:
            updates, state = tx.update(grads, state, params)
            return optax.apply_updates(params, updates), state

        return jax.jit(step).lower(small, tx.init(small), small).compile()

    arms = [Arm(name=arm, run=partial(compiled, tx), reset=jax.clear_caches) for arm, tx in made.items()]
    run_paired(benchmark, arms, [slower("ours", "optax", bar=2.0)], rounds=3, label="compile")
    steps = [Arm(name=arm, run=_run(compiled(tx), small, tx.init(small), small)) for arm, tx in made.items()]
    run_paired(benchmark, steps, [slower("ours", "optax")], rounds=25, label="step")


def _run(call: Any, *given: Any) -> Callable[[], Any]:
    return lambda: jax.block_until_ready(call(*given))
