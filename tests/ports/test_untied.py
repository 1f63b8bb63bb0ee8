"""A head that is tied in one model and a leaf of its own in the other is told as that, and no other leaf is."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import torch
from torch import nn

from parity.checks.models import ModelSource, open_subjects
from parity.checks.models.mapping import ModelMap, propose

WIDE, LAYERS, TOKENS = 4, 2, 7


class Tied(nn.Module):
    def __init__(self, own: bool = False) -> None:
        super().__init__()
        self.table = nn.Embedding(TOKENS, WIDE)
        self.norms = nn.ParameterList(torch.ones(WIDE) for _ in range(LAYERS))
        self.maps = nn.ModuleList(nn.Linear(WIDE, WIDE, bias=False) for _ in range(LAYERS))
        self.head = nn.Linear(WIDE, TOKENS, bias=False) if own else None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = self.table(x)
        for norm, one in zip(self.norms, self.maps, strict=True):
            h = h + torch.tanh(one(norm * h))
        return nn.functional.linear(h, self.table.weight if self.head is None else self.head.weight)


def _found(*, here: bool, there: bool) -> ModelMap:
    """Return the map of a model and a port of stacked leaves, each with a head of its own or tied."""
    draws = np.random.default_rng(5)
    shapes = {"d": (TOKENS, WIDE), "a": (LAYERS, WIDE), "b": (LAYERS, WIDE, WIDE)}
    shapes |= {"c": (WIDE, TOKENS)} if there else {}
    params = {name: draws.standard_normal(shape) for name, shape in shapes.items()}

    def apply(p: Any, x: Any) -> Any:
        h = jax.lax.scan(lambda h, w: (h + jnp.tanh((w[0] * h) @ w[1]), None), p["d"][x], (p["a"], p["b"]))[0]
        return h @ (p["c"] if there else p["d"].T)

    sources = (
        ModelSource("--torch", "Tied", lambda: Tied(here)),
        ModelSource("--jax", "port", lambda: (params, apply)),
    )
    return propose(open_subjects(*sources, [f"i[2,3]<{TOKENS}"]))


def test_a_head_of_its_own_beside_a_tied_one_is_told_as_that() -> None:
    [(what, why)] = _found(here=False, there=True).alone
    assert what == "port: c"
    assert why.startswith("tied in Tied, which takes table.weight at 2 places (embedding, linear)")


def test_of_a_port_that_ties_what_the_model_does_not_the_head_is_told() -> None:
    [(what, why)] = _found(here=True, there=False).alone
    assert what == "Tied: head.weight"
    assert why.startswith("tied in port, which takes d at 2 places")


def test_models_of_as_many_leaves_have_none_alone() -> None:
    assert _found(here=True, there=True).alone == ()
    assert _found(here=False, there=False).alone == ()
