"""Keys that are repeated in another order: each one after the other, or all of them over again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

from tests.support.programs import said_of

_SHAPES = ((2, 4, 5, 3), (2, 2, 5, 3), (2, 2, 5, 3))
_DRAWS = [[np.random.default_rng((seed, n)).standard_normal(shape) for n, shape in enumerate(_SHAPES)]
          for seed in range(3)]  # fmt: skip


def _trainer(repeat: Callable[[Any], Any]) -> Callable[..., Any]:
    def trainer(q: Any, k: Any, v: Any) -> Any:
        k, v = repeat(k), repeat(v)
        return torch.nn.functional.scaled_dot_product_attention(q, k, v)

    return trainer


def _port(q: Any, k: Any, v: Any, repeat: Callable[[Any], Any]) -> Any:
    k, v = repeat(k), repeat(v)
    return jnp.einsum("bhts,bhsd->bhtd", jax.nn.softmax(jnp.einsum("bhtd,bhsd->bhts", q, k) / 3**0.5), v)


def _grouped(q: Any, k: Any, v: Any) -> Any:
    """Return the attention of groups of queries that share a key, which is repeated nowhere."""
    q = q.reshape(2, 2, 2, 5, 3)
    made = jnp.einsum("bgkts,bgsd->bgktd", jax.nn.softmax(jnp.einsum("bgktd,bgsd->bgkts", q, k) / 3**0.5), v)
    return made.reshape(2, 4, 5, 3)


_TIMES, _OVER = "each part of axis 1 2 times, one after the other", "the parts of axis 1 2 times over"


@pytest.mark.parametrize(
    ("here", "port", "said"),
    [
        (lambda x: x.repeat(1, 2, 1, 1), _grouped, (_OVER, _TIMES)),
        (lambda x: x.repeat_interleave(2, 1), lambda *x: _port(*x, lambda y: jnp.tile(y, (1, 2, 1, 1))),
         (_TIMES, _OVER)),
        (lambda x: x.repeat(1, 2, 1, 1), lambda *x: _port(*x, lambda y: jnp.repeat(y, 2, 1)), (_OVER, _TIMES)),
    ],
)  # fmt: skip
def test_the_other_order_is_named(here: Any, port: Any, said: tuple[str, str]) -> None:
    found = said_of(_trainer(here), port, _DRAWS)
    assert found.startswith(f"repeats: {said[0]} here"), found
    assert f"{said[1]} there" in found, found


def test_one_order_is_named_on_neither_side() -> None:
    assert said_of(_trainer(lambda x: x.repeat_interleave(2, 1)), _grouped, _DRAWS) == ""
    scaled = _trainer(lambda x: 0.5 * x.repeat_interleave(2, 1))
    assert "repeats: " not in said_of(scaled, _grouped, _DRAWS)
