"""A constant that stands at several places of a program: all that is made of it is another number at once."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

from jax_side.probes.programs import JaxProgram
from parity.checks.programs import explain
from torch_side.probes.programs import TorchProgram

_DRAWN = np.random.default_rng(0)
_W, _V = _DRAWN.standard_normal((5, 6)), _DRAWN.standard_normal((6, 4))
_INPUTS = [_DRAWN.standard_normal((7, 4)) * size for size in (1.0, 0.3)]


def _said(here: Any, there: Any) -> list[str]:
    first = [TorchProgram(lambda x=x: lambda: here(torch.from_numpy(x))) for x in _INPUTS]  # type: ignore[misc]
    with jax.enable_x64(True):
        second = [JaxProgram(lambda x: [there(x)], jnp.asarray(x)) for x in _INPUTS]
    return [one.text for one in explain(first, second)]


def _steps(y: Any) -> Any:
    w, v = torch.from_numpy(_W), torch.from_numpy(_V)
    h = 1.0 / 4
    for at in range(4):
        t = y.new_tensor(at * h).expand(len(y), 1)
        k = torch.tanh(torch.cat([y, t], -1) @ w) @ v
        k = torch.tanh(torch.cat([y + h / 2 * k, t + h / 2], -1) @ w) @ v
        y = y + h * k
    return y


def _scanned(count: int) -> Any:
    h = 1.0 / count

    def one(y: Any, at: Any) -> Any:
        t = jnp.full((len(y), 1), at * h)
        k = jnp.tanh(jnp.concatenate([y, t], -1) @ _W) @ _V
        k = jnp.tanh(jnp.concatenate([y + h / 2 * k, t + h / 2], -1) @ _W) @ _V
        return y + h * k, None

    return lambda y: jax.lax.scan(one, y, jnp.arange(4))[0]


def test_a_step_size_that_stands_in_many_operations_is_named() -> None:
    (said,) = _said(_steps, _scanned(5))
    assert said.startswith("numbers at several places: 0.25 and 0.125 here, 0.2 and 0.1 there"), said


def test_a_share_and_its_rest_are_named_together() -> None:
    def mixed(a: float, b: float) -> Any:
        return lambda x: a * jnp.tanh(x) + b * jnp.sin(x)

    (said,) = _said(lambda x: 0.25 * torch.tanh(x) + 0.75 * torch.sin(x), mixed(0.1, 0.9))
    assert said.startswith("numbers at several places: 0.25 and 0.75 here (test_linked_numbers.py:"), said
    assert ", 0.1 and 0.9 there (" in said


@pytest.mark.parametrize("other", [
    lambda x: 0.25 * jnp.tanh(x) + 0.5 * jnp.sin(x), lambda x: 0.25 * jnp.sin(x) + 0.75 * jnp.sin(x),
])  # fmt: skip
def test_one_number_or_another_function_is_no_matter_of_linked_ones(other: Any) -> None:
    said = _said(lambda x: 0.25 * torch.tanh(x) + 0.75 * torch.sin(x), other)
    assert said
    assert not any("several places" in one for one in said)
