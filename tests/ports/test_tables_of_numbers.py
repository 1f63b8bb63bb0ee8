"""Tables of numbers that a loss reads at drawn places: what they hold is told, and how one lies in another."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
import torch

from parity.checks.programs.tables import table_relation, table_text
from tests.support.programs import said_of

Function = Callable[..., Any]

_KEPT = np.cumprod(1.0 - np.linspace(1e-3**0.5, 0.06**0.5, 20) ** 2)
_LINEAR = np.cumprod(1.0 - np.linspace(1e-3, 0.06, 20))


def _said(trainer: Function, port: Function) -> str:
    draws = []
    for seed in range(3):
        rng = np.random.default_rng((7, seed))
        draws.append([rng.integers(1, 20, 6), rng.standard_normal((6, 3)), rng.standard_normal((6, 3))])
    return said_of(trainer, port, draws)


def _trainer(t: Any, x: Any, noise: Any) -> Any:
    """Return what a model makes of noisy rows, weighed by how noisy they are."""
    kept = torch.as_tensor(_KEPT)[t]
    a = kept[:, None]
    each = torch.tanh(a.sqrt() * x + (1 - a).sqrt() * noise).sum(1)
    return kept / (1 - kept) * each


def _port(table: np.ndarray, weights: np.ndarray) -> Function:
    def port(t: Any, x: Any, noise: Any) -> Any:
        a = jnp.asarray(table)[t][:, None]
        each = jnp.tanh(jnp.sqrt(a) * x + jnp.sqrt(1 - a) * noise).sum(1)
        kept = jnp.asarray(weights)[t]
        return kept / (1 - kept) * each

    return port


@pytest.mark.parametrize(
    ("table", "weights", "said"),
    [
        (_LINEAR, _LINEAR, "c is a given value, 20 numbers 0.999, 0.994899, 0.987725 to 0.536382;"),
        (np.append(1.0, _KEPT), _KEPT, "21 numbers 1, 0.999, 0.997166 to 0.621671: those of a 1 place later"),
        (np.append(1.0, _KEPT[:-1]), _KEPT, "20 numbers 1, 0.999, 0.997166 to 0.661353: those of a 1 place later"),
        (_KEPT[::-1].copy(), _KEPT[::-1].copy(), "axis 0 the other way round there"),
        (_KEPT**2, _KEPT**2, "its square there"),
    ],
)
def test_numbers_of_a_table_are_told(table: np.ndarray, weights: np.ndarray, said: str) -> None:
    found = _said(_trainer, _port(table, weights))
    assert said in found, found
    assert "select_n(" not in found, found


def test_a_table_is_related_to_another_by_its_numbers_alone() -> None:
    assert table_relation(_KEPT, _KEPT[1:]) == "1 place earlier"
    assert table_relation(_KEPT, np.append([1.0, 1.0], _KEPT)) == "2 places later"
    assert not table_relation(_KEPT, _LINEAR)
    assert not table_relation(_KEPT, _KEPT[4:])


def test_a_short_table_is_told_as_a_whole() -> None:
    assert table_text(np.array([0, 0, 1, 1, 0])) == "the numbers 0, 0, 1, 1, 0"
    assert table_text(np.arange(30)) == "30 numbers 0, 1, 2 to 29"
