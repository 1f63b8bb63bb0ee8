"""A stride that stands at another convolution of a block, and one that is another number."""

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
from torch_side.probes.programs import TorchProgram

SHAPES = ((2, 3, 8, 8), (4, 3, 3, 3), (4, 4, 3, 3))


def _said(here: tuple[int, int], there: tuple[int, int]) -> str:
    """Return the first cause for two convolutions with such strides on each side."""

    def trainer(x: Any, first: Any, second: Any) -> Any:
        h = torch.tanh(F.conv2d(x, first, stride=here[0], padding=1))
        h = F.conv2d(h, second, stride=here[1], padding=1)
        return torch.exp(h.mean((2, 3)))

    def port(x: Any, first: Any, second: Any) -> Any:
        h = jnp.tanh(jax.lax.conv_general_dilated(x, first, (there[0],) * 2, ((1, 1), (1, 1))))
        h = jax.lax.conv_general_dilated(h, second, (there[1],) * 2, ((1, 1), (1, 1)))
        return jnp.exp(h.mean((2, 3)))

    draws = [[np.random.default_rng((7, at, n)).standard_normal(s) for n, s in enumerate(SHAPES)] for at in range(3)]
    programs = [TorchProgram(lambda x=x: lambda: trainer(*map(torch.from_numpy, x))) for x in draws]  # type: ignore[misc]
    with jax.enable_x64(True):
        ports = [JaxProgram(lambda *x: [port(*x)], *map(jnp.asarray, x)) for x in draws]
    return explain(programs, ports)[0].text


@pytest.mark.parametrize("swap", [False, True])
def test_a_stride_at_the_other_convolution_is_no_dilation(swap: bool) -> None:
    ways = ((1, 2), (2, 1))
    said = _said(*(ways[::-1] if swap else ways))
    assert said.startswith("setting: conv"), said
    assert "with stride" in said.partition("there")[0]
    assert "dilation" not in said


def test_another_stride_is_said_with_both_numbers() -> None:
    said = _said((1, 1), (1, 2))
    assert said.startswith("setting: conv2d with stride 1 here") or "with stride 2" in said, said


def test_a_dilation_stays_one() -> None:
    assert "dilation" not in _said((2, 1), (2, 2))
