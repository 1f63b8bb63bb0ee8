"""A call that is left out is told with its module, where several modules share the line that computes it."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
import torch
from torch import nn

from parity.checks.proving import prove_port

WIDE, TOKENS = 6, 7


class Norm(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(WIDE))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.weight * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-5))


class Trainer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(TOKENS, WIDE)
        self.before, self.after = Norm(), Norm()
        self.inner, self.head = nn.Linear(WIDE, 5), nn.Linear(5, WIDE)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = self.before(self.table(x))
        return self.after(h + self.head(torch.tanh(self.inner(h))))


def _cause(fault: str) -> str:
    """Return the cause of a port in which the last norm is left out, or the first has another epsilon."""
    draws = np.random.default_rng(5)
    shapes = {
        "t": (TOKENS, WIDE),
        "a": (WIDE,),
        "b": (WIDE,),
        "i": (WIDE, 5),
        "ib": (5,),
        "h": (5, WIDE),
        "hb": (WIDE,),
    }
    params = {name: draws.standard_normal(shape) for name, shape in shapes.items()}

    def norm(x: Any, scale: Any, epsilon: float = 1e-5) -> Any:
        return x * scale / jnp.sqrt(jnp.mean(x * x, -1, keepdims=True) + epsilon)

    def apply(p: Any, x: Any) -> Any:
        h = norm(p["t"][x], p["a"], 1e-2 if fault == "epsilon" else 1e-5)
        h = h + jnp.tanh(h @ p["i"] + p["ib"]) @ p["h"] + p["hb"]
        return h * 1.0 if fault == "left out" else norm(h, p["b"])

    batch = {"batch": lambda step: {"x": np.arange(8).reshape(2, 4) % TOKENS}}
    return prove_port(
        torch={"Model": Trainer} | batch, jax={"Model": lambda: (params, apply)} | batch, inputs=[f"i[2,4]<{TOKENS}"],
        until="forward", steps=2,
    ).cause  # fmt: skip


def test_the_module_whose_call_is_left_out_is_told() -> None:
    cause = _cause("left out")
    assert cause.startswith("left out: after (Norm): "), cause


def test_another_number_of_a_call_is_no_call_that_is_left_out() -> None:
    cause = _cause("epsilon")
    assert cause
    assert "(Norm)" not in cause
