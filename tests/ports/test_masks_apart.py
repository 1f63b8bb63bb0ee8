"""Masks that two programs make otherwise: at which places they differ is told."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
import torch

from parity.checks.programs.masks import masks_apart
from tests.support.programs import said_of


def test_where_two_masks_differ_is_said_in_whatever_sense_they_are_kept() -> None:
    seen = np.tril(np.ones((2, 3, 3), bool))
    other = seen.copy()
    other[:, 0, 1] = True
    spread = np.broadcast_to(other[:, None], (2, 4, 3, 3))
    assert masks_apart(seen, spread) == "differs at [0, 0, 1] and 1 more places of [2, 3, 3], set there and not here"
    assert masks_apart(spread, seen).endswith("set here and not there")
    assert masks_apart(~seen[:, None], spread) == "differs at [0, 0, 1] and 1 more places of [2, 3, 3]"
    assert masks_apart(seen, seen) == masks_apart(seen, seen[:, :2]) == masks_apart(seen, seen.astype(float)) == ""


def test_a_mask_that_is_made_otherwise_says_where_it_differs() -> None:
    """Levels of a prefix and a suffix, as of a policy whose state may not see its actions."""
    levels = np.array([0, 0, 1, 1, 0])

    def trainer(x: Any) -> Any:
        level = torch.cumsum(torch.from_numpy(levels), 0)
        mask = level[None, :] <= level[:, None]
        return torch.tanh(x).masked_fill(~mask, -2.0).exp()

    def port(x: Any) -> Any:
        level = jnp.cumsum(jnp.asarray([0, 0, 1, 0, 0]))
        return jnp.exp(jnp.where(level[None, :] <= level[:, None], jnp.tanh(x), -2.0))

    draws = [[np.random.default_rng(seed).standard_normal((3, 5, 5))] for seed in range(3)]
    said = said_of(trainer, port, draws)
    assert said.startswith("mask: differs at [2, 3] and 1 more places of [5, 5]"), said
    assert "the numbers 0, 0, 1, 1, 0" in said
