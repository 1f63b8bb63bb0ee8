"""What conditions choose, what lies turned round, what a loop makes in its first turn, as two programs have it."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

from parity.checks.programs.changes import _shifted
from parity.checks.programs.matching import KnownValues, candidates_of, chosen_apart
from tests.support.programs import said_of, traced

IMAGES, ROWS, COLUMNS = 4, 5, 3


def drawn(*shapes: tuple[int, ...], seed: int = 0) -> list[np.ndarray]:
    """Return draws whose last array decides for the first image at one and not at the other."""
    draws = []
    for at in range(3):
        rng = np.random.default_rng((seed, at))
        arrays = [rng.standard_normal(shape) for shape in shapes]
        draws.append([*arrays, np.where(np.arange(IMAGES) % 2 == at % 2, 0.2, 0.8)])
    return draws  # type: ignore[return-value]


def flipped(x: Any, weights: Any, chance: Any) -> Any:
    return torch.tanh(torch.where((chance < 0.5)[:, None, None], x.flip(-1), x) @ weights)


def test_a_flip_of_all_by_the_chance_of_one_is_told_of_what_is_chosen() -> None:
    def port(x: Any, weights: Any, chance: Any) -> Any:
        return jnp.tanh(jnp.where(chance[0] < 0.5, x[..., ::-1], x) @ weights)

    draws = drawn((IMAGES, ROWS, COLUMNS), (COLUMNS, 2))
    said = said_of(flipped, port, draws)  # type: ignore[arg-type]
    assert said.startswith("rows: each row of what lt makes by itself here (test_chosen_values.py:"), said
    assert "the first row for all of them there" in said, said


def test_a_flip_of_all_by_the_last_chance_is_told_of_what_is_chosen() -> None:
    def port(x: Any, weights: Any, chance: Any) -> Any:
        return jnp.tanh(jnp.where(chance[-1] < 0.5, x[..., ::-1], x) @ weights)

    draws = drawn((IMAGES, ROWS, COLUMNS), (COLUMNS, 2))
    said = said_of(flipped, port, draws)  # type: ignore[arg-type]
    assert said.startswith("computed otherwise: `where(lt("), said
    assert "select_n(lt(" in said, said
    assert "matmul" not in said.partition("there (")[0], said


def test_what_both_choose_alike_is_not_apart() -> None:
    def port(x: Any, weights: Any, chance: Any) -> Any:
        return jnp.tanh(jnp.where((chance < 0.5)[:, None, None], x[..., ::-1], x) @ weights) * 2.0

    draws = drawn((IMAGES, ROWS, COLUMNS), (COLUMNS, 2))
    here, there = traced(flipped, port, draws)  # type: ignore[arg-type]
    sides = [[one.operations for one in side] for side in (here, there)]
    assert chosen_apart(sides[0], sides[1]) == chosen_apart(sides[1], sides[0]) == []
    assert candidates_of(sides[0][0], sides[1][0]).reordered == ()


def test_a_value_that_is_turned_round_is_known_and_reordered() -> None:
    value = np.random.default_rng(1).standard_normal((4, 6))
    known = KnownValues([value])
    assert known.has(value[:, ::-1])
    assert known.has_reordered(value[:, ::-1])
    assert not known.has_reordered(value.T), "axes in another order are a layout"
    assert not known.has_reordered(value.reshape(2, 2, 6)), "and so are other extents"


@pytest.mark.parametrize("offset", [-1, 0, 1])
@pytest.mark.parametrize("negated", [False, True])
@pytest.mark.parametrize("by", [-1, 1])
def test_a_causal_mask_is_moved_with_its_edge(offset: int, negated: bool, by: int) -> None:
    mask = np.broadcast_to(np.tri(5, k=offset, dtype=bool) ^ negated, (2, 5, 5))
    assert np.array_equal(
        _shifted(mask, by), np.broadcast_to(np.tri(5, k=offset + by, dtype=bool) ^ negated, (2, 5, 5))
    )


def test_any_other_mask_is_moved_by_a_column() -> None:
    mask = np.random.default_rng(3).random((6, 6)) < 0.5
    assert np.array_equal(_shifted(mask, 1)[:, 1:], mask[:, :-1])


LAYERS, WIDTH, LENGTH = 2, 6, 5


def attended(x: Any, scales: Any) -> Any:
    for scale in scales:
        h = x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-5) * scale
        x = x + torch.nn.functional.scaled_dot_product_attention(h, h, h, is_causal=True)
    return x.square().mean()


def layer(x: Any, scale: Any) -> Any:
    h = x * jax.lax.rsqrt(jnp.mean(x * x, -1, keepdims=True) + 1e-5) * scale
    seen = jnp.arange(LENGTH)[None, :] <= jnp.arange(1, LENGTH + 1)[:, None]
    scores = jnp.where(seen, h @ h.T / np.sqrt(WIDTH), -jnp.inf)
    return x + jax.nn.softmax(scores, -1) @ h, None


def scanned(x: Any, scales: Any) -> Any:
    return jnp.mean(jax.lax.scan(layer, x, scales)[0] ** 2)


LAYER_DRAWS = [
    [np.random.default_rng((at, n)).standard_normal(s) for n, s in enumerate(((LENGTH, WIDTH), (LAYERS, WIDTH)))]
    for at in range(3)
]


def test_a_mask_within_a_loop_of_layers_is_told() -> None:
    said = said_of(attended, scanned, LAYER_DRAWS)
    assert said.startswith("mask: one place further ahead here, le as it is there"), said


def test_the_norm_that_begins_the_second_turn_of_a_loop_does_not_part() -> None:
    """All of the second turn is other numbers behind a fault; what made the same in the first is no cause."""
    here, there = traced(attended, scanned, LAYER_DRAWS)
    operations = there[0].operations
    parted = {
        operations[at].kind for at in candidates_of(operations, here[0].operations).parted if operations[at].turns
    }
    assert "exp" in parted
    assert "rsqrt" not in parted
