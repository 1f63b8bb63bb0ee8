"""Norms of a framework that are taken otherwise by hand: over other axes, in other groups, not centred."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
import torch.nn.functional as F

from jax_side.probes.programs import JaxProgram
from parity.checks.programs import explain
from parity.checks.programs.norms import norms_of
from torch_side.probes.programs import TorchProgram

_DRAWN = np.random.default_rng(0)
_W, _B = _DRAWN.standard_normal(8), _DRAWN.standard_normal(8)
_INPUTS = [_DRAWN.standard_normal((7, 4, 8)) * size for size in (1.0, 0.3, 2.0)]
_SCALE, _SHIFT = torch.from_numpy(_W), torch.from_numpy(_B)


def _normed(x: Any, axes: Any, *, centred: bool = True, less: int = 0, epsilon: float = 1e-5) -> Any:
    m = x.mean(axes, keepdims=True) if centred else 0.0
    square = ((x - m) ** 2).mean(axes, keepdims=True)
    if less:
        square = square * x.shape[axes] / (x.shape[axes] - less)
    return (x - m) / jnp.sqrt(square + epsilon)


@pytest.mark.parametrize(("here", "there", "said"), [
    (lambda x: F.group_norm(x.reshape(28, 8), 2), lambda x: _normed(x.reshape(28, 8), -1),
     "a norm in 2 groups of axis 1 here (*), a norm over axis 1 there"),
    (lambda x: F.group_norm(x.reshape(28, 8), 2), lambda x: _normed(x.reshape(28, 4, 2), -1).reshape(28, 8),
     "a norm in 2 groups of axis 1 here (*), a norm in 4 groups of axis 1 there"),
    (lambda x: F.layer_norm(x, (8,), _SCALE, _SHIFT), lambda x: _normed(x, -1, centred=False) * _W + _B,
     "a norm over axis 2 here (*), a norm that is not centred over axis 2 there"),
    (lambda x: F.layer_norm(x, (8,), _SCALE, _SHIFT), lambda x: _normed(x, (1, 2)) * _W + _B,
     "a norm over axis 2 here (*), a norm over axes 1, 2 there"),
    (lambda x: F.layer_norm(x, (8,), _SCALE, _SHIFT), lambda x: _normed(x, -1, less=1) * _W + _B,
     "a norm over axis 2 here (*), a norm over axis 2, of the variance by n - 1 there"),
    (lambda x: F.rms_norm(x, (8,), _SCALE, 1e-6), lambda x: _normed(x, -1, epsilon=1e-6) * _W,
     "a norm that is not centred over axis 2 here (*), a norm over axis 2 there"),
])  # fmt: skip
def test_another_norm_is_named(here: Any, there: Any, said: str) -> None:
    first = [TorchProgram(lambda x=x: lambda: torch.sin(here(torch.from_numpy(x)))) for x in _INPUTS]  # type: ignore[misc]
    with jax.enable_x64(True):
        second = [JaxProgram(lambda x: [jnp.sin(there(x))], jnp.asarray(x)) for x in _INPUTS]
    (found,) = explain(first, second)
    front, _, back = said.partition("*")
    assert found.text.startswith(f"norm: {front}test_norms_of_calls.py:"), found.text
    assert back in found.text


def test_by_what_is_no_norm_of_its_input_nothing_is_tried() -> None:
    mean, var = torch.zeros(4, dtype=torch.float64), torch.full((4,), 2.0, dtype=torch.float64)
    program = TorchProgram(lambda: lambda: F.batch_norm(torch.from_numpy(_INPUTS[0]), mean, var))
    assert not [change for one in program.operations for change in norms_of(one)]
