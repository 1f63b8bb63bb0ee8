"""What is drawn for each example and taken of the first one for all is named; what all share anyway is not."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
import torch

from tests.support.programs import said_of

_SHAPES = ((4, 3, 5), (4,))
_DRAWS = [[np.random.default_rng((seed, n)).standard_normal(shape) for n, shape in enumerate(_SHAPES)]
          for seed in range(4)]  # fmt: skip
for _draw, _sign in zip(_DRAWS, (1, -1, -1, 1), strict=True):  # the first row is not on one side at all draws
    _draw[1] *= _sign * np.sign(_draw[1][0])
_KERNEL = np.random.default_rng(9).standard_normal((5, 2))


def _trainer(x: Any, drawn: Any) -> Any:
    return torch.tanh(torch.where(drawn[:, None, None] < 0, x.flip(1), x) @ torch.from_numpy(_KERNEL))


def _port(x: Any, drawn: Any) -> Any:
    return jnp.tanh(jnp.where(drawn[:, None, None] < 0, x[:, ::-1], x) @ _KERNEL)


@pytest.mark.parametrize(
    ("trainer", "port", "side"),
    [
        (_trainer, lambda x, drawn: _port(x, drawn[:1]), "here (test_shared_rows.py:"),
        (lambda x, drawn: _trainer(x, drawn[:1]), _port, "the first row for all of them here, each row of what "),
    ],
)
def test_one_draw_for_all_examples_is_named(trainer: Any, port: Any, side: str) -> None:
    said = said_of(trainer, port, _DRAWS)
    assert said.startswith("rows: "), said
    assert side in said, said
    assert "the first row for all of them" in said, said


def test_a_time_of_the_whole_batch_is_named() -> None:
    said = said_of(
        lambda x, t: torch.tanh(x) * torch.exp(0.3 * t)[:, None, None] ** 2,
        lambda x, t: jnp.tanh(x) * jnp.exp(0.3 * t[0]) ** 2,
        _DRAWS,
    )
    assert "the first row for all of them there" in said, said


def test_another_condition_is_not_called_one_row_for_all() -> None:
    assert said_of(_trainer, _port, _DRAWS) == ""
    said = said_of(_trainer, lambda x, drawn: _port(x, -drawn), _DRAWS)
    assert said, "the condition is the other way round"
    assert "for all of them" not in said, said
