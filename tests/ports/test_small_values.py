"""What a loss bounds from below is compared where the bound holds too: at small values as well."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
import torch
from torch import nn

import parity
from parity.checks.proving import PortProof

BITS = 0.15
_START = 3.0 + np.random.default_rng(2).random((3, 6))


class Coder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.tensor(_START, dtype=torch.float32))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x @ self.w.T


def port() -> Any:
    return {"w": jnp.asarray(_START.T, jnp.float32)}, lambda params, x: x @ params["w"]


def batch(step: int) -> dict[str, np.ndarray[Any, Any]]:
    return {"x": np.random.default_rng([5, step]).standard_normal((8, 6)).astype("float32")}


def loss(model: Any, given: dict[str, Any]) -> torch.Tensor:
    spread = 0.5 * model(torch.from_numpy(given["x"])).square()
    return spread.mean(0).clamp(min=BITS).sum()


def of_port(bounded: Callable[[Any], Any]) -> Callable[[Any, dict[str, Any]], Any]:
    def made(model: Any, given: dict[str, Any]) -> Any:
        params, apply = model
        return bounded(0.5 * jnp.square(apply(params, jnp.asarray(given["x"]))).mean(0))

    return made


def proof(bounded: Callable[[Any], Any]) -> PortProof:
    torch_side = {"Model": Coder, "inputs": "f[8,6]", "batch": batch, "loss": loss}
    jax_side = {"Model": port, "inputs": "f[8,6]", "batch": batch, "loss": of_port(bounded)}
    return parity.prove_port(torch=torch_side, jax=jax_side, steps=2, until="loss")


@pytest.mark.parametrize(
    "bounded",
    [lambda kl: jnp.maximum(kl.sum(), BITS), lambda kl: kl.sum(), lambda kl: jnp.maximum(kl, 0.01).sum()],
    ids=["of the sum", "none", "another one"],
)
def test_another_bound_parts_where_it_holds(bounded: Callable[[Any], Any]) -> None:
    found = proof(bounded)
    assert found.verdict == "broken", found.text()
    assert "at small drawn values" in found.text()


@pytest.mark.parametrize(
    "bounded",
    [lambda kl: jnp.maximum(kl, BITS).sum(), lambda kl: jnp.where(kl > BITS, kl, BITS).sum()],
    ids=["the same", "in other words"],
)
def test_the_same_bound_holds(bounded: Callable[[Any], Any]) -> None:
    found = proof(bounded)
    assert found.verdict == "holds", found.text()
