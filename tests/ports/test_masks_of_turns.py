"""A mask that layers take in turns the one way and the other, of which a port has one alone."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import torch

from jax_side.probes.programs import JaxProgram
from parity.checks.programs import explain
from torch_side.probes.programs import TorchProgram

_DRAWN = np.random.default_rng(0)
_W = _DRAWN.standard_normal((3, 4, 4))
_INPUTS = [_DRAWN.standard_normal((6, 4)) * size for size in (1.0, 0.4)]
_MASK = np.array([1.0, 0.0, 1.0, 0.0])


def _coupled(x: Any) -> Any:
    for at in range(3):
        m, w = torch.from_numpy(_MASK if at % 2 == 0 else 1 - _MASK), torch.from_numpy(_W[at])
        y = x * m
        shift = torch.tanh(y @ w) * (1 - m)
        x = y + (1 - m) * (x * 1.5 + shift)
    return x


def _port(masks: Any) -> Any:
    def apply(x: Any) -> Any:
        for w, m in zip(_W, masks, strict=True):
            y = x * m
            shift = jnp.tanh(y @ w) * (1 - m)
            x = y + (1 - m) * (x * 1.5 + shift)
        return x

    return apply


def _said(masks: Any) -> list[str]:
    first = [TorchProgram(lambda x=x: lambda: _coupled(torch.from_numpy(x))) for x in _INPUTS]  # type: ignore[misc]
    with jax.enable_x64(True):
        second = [JaxProgram(lambda x: [_port(masks)(x)], jnp.asarray(x)) for x in _INPUTS]
    return [one.text for one in explain(first, second)]


def test_the_mask_of_some_turns_is_named() -> None:
    said = _said([_MASK] * 3)
    assert said
    assert said[0].startswith("mask: "), said
    assert "the mask [4] that begins with 0, 1, 0, 1 as it is, at all 3 operations that take it here" in said[0], said
    assert "the other way round there" in said[0], said


def test_masks_that_are_exchanged_in_all_turns_are_no_matter_of_some() -> None:
    first, second = _coupled, _port([_MASK, 1 - _MASK, _MASK])
    with jax.enable_x64(True):
        made = np.asarray(second(jnp.asarray(_INPUTS[0])))
    assert np.allclose(made, first(torch.from_numpy(_INPUTS[0])).numpy())
    said = _said([1 - _MASK, _MASK, 1 - _MASK])
    assert not any("begins with" in one for one in said), said
