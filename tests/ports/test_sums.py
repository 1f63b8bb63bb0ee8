"""Leaves of one sum, tables of the shape of biases, leaves that no output can follow: a port goes on with them."""

from __future__ import annotations

from collections import Counter
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from torch import nn

from parity.checks.models import map_models
from parity.checks.models.plan import cut_plans
from parity.checks.proving import prove_port
from tests.ports.corpus import small

WIDE = 4


class Cell(nn.Module):
    """A gated layer with two biases, as recurrent layers have, and a table of as many rows as there are gates."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(3, 4 * WIDE))
        self.ih, self.hh = nn.Parameter(torch.randn(4 * WIDE)), nn.Parameter(torch.randn(4 * WIDE))
        self.table = nn.Parameter(torch.randn(WIDE, WIDE))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        i, f, g, o = (x @ self.weight + self.ih + self.hh).chunk(4, -1)
        return (torch.sigmoid(i) * torch.tanh(g) + torch.sigmoid(f) * torch.tanh(o)) @ self.table


def cell(turned: bool = False) -> Any:
    key = jax.random.split(jax.random.key(0), 4)
    shapes = {"w": (3, 4, WIDE), "b": (4, WIDE), "b2": (4, WIDE), "table": (WIDE, WIDE)}
    params = {name: jax.random.normal(one, shape) for (name, shape), one in zip(shapes.items(), key, strict=True)}

    def run(p: Any, x: jax.Array) -> jax.Array:
        i, f, g, o = jnp.moveaxis(jnp.einsum("bi,igh->bgh", x, p["w"]) + p["b"] + p["b2"], 1, 0)
        table = p["table"].T if turned else p["table"]
        return (jax.nn.sigmoid(i) * jnp.tanh(g) + jax.nn.sigmoid(f) * jnp.tanh(o)) @ table

    return params, run


def test_biases_of_gates_and_a_table_of_their_shape_are_told_apart() -> None:
    """Rows of a sum stay unsure and are no rules; the proof is under one pairing, as any computes the same."""
    found = map_models(torch=Cell, jax=cell, inputs="f[5,3]")
    assert found.found is not None
    assert found.proof is not None
    rows = {row.first[0]: row for row in found.found.rows}
    assert {name for name, row in rows.items() if row.sure} == {"weight", "table"}
    assert rows["table"].second == ("table",)
    assert all("any pairing of them computes the same" in rows[name].why for name in ("ih", "hh"))
    assert found.proof.verdict == "holds"
    assert not {"ih", "hh"} & {leaf for rule in found.rules for leaf in rule.source}


def test_a_table_that_is_turned_is_not_proven() -> None:
    found = map_models(torch=Cell, jax=lambda: cell(turned=True), inputs="f[5,3]")
    assert found.verdict != "holds"


SUMS = {
    "two products": lambda a, b, c, d: a * b + c * d,
    "a ring of products": lambda a, b, c, d: a * b + b * c + c * d + d * a,
    "a sum": lambda a, b, c, d: a + b + c + d,
}
"""Functions of four vectors whose gradients are equal at equal values; of the last alone any pairing is the same."""


@pytest.mark.parametrize("name", SUMS)
def test_any_pairing_is_said_of_leaves_alone_that_may_change_places(name: str) -> None:
    combine = SUMS[name]

    class Four(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.parts = nn.ParameterList([torch.randn(3) for _ in range(4)])

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.tanh(x * combine(*self.parts))

    def port() -> Any:
        params = {word: jax.random.normal(jax.random.key(at), (3,)) for at, word in enumerate("abcd")}
        return params, lambda p, x: jnp.tanh(x * combine(*(p[word] for word in "abcd")))

    found = map_models(torch=Four, jax=port, inputs="f[5,3]")
    assert found.found is not None
    rows = found.found.rows
    assert not any(row.sure for row in rows)
    assert all(("any pairing of them computes the same" in row.why) is (name == "a sum") for row in rows)


def test_axes_are_made_one_in_both_models_only_where_less_is_left_over() -> None:
    first = Counter({("parameter", (16,)): 2, ("parameter", (4, 4)): 1})
    second = Counter({("parameter", (4, 4)): 3})
    [plan, *_] = cut_plans(first, second)
    assert plan.left == 0
    assert [(4, 4) in ways for ways in (plan.first, plan.second)] == [True, True]
    alike = Counter({("parameter", (4, 4)): 2, ("parameter", (4,)): 1})
    assert cut_plans(alike, alike)[0].first == {}


def trainers(model: Any, port: Any, spare: float = 0.0) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return a trainer of a model, and one of its port."""
    rate = 0.1

    def batch(step: int) -> dict[str, np.ndarray[Any, Any]]:
        rng = np.random.default_rng(step)
        return {
            "x": rng.standard_normal((4, 3)).astype(np.float32),
            "y": rng.standard_normal((4, 2)).astype(np.float32),
        }

    def loss(module: Any, b: Any) -> Any:
        return ((module(torch.as_tensor(b["x"])) - torch.as_tensor(b["y"])) ** 2).mean()

    def step(state: Any, b: Any) -> Any:
        value = loss(state["model"], b)
        state["optimizer"].zero_grad()
        value.backward()
        state["optimizer"].step()
        return state, value.detach()

    def start(module: Any) -> Any:
        return {"model": module, "optimizer": torch.optim.SGD(module.parameters(), rate)}

    def jax_loss(given: Any, b: Any) -> Any:
        params, run = given
        return ((run(params, b["x"]) - b["y"]) ** 2).mean()

    def jax_step(state: Any, b: Any) -> Any:
        value, grads = jax.value_and_grad(lambda p: jax_loss((p, state["run"]), b))(state["params"])
        return {**state, "params": jax.tree.map(lambda p, g: p - (rate + spare) * g, state["params"], grads)}, value

    def jax_start(given: Any) -> Any:
        return {"params": given[0], "run": given[1]}

    first = {"Model": model, "batch": batch, "loss": loss, "start": start, "step": step}
    second = {"Model": port, "batch": batch, "loss": jax_loss, "start": jax_start, "step": jax_step}
    return first, second


