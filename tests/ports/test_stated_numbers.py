"""A number that the other program states is told before one that does as much and stands nowhere."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
import torch
from torch import nn

from parity.checks.proving import prove_port

WIDE = 6


class Scaled(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(5, WIDE)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        angles = 1.0 / 10000.0 ** (torch.arange(0, WIDE, dtype=x.dtype) / WIDE)
        return torch.sin(self.inner(x) * angles)


def _cause(base: float, over: float) -> str:
    draws = np.random.default_rng(5)
    params = {"w": draws.standard_normal((5, WIDE)), "b": draws.standard_normal(WIDE)}

    def apply(p: Any, x: Any) -> Any:
        return jnp.sin((x @ p["w"] + p["b"]) * base ** (-jnp.arange(0, WIDE, dtype=x.dtype) / over))

    batch = {"batch": lambda step: {"x": np.zeros((4, 5))}}
    return prove_port(
        torch={"Model": Scaled} | batch, jax={"Model": lambda: (params, apply)} | batch, inputs=["f[4,5]"],
        until="forward", steps=2,
    ).cause  # fmt: skip


@pytest.mark.parametrize(("base", "over", "said"), [
    (5e5, WIDE, "10000 here (test_stated_numbers.py:24), 500000 there"),
    (1e4, 5.0, "6 here (test_stated_numbers.py:24), 5 there"),
])  # fmt: skip
def test_a_number_that_the_other_states_is_told(base: float, over: float, said: str) -> None:
    cause = _cause(base, over)
    assert cause.startswith("number "), cause
    assert said in cause
