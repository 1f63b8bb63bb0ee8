"""A mask that a port does not apply between two streams is named where one helper attends at all places."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

from tests.support.programs import said_of

_PLACES, _WIDTH = 4, 3
_HERE = np.arange(_PLACES) < np.array([4, 3])[:, None]
_THERE = np.arange(_PLACES) < np.array([2, 4])[:, None]
_DRAWS = [
    [*(np.random.default_rng((seed, n)).standard_normal(shape) for n, shape in enumerate(
        ((2, _PLACES, _WIDTH), (2, _PLACES, _WIDTH), (4, 3, _WIDTH, _WIDTH)))), _HERE, _THERE]
    for seed in range(2)
]  # fmt: skip
"""Two streams, weights, and what of both is no padding."""

Attention = Callable[[Any, Any, Any, Any], Any]


def _streams(attend: Attention, held: tuple[Any, ...], own: Any, source: Any, cross: Any) -> Any:
    """Return what one stream makes of another, which attends to itself before; each twice."""
    x, y, w = held
    y = y + attend(y, y, w[0], source)
    for layer in (1, 2):
        x = x + attend(x, x, w[3], own)
        x = x + attend(x, y, w[layer], cross)
    return x


def _filled(x: Any, y: Any, w: Any, mask: Any) -> Any:
    scores = ((x @ w[0]) @ (y @ w[1]).transpose(-1, -2)).masked_fill(mask == 0, float("-inf"))
    return scores.softmax(-1) @ (y @ w[2])


def _called(x: Any, y: Any, w: Any, mask: Any) -> Any:
    return torch.nn.functional.scaled_dot_product_attention(x @ w[0], y @ w[1], y @ w[2], attn_mask=mask, scale=1.0)


def _trainer(attend: Attention, *held: Any) -> Any:
    own = held[3][:, None] & torch.ones(_PLACES, _PLACES, dtype=torch.bool).tril()
    return _streams(attend, held[:3], own, held[4][:, None], held[4][:, None])


def _attend(x: Any, y: Any, w: Any, mask: Any) -> Any:
    scores = (x @ w[0]) @ (y @ w[1]).swapaxes(-1, -2)
    if mask is not None:
        scores = jnp.where(mask, scores, jnp.finfo(jnp.float32).min)
    return jax.nn.softmax(scores, -1) @ (y @ w[2])


def _port(fault: str, *held: Any) -> Any:
    own, source = held[3][:, None] & jnp.tril(jnp.ones((_PLACES, _PLACES), bool)), held[4][:, None]
    cross = {"ones": jnp.ones((2, _PLACES, _PLACES), bool), "none": None}.get(fault, source)
    x = _streams(_attend, held[:3], own, source, cross)
    return jax.nn.relu(x) if fault == "relu" else x


@pytest.mark.parametrize("fault", ["ones", "none"])
@pytest.mark.parametrize("attend", [_filled, _called])
def test_a_mask_that_is_not_applied_between_streams_is_named(attend: Attention, fault: str) -> None:
    said = said_of(lambda *held: _trainer(attend, *held), lambda *held: _port(fault, *held), _DRAWS)
    assert said.startswith("mask: "), said
    assert "(number 3, 5 of the 5 places that hide something) here (test_unhidden.py:" in said
    assert "nothing is hidden there" in said


def test_a_mask_that_the_port_alone_applies_is_told_from_the_other_side() -> None:
    def trainer(*held: Any) -> Any:
        own = held[3][:, None] & torch.ones(_PLACES, _PLACES, dtype=torch.bool).tril()
        return _streams(_filled, held[:3], own, held[4][:, None], torch.ones(2, 1, _PLACES, dtype=torch.bool))

    said = said_of(trainer, lambda *held: _port("", *held), _DRAWS)
    assert said.startswith("mask: nothing is hidden here, "), said


def test_equal_masks_in_other_words_and_other_faults_are_left_as_they_are() -> None:
    """What fills in minus infinity here and the least number there hides the same."""
    assert said_of(lambda *held: _trainer(_filled, *held), lambda *held: _port("", *held), _DRAWS) == ""
    said = said_of(lambda *held: torch.tanh(_trainer(_called, *held)), lambda *held: _port("relu", *held), _DRAWS)
    assert said.startswith("activation: tanh here"), said