@pytest.mark.parametrize(("spare", "verdict"), [(0.0, "holds"), (0.01, "broken")])
def test_a_module_that_no_output_can_follow_and_leaves_of_a_sum_hide_no_fault(spare: float, verdict: str) -> None:
    class Model(small.Twice):
        def __init__(self) -> None:
            super().__init__()
            self.spare = nn.Linear(5, 5)

    def port() -> Any:
        params, run = small.twice()
        key = jax.random.split(jax.random.key(1), 2)
        drawn = {name: jax.random.normal(one, (3, 4)) for name, one in zip("ab", key, strict=True)}
        return {**params, **drawn, "spare": {"w": jnp.ones((5, 5)), "b": jnp.ones(5)}}, run

    first, second = trainers(Model, port, spare)
    found = prove_port(torch=first, jax=second, inputs="f[4,3]", steps=3, until="steps")
    assert found.verdict == verdict, found.text()
    if verdict == "holds":
        assert "no output can follow spare.bias, spare.weight, whatever the values" in found.text()
    else:
        assert "part at update" in found.text(), found.text()


class Experts(nn.Module):
    """Of three experts these inputs reach two: the third is read, and nothing says that it is right."""

    def __init__(self) -> None:
        super().__init__()
        self.experts = nn.ModuleList([nn.Linear(3, 2) for _ in range(3)])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        chosen = (x.abs().sum(-1) > 1.0).long() + 2 * (x.sum(-1) > 1e6).long()
        return torch.stack([one(x) for one in self.experts], 1)[torch.arange(len(x)), chosen.clamp(max=2)]


def experts() -> Any:
    key = jax.random.split(jax.random.key(2), 6)
    params = [{"w": jax.random.normal(key[i], (3, 2)), "b": jax.random.normal(key[i + 3], (2,))} for i in range(3)]

    def run(p: Any, x: jax.Array) -> jax.Array:
        chosen = (jnp.abs(x).sum(-1) > 1.0).astype(int) + 2 * (x.sum(-1) > 1e6).astype(int)
        return jnp.stack([x @ one["w"] + one["b"] for one in p], 1)[jnp.arange(len(x)), jnp.minimum(chosen, 2)]

    return params, run


def test_what_these_inputs_do_not_reach_but_others_could_is_never_called_equal() -> None:
    first, second = trainers(Experts, experts)
    found = prove_port(torch=first, jax=second, inputs="f[4,3]", steps=2, until="steps")
    assert found.verdict == "inconclusive", found.text()
    assert "whatever the values" not in found.text()
