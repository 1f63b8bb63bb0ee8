"""Leaves that behaviour left in two models that part: paired so that both do most alike, for causes."""

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

WIDE = 5


class Cells(nn.Module):
    """A GRU whose weights of inputs and of states are of one shape."""

    def __init__(self) -> None:
        super().__init__()
        self.cell = nn.GRU(WIDE, WIDE, batch_first=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.cell(x)[0]


def _port(names: tuple[str, str, str, str], *, fault: bool) -> Any:
    """Return parameters, listed by their names, and a GRU of them; with the bias of states outside the reset gate."""
    of_x, of_h, bias_x, bias_h = names

    def apply(params: Any, x: Any) -> Any:
        w = params["cell"]

        def turn(h: Any, xt: Any) -> Any:
            xr, xz, xn = jnp.split(xt @ w[of_x] + w[bias_x], 3, -1)
            hr, hz, hn = jnp.split(h @ w[of_h], 3, -1)
            br, bz, bn = jnp.split(w[bias_h], 3, -1)
            r, z = jax.nn.sigmoid(xr + hr + br), jax.nn.sigmoid(xz + hz + bz)
            n = jnp.tanh(xn + r * hn + bn) if fault else jnp.tanh(xn + r * (hn + bn))
            h = (1 - z) * n + z * h
            return h, h

        return jax.lax.scan(turn, jnp.zeros((x.shape[0], WIDE), x.dtype), x.swapaxes(0, 1))[1].swapaxes(0, 1)

    def make() -> Any:
        shapes = {of_x: (WIDE, 3 * WIDE), of_h: (WIDE, 3 * WIDE), bias_x: (3 * WIDE,), bias_h: (3 * WIDE,)}
        draws = np.random.default_rng(3)
        return {"cell": {name: jnp.asarray(draws.standard_normal(shape)) for name, shape in shapes.items()}}, apply

    return make


@pytest.mark.parametrize(
    "names",
    [("wx", "wh", "bx", "bh"), ("a", "b", "c", "d"), ("p", "q", "r", "s")],
)
def test_leaves_of_one_shape_are_paired_so_that_both_do_most_alike(names: tuple[str, str, str, str]) -> None:
    """The biases are one sum in the port: the order in which the weights lie is theirs too."""
    port = _port(names, fault=True)
    subjects = open_subjects(ModelSource("--torch", "Cells", Cells), ModelSource("--jax", "port", port), ["f[2,4,5]"])
    rules = nearer_rules(subjects, propose(subjects))
    assert rules is not None
    pairs = {rule.source[0].rpartition(".")[2]: rule.target[0].rpartition(".")[2] for rule in rules}
    assert pairs == dict(zip(("weight_ih_l0", "weight_hh_l0", "bias_ih_l0", "bias_hh_l0"), names, strict=True))


class Layered(nn.Module):
    """Two layers of leaves that have one shape each."""

    def __init__(self) -> None:
        super().__init__()
        self.outer = nn.ModuleList([nn.Linear(WIDE, 2 * WIDE) for _ in range(2)])
        self.inner = nn.ModuleList([nn.Linear(WIDE, WIDE) for _ in range(2)])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for outer, inner in zip(self.outer, self.inner, strict=True):
            value, gate = outer(x).chunk(2, -1)
            x = x + torch.tanh(inner(value)) * torch.sigmoid(gate)
        return x


def _layered(names: tuple[str, str, str, str, str, str], *, fault: bool) -> Any:
    """Return parameters whose layers are listed from the last to the first; with its fault value for gate."""
    first, second, wide, bias, square, shift = names

    def apply(params: Any, x: Any) -> Any:
        for layer in (params[first], params[second]):
            value, gate = jnp.split(x @ layer[wide] + layer[bias], 2, -1)
            value, gate = (gate, value) if fault else (value, gate)
            x = x + jnp.tanh(value @ layer[square] + layer[shift]) * jax.nn.sigmoid(gate)
        return x

    def make() -> Any:
        shapes = {shift: (WIDE,), square: (WIDE, WIDE), bias: (2 * WIDE,), wide: (WIDE, 2 * WIDE)}
        draws = np.random.default_rng(4)
        return {
            layer: {name: jnp.asarray(draws.standard_normal(shape)) for name, shape in shapes.items()}
            for layer in (second, first)
        }, apply

    return make


@pytest.mark.parametrize("names", [("z", "a", "w", "b", "v", "c"), ("one0", "one1", "p", "q", "r", "s")])
def test_leaves_behind_a_fault_are_paired_in_the_order_of_use(names: tuple[str, str, str, str, str, str]) -> None:
    """What they do behind it tells nothing, and a dictionary is listed by its letters."""
    port = _layered(names, fault=True)
    subjects = open_subjects(ModelSource("--torch", "L", Layered), ModelSource("--jax", "port", port), ["f[4,5]"])
    rules = nearer_rules(subjects, propose(subjects))
    assert rules is not None
    first, second, wide, bias, square, shift = names
    assert {rule.source[0]: rule.target[0] for rule in rules} == {
        f"{held}.{at}.{kind}": f"{layer}.{leaf}"
        for at, layer in enumerate((first, second))
        for held, kind, leaf in (("outer", "weight", wide), ("outer", "bias", bias), ("inner", "weight", square),
                                 ("inner", "bias", shift))
    }  # fmt: skip
    turned = {rule.source[0] for rule in rules if rule.transforms}
    assert turned == {f"{held}.{at}.weight" for held in ("outer", "inner") for at in (0, 1)}


def test_layers_of_equal_models_are_left_to_behaviour() -> None:
    port = _layered(("z", "a", "w", "b", "v", "c"), fault=False)
    subjects = open_subjects(ModelSource("--torch", "L", Layered), ModelSource("--jax", "port", port), ["f[4,5]"])
    assert nearer_rules(subjects, propose(subjects)) is None


def test_a_map_of_equal_models_is_left_to_behaviour() -> None:
    subjects = open_subjects(
        ModelSource("--torch", "Cells", Cells),
        ModelSource("--jax", "port", _port(("wx", "wh", "bx", "bh"), fault=False)),
        ["f[2,4,5]"],
    )
    assert nearer_rules(subjects, propose(subjects)) is None
