"""Causes in lines that are computed several times: a loop that PyTorch unrolls and JAX scans, and layers."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

from jax_side.probes.programs import JaxProgram
from parity.checks.programs import ProgramDifference, candidates_of, explain, explaining
from parity.contract import ProgramOperation
from torch_side.probes.programs import TorchProgram

_WEIGHT = np.random.default_rng(7).standard_normal((6, 3))
_INPUTS = [np.random.default_rng(seed).standard_normal((2, 3, 6)) for seed in (1, 2)]


def _trainer(x: Any) -> Any:
    weight = torch.from_numpy(_WEIGHT)
    for _ in range(2):
        values, gates = x.chunk(2, -1)
        keys = torch.sigmoid((x @ weight)[..., :1])
        h, made = torch.zeros(2, 3, 2, dtype=x.dtype), []
        for t in range(3):
            h = torch.tanh(h) + keys[:, t, :, None] * values[:, t, :, None] * gates[:, t, None, :2]
            made.append(h.sum(-1))
        x = torch.cat([torch.stack(made, 1), torch.sin(gates.transpose(1, 2)).transpose(1, 2)], -1)
    return x


def _port(x: Any, fault: str) -> Any:
    for layer in range(2):
        values, gates = jnp.split(x, 2, -1)
        values, gates = (
            (gates, values) if fault == "parts" or (fault and layer == 0 and fault != "factor") else (values, gates)
        )
        keys = jax.nn.sigmoid((x @ _WEIGHT)[..., :1])

        def one(h: Any, now: Any) -> Any:
            key, value, gate = now
            term = value[..., None] * gate[:, None, :2]
            h = jnp.tanh(h) + (term if fault == "factor" else key[..., None] * term)
            return h, h.sum(-1)

        turned = jax.tree.map(lambda a: a.swapaxes(0, 1), (keys, values, gates))
        made = jax.lax.scan(one, jnp.zeros((2, 3, 2), x.dtype), turned)[1]
        x = jnp.concatenate([made.swapaxes(0, 1), jnp.sin(gates)], -1)
    return x


def _explained(fault: str, monkeypatch: pytest.MonkeyPatch) -> ProgramDifference:
    for name, seconds in (("SECONDS", 1.0), ("GRAFT_SECONDS", 1.0), ("PAIR_SECONDS", 0.0)):
        monkeypatch.setattr(explaining, name, seconds)
    here: list[Any] = [TorchProgram(lambda x=x: lambda: _trainer(torch.from_numpy(x))) for x in _INPUTS]  # type: ignore[misc]
    with jax.enable_x64(True):
        there: list[Any] = [JaxProgram(lambda x: [_port(x, fault)], jnp.asarray(x)) for x in _INPUTS]
    found = explain(here, there)[0]
    assert isinstance(found, ProgramDifference)
    return found


@pytest.mark.parametrize(
    ("fault", "words", "count"),
    [
        ("parts", ("order: the 2 parts", "[1, 0]"), 2),
        ("parts once", ("order: the 2 parts", "[1, 0]"), 1),
        ("factor", ("left out: mul is applied here", "not there"), 6),
    ],
)
def test_what_is_done_otherwise_each_time_is_one_change(
    fault: str, words: tuple[str, ...], count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All that is done otherwise is changed, and nothing that is done alike."""
    found = _explained(fault, monkeypatch)
    assert all(word in found.text for word in words), found.text
    assert len(found.changes) == 1
    assert len(found.changes[0].edits) == count


def test_a_mask_that_is_filled_in_hides_no_other_number() -> None:
    """Beside -1e9 all other numbers are rounding."""
    mine, other = np.array([1.0, 2.0, -1e9]), np.array([1.5, -2.5, -1e9])
    programs = [[ProgramOperation("where", "m.py:1", (), (one,))] for one in (mine, other, mine[[1, 0, 2]])]
    assert candidates_of(programs[0], programs[1]).parted == [0]
    assert candidates_of(programs[0], programs[2]).parted == [], "in another order they are the same numbers"
