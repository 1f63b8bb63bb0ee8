"""Of several operations alike on one line the words tell which one is meant."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import torch

from jax_side.probes.programs import JaxProgram
from parity.checks.programs import explain
from torch_side.probes.programs import TorchProgram

_INPUTS = [[np.random.default_rng((seed, at)).standard_normal((3, 4)) for at in range(3)] for seed in (1, 2)]


def _said(trainer: Callable[..., Any], port: Callable[..., Any]) -> str:
    here: list[Any] = [TorchProgram(lambda x=x: lambda: trainer(*map(torch.from_numpy, x))) for x in _INPUTS]  # type: ignore[misc]
    with jax.enable_x64(True):
        there: list[Any] = [JaxProgram(lambda *x: [port(*x)], *map(jnp.asarray, x)) for x in _INPUTS]
    return explain(here, there)[0].text


def _modulated(x: Any, scale: Any, shift: Any) -> Any:
    return torch.tanh(x) * (1.0 + scale) + shift


def test_the_sum_that_is_left_out_is_told_from_another_of_its_line() -> None:
    said = _said(_modulated, lambda x, scale, shift: jnp.tanh(x) * scale + shift)
    assert said.startswith("left out: add is applied here (test_parts_of_lines.py:"), said
    assert ", `1.0 + scale`), not there" in said


def test_so_it_is_where_the_port_is_changed() -> None:
    def port(x: Any, scale: Any, shift: Any) -> Any:
        return jnp.tanh(x) * (1.0 + jnp.exp(scale)) + jnp.exp(shift)

    said = _said(lambda x, scale, shift: torch.tanh(x) * (1.0 + torch.exp(scale)) + shift, port)
    assert ", `jnp.exp(shift)`)" in said, said


def test_a_line_with_one_of_them_is_told_by_its_place_alone() -> None:
    def trainer(x: Any, scale: Any, shift: Any) -> Any:
        y = torch.tanh(x) * scale
        return y + shift

    said = _said(trainer, lambda x, scale, shift: jnp.tanh(x) * scale - shift)
    assert "test_parts_of_lines.py:" in said, said
    assert "`" not in said


def test_what_vanishes_by_the_form_of_a_change_is_left_out() -> None:
    """A sum of what is taken less its mean is nothing: that is not what a penalty of the leaf's mean would be."""

    def port(x: Any, scale: Any, shift: Any) -> Any:
        return jnp.sin(x).sum() + 1e-2 * (jnp.abs(scale).sum() + jnp.abs(shift).sum())

    said = _said(lambda x, scale, shift: torch.sin(x).sum() + 1e-2 * torch.abs(scale).sum(), port)
    assert said.startswith("left out: not here, "), said
    assert "the larger" not in said
    assert "less its mean" not in said


def test_the_larger_of_two_that_is_not_always_the_same_one_is_named() -> None:
    said = _said(
        lambda x, scale, shift: torch.tanh(x) + shift, lambda x, scale, shift: jnp.maximum(jnp.tanh(x), shift)
    )
    assert said.startswith("arithmetic: "), said
    assert "the larger" in said


def test_a_quotient_that_is_missing_is_left_out_and_no_factor_before_it() -> None:
    """In a recurrence nothing is the product of queries and keys, which is where the two part first."""

    def trainer(q: Any, k: Any, v: Any) -> Any:
        at = torch.arange(3, dtype=q.dtype)
        decay = torch.where(at[:, None] >= at, 0.6 ** (at[:, None] - at).clamp(min=0), torch.zeros_like(q[:, :3]))
        return (q @ k.transpose(-1, -2) / 2.0 * decay) @ v

    def port(q: Any, k: Any, v: Any) -> Any:
        def row(at: int) -> Any:
            return sum(0.6 ** (at - before) * (q[at] @ k[before]) * v[before] for before in range(at + 1))

        return jnp.stack([row(at) for at in range(3)])

    said = _said(trainer, port)
    assert said.startswith("left out: div is applied here"), said
