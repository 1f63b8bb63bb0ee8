"""The place at which two programs compute otherwise is told as formulas of the values that both have."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

from jax_side.probes.programs import JaxProgram
from parity.checks.programs.edits import told_apart
from parity.checks.programs.formulas import _is_one
from parity.checks.programs.grafts import ValueGraft, grafted
from parity.checks.programs.slices import block_taken
from torch_side.probes.programs import TorchProgram

_DRAWS = np.random.default_rng(13)
_WEIGHTS, _OTHERS = _DRAWS.random(6) + 0.5, _DRAWS.random(6) + 0.5
_X = [np.random.default_rng(seed).standard_normal((6, 4)) for seed in (1, 2)]


def _graft(trainer: Any, port: Any) -> ValueGraft:
    here = [TorchProgram(lambda x=x: lambda: trainer(torch.from_numpy(x))) for x in _X]
    with jax.enable_x64(True):
        there = [JaxProgram(lambda x: [port(x)], jnp.asarray(x)) for x in _X]
    names = {"the leaf w": _WEIGHTS, "the leaf v": _OTHERS}
    found = grafted(here, there, None, 6.0, (names, names))
    assert found is not None
    return found


def _weighted(x: torch.Tensor) -> torch.Tensor:
    w = torch.from_numpy(_WEIGHTS)
    errors = torch.tanh(x).square().sum(1)
    return (errors * w).sum() / w.sum() + x.mean()


def test_what_is_divided_by_is_told() -> None:
    found = _graft(_weighted, lambda x: (jnp.square(jnp.tanh(x)).sum(1) * _WEIGHTS).sum() / 6 + x.mean())
    here, there = found.formulas
    assert "sum(" in here, found.text
    assert there.endswith("/ 6"), found.text
    assert "the leaf w" in found.letters.values(), found.text
    assert "computed otherwise: `" in found.text


def test_a_chain_of_operations_is_told_as_its_function() -> None:
    def softplus(x: Any) -> Any:
        return jnp.maximum(x, 0) + jnp.log1p(jnp.exp(-jnp.abs(x)))

    found = _graft(lambda x: torch.exp(x).sum(0) + 1, lambda x: softplus(x).sum(0) + 1)
    assert "softplus(" in found.formulas[1], found.text
    assert "log1p" not in found.formulas[1], found.text


def test_values_that_lie_otherwise_are_told_by_their_shapes() -> None:
    def both(x: torch.Tensor) -> torch.Tensor:
        a, b = torch.from_numpy(_WEIGHTS), torch.from_numpy(_OTHERS)
        return torch.tanh(a[:, None] + 2.0 * b[None]).sum(0) * x.sum()

    def port(x: Any) -> Any:
        a, b = jnp.asarray(_WEIGHTS), jnp.asarray(_OTHERS)
        return jnp.tanh(a[None] + 2.0 * b[:, None]).sum(0) * x.sum()

    found = _graft(both, port)
    assert found.formulas[0] != found.formulas[1] or not found.formulas[0], found.text


def test_a_block_that_is_taken_is_told_by_its_places() -> None:
    def both(x: torch.Tensor) -> torch.Tensor:
        z = torch.tanh(x)
        return (z[:-1] * z[1:]).sum() + x.mean()

    def port(x: Any) -> Any:
        z = jnp.tanh(x)
        return (z[:-1] * z[:-1]).sum() + x.mean()

    found = _graft(both, port)
    assert "[1:]" in found.formulas[0], found.text
    assert "[1:]" not in found.formulas[1], found.text


@pytest.mark.parametrize(
    ("index", "said"),
    [
        (np.s_[:, 1:], ":, 1:"), (np.s_[2], "2"), (np.s_[:, 3], ":, 3"), (np.s_[1:3, :2], "1:3, :2"),
        (np.s_[:, ::2], ":, ::2"), (np.s_[1:2], "1:2"), (np.s_[:], ""), (np.s_[[0, 2, 1]], ""),
    ],
)  # fmt: skip
def test_a_block_is_found_by_its_values(index: Any, said: str) -> None:
    assert block_taken(_X[0], _X[0][index]) == said


def test_values_that_stand_several_times_tell_no_block() -> None:
    assert block_taken(np.ones((3, 4)), np.ones((3, 3))) == ""
    assert block_taken(np.zeros(3), np.zeros(0)) == ""


def test_one_function_in_the_words_of_both_frameworks_is_no_difference() -> None:
    assert _is_one("sum(a, over axis 0 of [3])", "reduce_sum(a, over axis 0 of [3])")
    assert not _is_one("sum(a, over axis 0 of [3])", "reduce_sum(b, over axis 0 of [3])")
    assert not _is_one("sum(a, over axis 0 of [3])", "reduce_max(a, over axis 0 of [3])")


def test_parts_of_one_chunk_are_told_apart() -> None:
    def trainer(x: torch.Tensor) -> torch.Tensor:
        scale, shift = torch.sin(x).chunk(2, -1)
        return torch.tanh(x.mean(1, keepdim=True) * (1 + scale)) + shift.sum()

    def port(x: Any) -> Any:
        _, shift = jnp.split(jnp.sin(x), 2, -1)
        return jnp.tanh(x.mean(1, keepdims=True) * (1 + shift)) + shift.sum()

    assert _graft(trainer, port).formulas == ("a[:, :2] + 1", "1 + a[:, 2:]")


def test_values_of_one_chunk_are_called_by_their_part() -> None:
    x = torch.from_numpy(_X[0])
    program = TorchProgram(lambda: lambda: torch.sub(*torch.sin(x).chunk(2, -1)))
    values = next(one.outputs for one in program.operations if one.kind == "chunk")
    assert told_apart(program.operations, ("it", "it"), (values[0], values[1])) == ("part 0 of it", "part 1 of it")
