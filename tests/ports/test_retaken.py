"""A value that is taken from far before: the other program has it where both part."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import torch

from jax_side.probes.programs import JaxProgram
from parity.checks.programs import candidates_of, explain
from parity.checks.programs.retaken import retaken
from torch_side.probes.programs import TorchProgram

_INPUTS = [np.random.default_rng(seed).standard_normal((3, 4)) for seed in (1, 2)]


def _trainer(x: Any) -> Any:
    values = [x]
    for _ in range(14):
        values.append(torch.tanh(values[-1]) * 1.5)
    return torch.sin(torch.cat([values[-1], values[2]], -1))


def _port(x: Any, taken: int, scale: float = 1.0) -> Any:
    values = [x]
    for _ in range(14):
        values.append(jnp.tanh(values[-1]) * 1.5)
    return jnp.sin(jnp.concatenate([values[-1], values[taken]], -1) * scale)


def _programs(taken: int, scale: float = 1.0) -> tuple[list[Any], list[Any]]:
    here = [TorchProgram(lambda x=x: lambda: _trainer(torch.from_numpy(x))) for x in _INPUTS]  # type: ignore[misc]
    with jax.enable_x64(True):
        return here, [JaxProgram(lambda x: [_port(x, taken, scale)], jnp.asarray(x)) for x in _INPUTS]


def test_a_skip_from_another_layer_is_named() -> None:
    """More values of its shape lie between than are tried in place of one."""
    said = explain(*_programs(1))[0].text
    assert said.startswith("value taken: what "), said
    assert "with that changed all values are equal" in said


def test_what_both_give_to_the_operation_is_left_as_it_is() -> None:
    here, there = _programs(2, 0.5)
    for mine, other in ((here[0], there[0]), (there[0], here[0])):
        assert not list(retaken(mine.operations, candidates_of(mine.operations, other.operations)))
