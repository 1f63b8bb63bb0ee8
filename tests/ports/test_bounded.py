"""A bound that a change keeps from acting is told as left out, and not as the value that goes into it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import torch
from torch.nn import functional as F

from jax_side.probes.programs import JaxProgram
from parity.checks.programs import explain
from torch_side.probes.programs import TorchProgram

_WIDE = np.random.default_rng(3).standard_normal((4, 3))
_DRAWS = [[np.random.default_rng([seed, n]).standard_normal((5, 4)) for n in range(3)] for seed in (1, 2, 3)]


def _trainer(draw: list[Any]) -> Any:
    a, p, n = (F.normalize(torch.from_numpy(x) @ torch.from_numpy(_WIDE), dim=-1) for x in draw)
    near = torch.minimum((a - n).square().sum(-1), (p - n).square().sum(-1))
    return F.relu((a - p).square().sum(-1) - near + 0.6)


def _port(draw: list[Any], far: Callable[[Any, Any, Any], Any]) -> Any:
    made = [x @ _WIDE for x in draw]
    a, p, n = (x / jnp.maximum(jnp.linalg.norm(x, axis=-1, keepdims=True), 1e-12) for x in made)
    return jax.nn.relu(((a - p) ** 2).sum(-1) - far(a, p, n) + 0.6)


def _said(far: Callable[[Any, Any, Any], Any]) -> str:
    here = [TorchProgram(lambda draw=draw: lambda: _trainer(draw)) for draw in _DRAWS]  # type: ignore[misc]
    with jax.enable_x64(True):
        there = [JaxProgram(lambda *x: [_port(list(x), far)], *map(jnp.asarray, draw)) for draw in _DRAWS]
    return ", or ".join(one.text for one in explain(here, there))


def test_a_minimum_that_is_left_out_is_told_as_that() -> None:
    """Distances between vectors that are not normalised are larger everywhere, and the minimum never acts."""
    said = _said(lambda a, p, n: ((a - n) ** 2).sum(-1))
    assert said.startswith("left out: minimum is applied here"), said
    assert "value taken" not in said


def test_a_value_that_goes_into_a_bound_which_acts_is_told_itself() -> None:
    said = _said(lambda a, p, n: jnp.minimum(((a - n) ** 2).sum(-1), ((p - a) ** 2).sum(-1)))
    assert "left out" not in said, said
    assert "value" in said
