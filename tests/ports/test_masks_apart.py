"""Masks that two programs make otherwise: at which places they differ is told."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import torch

from jax_side.probes.programs import JaxProgram
from parity.checks.programs import explain
from parity.checks.programs.masks import masks_apart
from torch_side.probes.programs import TorchProgram


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

    draws = [np.random.default_rng(seed).standard_normal((3, 5, 5)) for seed in range(3)]
    here = [TorchProgram(lambda x=x: lambda: trainer(torch.from_numpy(x))) for x in draws]  # type: ignore[misc]
    with jax.enable_x64(True):
        there = [JaxProgram(lambda x: [port(x)], jnp.asarray(x)) for x in draws]
        found = explain(here, there)
    assert found[0].text.startswith("mask: differs at [2, 3] and 1 more places of [5, 5]"), found[0].text
    assert "the numbers 0, 0, 1, 1, 0" in found[0].text
