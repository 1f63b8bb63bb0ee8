"""A training function in JAX that is not deterministic: a few units in the last place a step, from the system."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import optax

from tests.live.noisy_trainers import EVERY, STEPS, jitter

OPTIMIZER = optax.adamw(optax.exponential_decay(1e-2, 4, 0.7))


@jax.jit
def train_step(params, state, x, y):  # type: ignore[no-untyped-def]
    """Return parameters and state after a step, and the loss."""

    def loss_of(params):  # type: ignore[no-untyped-def]
        logits = jnp.tanh(x @ params["first"]) @ params["last"]
        return optax.softmax_cross_entropy_with_integer_labels(logits, y).mean()

    loss, grads = jax.value_and_grad(loss_of)(params)
    updates, state = OPTIMIZER.update(grads, state, params)
    return optax.apply_updates(params, updates), state, loss


def jax_loop(folder: Path, fault: str = "", ulps: int = 1) -> Iterator[int]:
    """Train a classifier by Optax; `moments_late` clears the moments in the first step after the resume."""
    draws = np.random.default_rng(0)
    inputs, labels = draws.normal(size=(64, 8)).astype(np.float32), draws.integers(0, 3, 64)
    params = {"first": jnp.asarray(draws.normal(size=(8, 16)) / 3, jnp.float32), "last": jnp.zeros((16, 3))}
    state = OPTIMIZER.init(params)
    start, resumed = 0, False
    if (folder / "state.npz").exists():
        with np.load(folder / "state.npz") as held:
            leaves, structure = jax.tree.flatten((params, state))
            values = [jnp.asarray(held[str(at)], leaf.dtype) for at, leaf in enumerate(leaves)]
            params, state = jax.tree.unflatten(structure, values)
            start, resumed = int(held["step"]), True
    for step in range(start, STEPS):
        yield step
        rows = np.arange(step * 16, step * 16 + 16) % 64
        if fault == "moments_late" and resumed and step == start:
            state = (state[0]._replace(mu=jax.tree.map(jnp.zeros_like, state[0].mu)), *state[1:])
        params, state, loss = train_step(params, state, inputs[rows], labels[rows])  # noqa: RUF059 - the checks read it
        params = {name: value * jitter(value.shape, ulps) for name, value in params.items()}
        if (step + 1) % EVERY == 0:
            leaves = {str(at): np.asarray(leaf) for at, leaf in enumerate(jax.tree.leaves((params, state)))}
            np.savez(folder / "state.npz", step=step + 1, **leaves)
