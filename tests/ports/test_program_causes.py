"""Causes by one changed operation: a fault is planted in a plain function, and the change that heals it is named."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from torch.nn import functional as F

from jax_side.probes.programs import JaxProgram
from parity.checks.programs import explain
from parity.contract import OperationEdit
from torch_side.probes.programs import TorchProgram

_RNG = np.random.default_rng(5)
_WIDE, _NARROW = _RNG.standard_normal((6, 8)), _RNG.standard_normal((8, 4))
_INPUTS = [np.random.default_rng(seed).standard_normal((5, 6)) for seed in (1, 2)]


def _trainer(x: Any) -> Any:
    wide, narrow = torch.from_numpy(_WIDE), torch.from_numpy(_NARROW)
    h = F.hardswish(x @ wide) * 0.5
    a, b = h.chunk(2, -1)
    y = torch.cat([a, b], -1) @ narrow
    return (y - y.mean(0)) / (y.var(0, unbiased=False) + 1e-3).sqrt()


def _port(x: Any, faults: str) -> Any:
    fault = faults.split("+")
    h = x @ _WIDE
    h = jax.nn.silu(h) if "activation" in fault else h * jnp.clip(h + 3.0, 0.0, 6.0) / 6.0
    h = h * (0.3 if "number" in fault else 0.5)
    a, b = jnp.split(h, 2, -1)
    if "order" in fault:
        a, b = b, a
    y = jnp.concatenate([a, b], -1)
    y = (jnp.tanh(y) if "added" in fault else y) @ _NARROW
    c = y - y.mean(0)
    v = (c * c).sum(0) / (4.0 if "variance" in fault else 5.0)
    epsilon = 0.02 if "epsilon" in fault else 1e-3
    return c / jnp.sqrt(v + epsilon) * (2.0 if "factor" in fault else 1.0)


def _explained(fault: str) -> str:
    here = [TorchProgram(lambda x=x: lambda: _trainer(torch.from_numpy(x))) for x in _INPUTS]
    with jax.enable_x64(True):
        there = [JaxProgram(lambda x: [_port(x, fault)], jnp.asarray(x)) for x in _INPUTS]
    return ", or ".join(one.text for one in explain(here, there))


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        ("activation", ("hardswish here", "SiLU there")),
        ("number", ("0.3 there", "0.5 here")),
        ("order", ("order", "[1, 0]")),
        ("added", ("tanh",)),
        ("variance", ("unbiased False here", "True there")),
        ("epsilon", ("0.001 here", "0.02 there")),
        ("factor", ("mul is applied there",)),
    ],
)
def test_the_change_is_named(fault: str, words: tuple[str, ...]) -> None:
    said = _explained(fault)
    assert all(word in said for word in words), said
    assert ".py:" in said, "the line is told"


@pytest.mark.parametrize(
    ("faults", "words"),
    [
        ("activation+epsilon", ("hardswish here", "SiLU there", "0.001 here", "0.02 there")),
        ("number+variance", ("0.3 there", "0.5 here", "unbiased False here", "True there")),
        ("order+number", ("[1, 0]", "0.3 there", "0.5 here")),
    ],
)
def test_two_changes_are_named_together(faults: str, words: tuple[str, ...]) -> None:
    """None of the two alone makes anything equal that is returned."""
    said = _explained(faults)
    assert all(word in said for word in words), said
    assert "with both changed all values are equal" in said


def _both(trainer: Any, port: Any) -> str:
    here = [TorchProgram(lambda x=x: lambda: trainer(torch.from_numpy(x))) for x in _INPUTS]
    with jax.enable_x64(True):
        there = [JaxProgram(lambda x: [port(x)], jnp.asarray(x)) for x in _INPUTS]
    return ", or ".join(one.text for one in explain(here, there))


def test_a_mask_is_filled_with_another_number() -> None:
    def trainer(x: torch.Tensor) -> torch.Tensor:
        return (x @ torch.from_numpy(_WIDE)).masked_fill(x.sum(1, keepdim=True) > 0, -torch.inf).softmax(0)

    def port(x: jax.Array) -> jax.Array:
        return jax.nn.softmax(jnp.where(x.sum(1, keepdims=True) > 0, -1.0, x @ _WIDE), 0)

    assert "-inf here" in _both(trainer, port)
    assert "-1 there" in _both(trainer, port)


def test_a_gate_is_taken_before_the_product_of_matrices() -> None:
    square, bias = _WIDE[:, :6], np.arange(6.0)

    def trainer(x: torch.Tensor) -> torch.Tensor:
        return torch.tanh(torch.sigmoid(x[:, :1] + x) * (x @ torch.from_numpy(square) + torch.from_numpy(bias)))

    def port(x: jax.Array) -> jax.Array:
        return jnp.tanh((jax.nn.sigmoid(x[:, :1] + x) * x) @ square + bias)

    said = _both(trainer, port)
    assert "order: after dot_general and add here, mul before dot_general and add there" in said


def test_a_scale_is_taken_before_the_bias() -> None:
    scale, bias = np.array(1.7), np.arange(8.0)

    def trainer(x: torch.Tensor) -> torch.Tensor:
        return torch.tanh(x @ torch.from_numpy(_WIDE) * torch.from_numpy(scale) + torch.from_numpy(bias))

    def port(x: jax.Array) -> jax.Array:
        return jnp.tanh((x @ _WIDE + bias) * scale)

    said = _both(trainer, port)
    assert "order: " in said
    assert "before" in said


def test_one_place_is_taken_in_place_of_a_mean() -> None:
    said = _both(lambda x: torch.tanh(x).mean(0) ** 3, lambda x: jnp.tanh(x)[0] ** 3)
    assert "reduction: mean over axis 0 here" in said
    assert "there" in said


def test_nothing_is_said_of_equal_programs_and_of_two_faults() -> None:
    """What no single change explains has no cause."""
    assert _explained("") == ""
    here = [
        TorchProgram(lambda x=x: lambda: torch.tanh(torch.from_numpy(x)) @ torch.from_numpy(_WIDE)) for x in _INPUTS
    ]
    with jax.enable_x64(True):
        there = [JaxProgram(lambda x: [jnp.sin(x) ** 3 @ (_WIDE + 0.1) + 1.5], jnp.asarray(x)) for x in _INPUTS]
    assert explain(here, there) == []


def test_a_program_computes_what_its_function_does() -> None:
    """Equations by NumPy and by JAX alike, loops turn by turn."""

    def function(x: jax.Array) -> list[jax.Array]:
        def turn(carry: jax.Array, row: jax.Array) -> tuple[jax.Array, jax.Array]:
            carry = jax.nn.gelu(carry + row) + jnp.cumsum(row)
            return carry, carry.max() * row

        last, rows = jax.lax.scan(turn, x[0], x, reverse=True)
        return [last, jax.nn.softmax(rows), jnp.where(rows > 0, rows, jnp.sort(rows)), x.T @ rows]

    with jax.enable_x64(True):
        given = jnp.asarray(_INPUTS[0])
        program = JaxProgram(function, given)
        for made, wanted in zip(program.outputs, function(given), strict=True):
            np.testing.assert_allclose(made, np.asarray(wanted), rtol=1e-12, atol=1e-12)
    again = program.run({})
    assert again is not None
    assert all(np.array_equal(a, b) for a, b in zip(again, program.outputs, strict=True))


def test_a_changed_program_leaves_gradients_on() -> None:
    """The user's own `no_grad` is left as it ends, whatever is changed inside it."""

    def call() -> torch.Tensor:
        with torch.no_grad():
            x = torch.sin(torch.from_numpy(_INPUTS[0])) * 2.0
        return x.sum() + 1.0

    program = TorchProgram(lambda: call)
    for at, one in enumerate(program.operations):
        for edit in (OperationEdit(numbers={"0": 3.0, "1": 3.0}), OperationEdit(settings={"no": 1})):
            program.run({at: edit})
            assert torch.is_grad_enabled(), one.kind
