"""Updates that agree without casts: whose cast it was, or that none is there and a count makes a rate float32."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from parity.checks.proving import prove_port


def _trainer(way: str) -> dict[str, Any]:
    """Return SGD of a matrix: with a rate as it is, of a count in int32, or with gradients that are cast."""

    def model() -> Any:
        return {"w": jnp.asarray(np.random.default_rng(3).normal(size=(3, 2)))}, lambda p, x: jnp.tanh(x @ p["w"])

    def loss(made: Any, batch: Any) -> Any:
        return jnp.mean((made[1](made[0], jnp.asarray(batch["x"])) - jnp.asarray(batch["y"])) ** 2)

    def start(made: Any) -> dict[str, Any]:
        return {"params": made[0], "n": jnp.zeros((), jnp.int32)}

    def step(state: Any, batch: Any) -> Any:
        value, grads = jax.value_and_grad(lambda p: loss((p, model()[1]), batch))(state["params"])
        count = state["n"] if way == "count" else state["n"].astype(value.dtype)
        rate = 0.1 * ((count + 3) / 7)
        if way == "cast":
            grads = jax.tree.map(lambda g: g.astype(jnp.float32), grads)
        params = jax.tree.map(lambda p, g: p - rate * g, state["params"], grads)
        return {"params": params, "n": state["n"] + 1}, value

    def batch(at: int) -> dict[str, Any]:
        draws = np.random.default_rng([1, at])
        return {"x": draws.normal(size=(4, 3)), "y": draws.normal(size=(4, 2))}

    return {"Model": model, "loss": loss, "start": start, "step": step, "batch": batch}


@pytest.mark.parametrize(("way", "said"), [
    ("count", "no line casts: a rate or a bias correction that is computed from a count in int32"),
    ("cast", "cast to float32 at ports/test_whose_casts.py:"), ("plain", ""),
])  # fmt: skip
def test_a_note_of_casts_says_whose_they_are(way: str, said: str) -> None:
    proof = prove_port(jax=[_trainer("plain"), _trainer(way)], inputs=["f[4,3]"], until="steps", steps=3)
    assert proof.verdict == "holds", proof.text()
    notes = [note for note in proof.notes if "narrower type" in note]
    assert len(notes) == bool(said)
    assert all(said in note for note in notes), notes
