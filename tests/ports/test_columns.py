"""Columns that lie in another order before a product: sines and cosines in halves or in turn, heads last or first."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
import torch

from tests.support.programs import said_of

_PLACES, _WIDTH = 5, 8
_RATES = 100.0 ** (-np.arange(4) / 4)
_DRAWS = [
    [np.random.default_rng((seed, n)).standard_normal(shape) for n, shape in enumerate(
        ((3, _PLACES, _WIDTH), (_WIDTH, _WIDTH), (_PLACES,)))]
    for seed in range(2)
]  # fmt: skip


def _table(halves: bool) -> np.ndarray:
    angles = np.arange(_PLACES)[:, None] * _RATES
    parts = [np.sin(angles), np.cos(angles)]
    return np.concatenate(parts, -1) if halves else np.stack(parts, -1).reshape(_PLACES, _WIDTH)


def _added(table: np.ndarray, lib: Any) -> Any:
    def run(x: Any, w: Any, t: Any) -> Any:
        held = torch.from_numpy(table) if lib is torch else jnp.asarray(table)
        return lib.tanh((x + held) @ w)

    return run


def _embedded(halves: bool, lib: Any) -> Any:
    def run(x: Any, w: Any, t: Any) -> Any:
        angles = t[:, None] * (torch.from_numpy(_RATES) if lib is torch else jnp.asarray(_RATES))
        parts = [lib.sin(angles), lib.cos(angles)]
        made = lib.concatenate(parts, -1) if halves else lib.stack(parts, -1).reshape(_PLACES, _WIDTH)
        return lib.tanh(made @ w) + x

    return run


@pytest.mark.parametrize("make", [lambda halves, lib: _added(_table(halves), lib), _embedded])
def test_sines_and_cosines_in_turn_and_in_halves_are_told(make: Any) -> None:
    words = {2: "(the two halves in turn)", 4: "(every second one first, as two halves)"}
    for here, there in ((True, False), (False, True)):
        said = said_of(make(here, torch), make(there, jnp), _DRAWS)
        assert said.startswith("layout: "), said
        assert any(one in said for one in words.values()), said
        assert "columns of " in said, said


@pytest.mark.parametrize("make", [lambda halves, lib: _added(_table(halves), lib), _embedded])
def test_equal_orders_and_other_tables_are_left_as_they_are(make: Any) -> None:
    assert said_of(make(True, torch), make(True, jnp), _DRAWS) == ""
    other = _table(True)[:, [1, 0, 2, 3, 4, 5, 6, 7]]
    assert "turned" not in said_of(_added(_table(True), torch), _added(other, jnp), _DRAWS)


def _heads(order: tuple[int, ...], lib: Any) -> Any:
    def run(x: Any, w: Any, t: Any) -> Any:
        heads = lib.tanh(x @ w).reshape(3, _PLACES, 2, 4).swapaxes(1, 2)  # as attention leaves them
        joined = heads.permute(*order) if lib is torch else heads.transpose(*order)
        return joined.reshape(3, _PLACES, _WIDTH) @ w + x

    return run


def test_heads_that_are_joined_number_by_number_are_told() -> None:
    said = said_of(_heads((0, 2, 1, 3), torch), _heads((0, 2, 3, 1), jnp), _DRAWS)
    assert said.startswith("layout: columns of what reshape makes at test_columns.py:"), said
    assert "read as [2, 4] and turned (the two halves in turn) there" in said
    assert said_of(_heads((0, 2, 1, 3), torch), _heads((0, 2, 1, 3), jnp), _DRAWS) == ""
