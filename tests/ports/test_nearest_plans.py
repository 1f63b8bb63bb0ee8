"""Leaves that are fused and stacked, behind a fault that hides how they are cut: told by the order of their use."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from torch import nn

from parity.checks.models import ModelSource, nearer_rules, open_subjects
from parity.checks.models.mapping import propose
from parity.checks.models.subjects import Subjects

WIDE, HALF, LAYERS, TOKENS = 6, 3, 2, 11


class Layer(nn.Module):
    """Queries as wide as all, keys and values half as wide: of both projections two fit a square leaf, joined."""

    def __init__(self) -> None:
        super().__init__()
        self.q, self.o = (nn.Linear(WIDE, WIDE, bias=False) for _ in range(2))
        self.k, self.v = (nn.Linear(WIDE, HALF, bias=False) for _ in range(2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = self.q(x).unflatten(-1, (2, HALF)), self.k(x), self.v(x)
        weights = torch.softmax(torch.einsum("bqhd,bkd->bhqk", q, k), -1)
        return x + self.o(torch.einsum("bhqk,bkd->bqhd", weights, v).flatten(-2))


class Trainer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(TOKENS, WIDE)
        self.h = nn.ModuleList(Layer() for _ in range(LAYERS))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = self.table(x)
        for layer in self.h:
            h = layer(h)
        return h


def _subjects(names: tuple[str, str, str], scale: float) -> Subjects:
    """Return the trainer and a port of leaves that are joined and stacked, its embedding times a number."""
    table, joined, out = names
    draws = np.random.default_rng(5)
    shapes = {table: (TOKENS, WIDE), joined: (LAYERS, WIDE, WIDE + 2 * HALF), out: (LAYERS, WIDE, WIDE)}
    params = {name: draws.standard_normal(shape) for name, shape in shapes.items()}

    def apply(p: Any, x: Any) -> Any:
        def layer(h: Any, w: Any) -> Any:
            q, k, v = jnp.split(h @ w[0], [WIDE, WIDE + HALF], -1)
            q = q.reshape(*q.shape[:-1], 2, HALF)
            weights = jax.nn.softmax(jnp.einsum("bqhd,bkd->bhqk", q, k), -1)
            return h + jnp.einsum("bhqk,bkd->bqhd", weights, v).reshape(h.shape) @ w[1], None

        return jax.lax.scan(layer, scale * p[table][x], (p[joined], p[out]))[0]

    sources = ModelSource("--torch", "Trainer", Trainer), ModelSource("--jax", "port", lambda: (params, apply))
    return open_subjects(*sources, [f"i[2,4]<{TOKENS}"])


@pytest.mark.parametrize("names", [("table", "qkv", "o"), ("c", "b", "a"), ("c", "a", "b")])
def test_the_parts_of_fused_leaves_are_those_that_are_used_together(names: tuple[str, str, str]) -> None:
    subjects = _subjects(names, 3.0)
    found = propose(subjects)
    assert not found.agree
    assert found.unsure
    rules = nearer_rules(subjects, found)
    assert rules is not None
    pairs = {rule.target[0]: rule.source for rule in rules}
    assert pairs[names[1]] == ("h.*.q.weight", "h.*.k.weight", "h.*.v.weight")
    assert pairs[names[2]] == ("h.*.o.weight",)


def test_what_behaviour_tells_by_one_plan_asks_for_no_other() -> None:
    found = propose(_subjects(("c", "b", "a"), 1.0))
    assert found.agree
    assert not found.unsure
    assert found.matched is not None
    assert found.matched.others == ()
