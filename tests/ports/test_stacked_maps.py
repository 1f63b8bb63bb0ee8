"""Layers in a stack that a loop takes: behind a fault they are paired layer by layer, in the order of use."""

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
from parity.checks.models.used import uses_of

WIDE = 5


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.c, self.d = (nn.Linear(WIDE, WIDE, bias=False) for _ in range(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.c(torch.relu(self.a(x)).square() * torch.tanh(self.b(x)))
        return torch.sin(self.d(x))


class Layers(nn.Module):
    """Two layers of four matrices, all of one shape, and a matrix more."""

    def __init__(self, out: int) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.blocks = nn.ModuleList([Block(), Block()])
        self.last = nn.Linear(WIDE, out, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for one in self.blocks:
            x = one(x)
        return self.last(x)


def _port(names: str, out: int = 3, *, fault: bool = True) -> Any:
    """Return a port whose stacks are listed by their names; with its fault what ReLU gives is not squared."""
    a, b, c, d, last = names

    def apply(params: Any, x: Any) -> Any:
        def one(x: Any, w: Any) -> Any:
            high = jax.nn.relu(x @ w[a])
            x = x + ((high if fault else high * high) * jnp.tanh(x @ w[b])) @ w[c]
            return jnp.sin(x @ w[d]), None

        return jax.lax.scan(one, x, params["rest"])[0] @ params[last]

    def make() -> Any:
        draws = np.random.default_rng(4)
        stacks = {name: jnp.asarray(draws.standard_normal((2, WIDE, WIDE))) for name in (a, b, c, d)}
        return {"rest": stacks, last: jnp.asarray(draws.standard_normal((WIDE, out)))}, apply

    return make


@pytest.mark.parametrize("names", ["abcde", "zyxwv", "qvkog", "dacbe"])
@pytest.mark.parametrize("out", [3, WIDE])
def test_layers_are_paired_one_by_one(names: str, out: int) -> None:
    """Where all matrices are square, which way they lie is told by how much agrees as well."""
    sources = ModelSource("--torch", "Layers", lambda: Layers(out)), ModelSource("--jax", "port", _port(names, out))
    subjects = open_subjects(*sources, ["f[3,5]"])
    rules = nearer_rules(subjects, propose(subjects))
    assert rules is not None
    pairs = {rule.target[0]: rule.source for rule in rules}
    stacks = {f"rest.{name}": (f"blocks.*.{one}.weight",) for name, one in zip(names, "abcd", strict=False)}
    assert pairs == {**stacks, names[-1]: ("last.weight",)}


def test_a_stack_is_used_where_a_loop_takes_its_layers() -> None:
    """It was seen nowhere, and came last in the order in which it is listed."""
    subjects = open_subjects(
        ModelSource("--torch", "Layers", lambda: Layers(3)), ModelSource("--jax", "port", _port("zyxwv")), ["f[3,5]"]
    )
    model, inputs = subjects.both[1]
    draws = np.random.default_rng(5)
    values = {leaf: draws.standard_normal(one.shape) for leaf, one in model.leaves.items()}
    uses = uses_of(model, values, inputs)
    assert uses is not None
    assert sorted(uses, key=lambda leaf: uses[leaf].number) == ["rest.z", "rest.y", "rest.x", "rest.w", "v"]
