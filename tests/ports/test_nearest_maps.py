"""Models that part before most leaves, so that behaviour tells no map: equal but for one change under the nearest."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
import torch
from torch import nn

from parity.checks.proving import nearest_maps, prove_port

WIDE, HIDDEN, TOKENS, BLOCKS = 4, 6, 7, 2


class Trainer(nn.Module):
    """Blocks of leaves of one shape behind an embedding that is scaled."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.table = nn.Embedding(TOKENS, WIDE)
        self.place = nn.Parameter(torch.randn(4, WIDE))
        self.norms = nn.ModuleList(nn.LayerNorm(WIDE) for _ in range(BLOCKS))
        self.inner = nn.ModuleList(nn.Linear(WIDE, HIDDEN, bias=False) for _ in range(BLOCKS))
        self.outer = nn.ModuleList(nn.Linear(HIDDEN, WIDE) for _ in range(BLOCKS))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = self.table(x) * 2.5 + self.place
        for norm, inner, outer in zip(self.norms, self.inner, self.outer, strict=True):
            h = norm(h + outer(torch.tanh(inner(h))))
        return h


def _port(names: tuple[str, ...], fault: str) -> Any:
    """Return parameters by names, and a function of them; the fault is `scale`, or none."""
    table, place, shift, size, kernel, out, bias = names
    draws = np.random.default_rng(5)
    shapes = {shift: (WIDE,), size: (WIDE,), kernel: (WIDE, HIDDEN), out: (HIDDEN, WIDE), bias: (WIDE,)}
    params = {table: draws.standard_normal((TOKENS, WIDE)), place: draws.standard_normal((4, WIDE))}
    params |= {f"l{at}": {k: draws.standard_normal(s) for k, s in shapes.items()} for at in range(BLOCKS)}

    def apply(p: Any, x: Any) -> Any:
        h = p[table][x] * (1.0 if fault == "scale" else 2.5) + p[place]
        for at in range(BLOCKS):
            one = p[f"l{at}"]
            y = h + jnp.tanh(h @ one[kernel]) @ one[out] + one[bias]
            c = y - y.mean(-1, keepdims=True)
            h = c / jnp.sqrt((c * c).mean(-1, keepdims=True) + 1e-5) * one[size] + one[shift]
        return h

    return lambda: (params, apply)


NAMES = ("table", "place", "shift", "size", "kernel", "out", "bias")


def _proved(names: tuple[str, ...], fault: str) -> Any:
    holders = {"torch": {"Model": Trainer}, "jax": {"Model": _port(names, fault)}}
    batch = {"batch": lambda step: {"x": np.arange(8).reshape(2, 4) % TOKENS}}
    return prove_port(
        torch=holders["torch"] | batch, jax=holders["jax"] | batch, inputs=[f"i[2,4]<{TOKENS}"], until="forward",
        steps=2,
    )  # fmt: skip


def test_one_change_makes_them_equal() -> None:
    proof = _proved(("g", "f", "e", "d", "c", "b", "a"), "scale")
    assert proof.verdict == "broken"
    assert "mul" in proof.cause or "2.5" in proof.cause, proof.cause


def test_the_right_one_holds() -> None:
    assert _proved(NAMES, "").verdict == "holds"


def test_what_no_change_makes_equal_is_not_judged(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nearest_maps, "model_program_cause", lambda pairing: "")
    proof = _proved(NAMES, "scale")
    assert proof.verdict == "inconclusive", "a likely map alone proves nothing"
    assert not proof.cause
