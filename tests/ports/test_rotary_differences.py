"""Rotaries that turn otherwise, variances over n - 1, and conditions that a port has not: told by values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

from parity.checks.programs.rotaries import _Rotary, rotary_difference
from tests.support.programs import said_of, traced

Function = Callable[..., Any]


def _said(trainer: Function, port: Function, *shapes: tuple[int, ...]) -> str:
    draws = [[np.random.default_rng((7, at, n)).standard_normal(s) for n, s in enumerate(shapes)] for at in range(3)]
    return said_of(trainer, port, draws)


def _turned(q: Any, k: Any) -> Any:
    """Return attention of q and k, [batch, heads, places, 8], turned as Llama turns them."""
    inverse = 1.0 / 10000.0 ** (torch.arange(0, 8, 2, dtype=torch.float64) / 8)
    angle = torch.outer(torch.arange(5, dtype=torch.float64), inverse).repeat(1, 2)
    half = lambda x: torch.cat((-x[..., 4:], x[..., :4]), -1)  # noqa: E731
    q, k = (x * angle.cos() + half(x) * angle.sin() for x in (q, k))
    return (q @ k.transpose(-1, -2)).softmax(-1)


def _partly(width: int, *, last: bool = False, neighbours: bool = False) -> Function:
    """Return a port in another layout that turns some numbers of a head alone."""

    def rotary(x: Any) -> Any:
        inverse = 1.0 / 10000.0 ** (jnp.arange(0, width, 2) / width)
        angle = (jnp.arange(5)[:, None] * inverse)[:, None]
        rest, part = (x[..., : 8 - width], x[..., 8 - width :]) if last else (x[..., width:], x[..., :width])
        a, b = (part[..., ::2], part[..., 1::2]) if neighbours else jnp.split(part, 2, -1)
        one, two = a * jnp.cos(angle) - b * jnp.sin(angle), b * jnp.cos(angle) + a * jnp.sin(angle)
        made = jnp.stack([one, two], -1).reshape(part.shape) if neighbours else jnp.concatenate([one, two], -1)
        return jnp.concatenate([rest, made] if last else [made, rest], -1)

    def port(q: Any, k: Any) -> Any:
        q, k = (rotary(x.transpose(0, 2, 1, 3)) for x in (q, k))
        return jax.nn.softmax(jnp.einsum("bqhd,bkhd->bhqk", q, k))

    return port


@pytest.mark.parametrize(
    ("port", "said"),
    [
        (_partly(4), "the numbers 0 to 3 of the 8 of a head, in pairs of numbers 2 apart, by angles of 1, 0.01 from"),
        (_partly(4, last=True), "the numbers 4 to 7 of the 8 of a head, in pairs of numbers 2 apart"),
        (_partly(6, neighbours=True), "the numbers 0 to 5 of the 8 of a head, in pairs of neighbours"),
    ],
)
def test_a_rotary_on_a_part_of_a_head_is_named(port: Function, said: str) -> None:
    found = _said(_turned, port, (2, 3, 5, 8), (2, 3, 5, 8))
    first = (
        "all 8 numbers of a head, in pairs of numbers 4 apart, by angles of 1, 0.1, 0.01, 0.001 from place to place"
    )
    assert found.startswith(f"rotary: {first} here"), found
    assert f"{said}" in found.partition(" here")[2], found


@pytest.mark.parametrize("name", ["var_mean", "std"])
def test_a_variance_over_one_less_is_named_where_several_norms_have_other_counts(name: str) -> None:
    def norm(x: Any) -> Any:
        if name == "std":
            return (x - x.mean(-1, keepdim=True)) / (x.std(-1, keepdim=True) + 1e-5)
        variance, mean = torch.var_mean(x, dim=-1, keepdim=True)
        return (x - mean) * torch.rsqrt(variance + 1e-5)

    def trainer(x: Any) -> Any:
        return torch.exp(norm(torch.tanh(norm(x)).view(2, 4, 3)))

    def normed(x: Any) -> Any:
        centred = x - x.mean(-1, keepdims=True)
        variance = (centred**2).mean(-1, keepdims=True)
        return centred / (jnp.sqrt(variance) + 1e-5) if name == "std" else centred * jax.lax.rsqrt(variance + 1e-5)

    said = _said(trainer, lambda x: jnp.exp(normed(jnp.tanh(normed(x)).reshape(2, 4, 3))), (4, 6))
    assert said.startswith(f"setting: {name} with the divisor n - 1 here (test_rotary_differences.py:"), said
    assert "n there" in said


def test_a_condition_that_a_port_has_not_is_named_and_not_what_keeps_it_from_acting() -> None:
    def trainer(x: Any, s: Any) -> Any:
        counted = (s[:, 1:] > 0) & ((s[:, 1:] > 1) == (s[:, :-1] > 1))
        return (torch.sin(x) * counted).sum()

    def port(x: Any, s: Any) -> Any:
        return (jnp.sin(x) * (s[:, 1:] > 0)).sum()

    said = _said(trainer, port, (3, 7), (3, 8))
    assert said.startswith("mask: "), said
    assert "set everywhere there" in said, said


def test_first_places_that_are_one_do_not_hide_the_angles() -> None:
    """As of documents that are packed: the first two tokens are both at place 0."""
    turns = np.exp(1j * np.array([0.0, 0.0, 1.0, 2.0])[:, None] * np.array([1.0, 0.1]))
    rotary = _Rotary(((0, 2), (1, 3)), 1, turns, 0, (0, 0), (2, 4, 3, 4))
    assert (
        rotary.text == "all 4 numbers of a head, in pairs of numbers 2 apart, by angles of 1, 0.1 from place to place"
    )


def test_heads_that_are_counted_as_places_are_told_by_their_axis() -> None:
    """Queries have more heads than keys, so that both are turned by other angles."""

    def port(q: Any, k: Any, *, of: int = 2) -> Any:
        def rotary(x: Any) -> Any:
            inverse = 1.0 / 10000.0 ** (jnp.arange(0, 8, 2) / 8)
            angle = jnp.expand_dims(jnp.arange(x.shape[of])[:, None] * inverse, 2 - of)
            a, b = jnp.split(x, 2, -1)
            return jnp.concatenate(
                [a * jnp.cos(angle) - b * jnp.sin(angle), b * jnp.cos(angle) + a * jnp.sin(angle)], -1
            )

        q, k = (rotary(x.transpose(0, 2, 1, 3)) for x in (q, k))
        k = jnp.repeat(k, 2, 2)
        return jax.nn.softmax(jnp.einsum("bqhd,bkhd->bhqk", q, k))

    def trainer(q: Any, k: Any) -> Any:
        inverse = 1.0 / 10000.0 ** (torch.arange(0, 8, 2, dtype=torch.float64) / 8)
        angle = torch.outer(torch.arange(5, dtype=torch.float64), inverse).repeat(1, 2)
        half = lambda x: torch.cat((-x[..., 4:], x[..., :4]), -1)  # noqa: E731
        q, k = (x * angle.cos() + half(x) * angle.sin() for x in (q, k))
        return (q @ k.repeat_interleave(2, 1).transpose(-1, -2)).softmax(-1)

    shapes = (2, 4, 5, 8), (2, 2, 5, 8)
    draws = [[np.random.default_rng((7, at, n)).standard_normal(s) for n, s in enumerate(shapes)] for at in range(3)]
    found = rotary_difference(*traced(trainer, port, draws), None, 10.0)
    assert found is not None
    assert found.first.endswith("places counted along axis 2 of [2, 4, 5, 8]"), found.first
    assert found.second.endswith("places counted along axis 2 of [2, 5, 4, 8]"), found.second
    assert rotary_difference(*traced(trainer, lambda q, k: port(q, k, of=1), draws), None, 10.0) is None
