"""Numbers that are read in another order of axes, terms that weigh otherwise, and a function before a norm."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

from jax_side.probes.programs import JaxProgram
from parity.checks.programs import candidates_of, explain
from parity.checks.programs.reread import reread
from parity.checks.programs.weights import weighed
from parity.checks.proving.stages import _is_wide
from torch_side.probes.programs import TorchProgram

Function = Callable[..., Any]


def _programs(trainer: Function, port: Function, *shapes: tuple[int, ...]) -> tuple[list[Any], list[Any]]:
    draws = [[np.random.default_rng((7, at, n)).standard_normal(s) for n, s in enumerate(shapes)] for at in range(3)]
    here = [TorchProgram(lambda x=x: lambda: trainer(*map(torch.from_numpy, x))) for x in draws]  # type: ignore[misc]
    with jax.enable_x64(True):
        return here, [JaxProgram(lambda *x: [port(*x)], *map(jnp.asarray, x)) for x in draws]


def _said(trainer: Function, port: Function, *shapes: tuple[int, ...]) -> str:
    return explain(*_programs(trainer, port, *shapes))[0].text


def _capsules(x: Any) -> Any:
    u = torch.tanh(x).view(2, 3, 4, 5).permute(0, 1, 3, 2)
    return torch.exp(torch.softmax(u.reshape(2, 15, 4), -1).sum(1))


def test_a_reshape_without_its_turn_is_named() -> None:
    def port(x: Any) -> Any:
        u = jnp.tanh(x).reshape(2, 3, 5, 4)
        return jnp.exp(jax.nn.softmax(u.reshape(2, 15, 4)).sum(1))

    said = _said(_capsules, port, (2, 12, 5))
    assert said.startswith("layout: numbers read as [2, 3, 4, 5] here (test_reread.py:"), said
    assert "as [2, 3, 5, 4], then turned there" in said


def test_all_that_a_line_lays_out_is_read_alike() -> None:
    def trainer(x: Any, flat: Any) -> Any:
        up, down = (
            part.view(-1, *size) for part, size in zip(flat.split([12, 8], -1), ((4, 3), (2, 4)), strict=True)
        )
        return torch.bmm(torch.sin(torch.bmm(x, up.transpose(1, 2))), down.transpose(1, 2))

    def port(x: Any, flat: Any) -> Any:
        up, down = flat[:, :12].reshape(-1, 3, 4), flat[:, 12:].reshape(-1, 4, 2)
        return jnp.einsum("bnh,bho->bno", jnp.sin(jnp.einsum("bni,bih->bnh", x, up)), down)

    said = _said(trainer, port, (2, 6, 3), (2, 20))
    assert said.startswith("layout: numbers read as "), said


def test_numbers_whose_axes_are_only_spread_are_read_in_one_way() -> None:
    here, _ = _programs(lambda x: torch.tanh(x).view(1, 4, 1, 3), lambda x: x, (4, 3))
    assert not list(reread(here[0].operations, range(len(here[0].operations))))
    here, _ = _programs(lambda x: torch.tanh(x).t(), lambda x: x, (4, 3))
    assert not list(reread(here[0].operations, range(len(here[0].operations)))), "a turn lays no numbers out"


def _ahead(x: Any, mean: Function) -> Any:
    total = 0.0
    for k in range(1, 3):
        total = total + mean((x[k:] - x[:-k]) ** 2)
    return total / 2


@pytest.mark.parametrize("name", ["total", "q"])
def test_places_of_terms_that_weigh_alike_are_named(name: str) -> None:
    """The name of what is summed up decides nothing."""

    def port(x: Any) -> Any:
        made = {name: 0.0}
        for k in range(1, 3):
            made[name] = made[name] + ((x[k:] - x[:-k]) ** 2).sum()
        return made[name] / (3 * (5 + 4))

    said = _said(lambda x: _ahead(x, torch.mean), port, (6, 3))
    assert said.startswith("weights: each term weighs alike (2 of mean, over 15, 12 numbers) here"), said
    assert "each place of all terms weighs alike there" in said


def test_terms_of_as_many_places_weigh_one_way() -> None:
    here, _ = _programs(lambda x: (x[:2] ** 2).mean() + (x[2:] ** 2).mean(), lambda x: x, (4, 3))
    assert not list(weighed(here[0].operations, range(len(here[0].operations))))


def test_a_function_before_a_norm_and_not_after_it_is_named() -> None:
    def trainer(x: Any, w: Any) -> Any:
        return torch.relu(torch.nn.functional.layer_norm(x @ w, (5,))) @ w.T

    def norm(x: Any) -> Any:
        return (x - x.mean(-1, keepdims=True)) / jnp.sqrt(x.var(-1, keepdims=True) + 1e-5)

    said = _said(trainer, lambda x, w: norm(jax.nn.relu(x @ w)) @ w.T, (4, 3), (3, 5))
    assert said.startswith("order: layer_norm before ReLU here (test_reread.py:"), said
    assert "after ReLU there" in said


def test_gates_of_a_cell_that_the_trainer_calls_whole_are_told_in_the_port() -> None:
    """The trainer's cell is one call: it is the port's formula in which the two values have changed places."""
    cell = torch.nn.GRUCell(3, 4, dtype=torch.float64)
    weights = [one.detach().numpy() for one in (cell.weight_ih, cell.weight_hh, cell.bias_ih, cell.bias_hh)]

    def trainer(xs: Any, h: Any) -> Any:
        outs = []
        for x in xs:
            h = cell(x, h)
            outs.append(h)
        return torch.stack(outs).exp()

    def port(xs: Any, h: Any) -> Any:
        wi, wh, bi, bh = map(jnp.asarray, weights)

        def turn(h: Any, x: Any) -> Any:
            ri, zi, ni = jnp.split(x @ wi.T + bi, 3, -1)
            rh, zh, nh = jnp.split(h @ wh.T + bh, 3, -1)
            r, z = jax.nn.sigmoid(ri + rh), jax.nn.sigmoid(zi + zh)
            n = jnp.tanh(ni + r * nh)
            h = z * n + (1 - z) * h
            return h, h

        return jnp.exp(jax.lax.scan(turn, h, xs)[1])

    said = _said(trainer, port, (5, 2, 3), (2, 4))
    assert said.startswith(("values exchanged: ", "order: ", "value: ")), said
    assert "computed otherwise" not in said


@pytest.mark.parametrize(
    ("cause", "wide"),
    [
        ("angles: sines and cosines in columns 0 to 7 are of other angles (periods, place or time)", True),
        ("factor: there 0.296802516 times what is here", True),
        ("factor: there 0.9 times what is here, 1 less the rate of a dropout", False),
        ("activation: nothing here, ReLU there", True),
        ("activation: ReLU here, nothing there", True),
        ("activation: GELU (erf) here, GELU (tanh) there", False),
        ("norm: over channels here, over places there", False),
    ],
)
def test_a_cause_that_several_mistakes_share_is_looked_at_by_what_is_computed(cause: str, wide: bool) -> None:
    assert _is_wide(cause) == wide


def test_a_reshape_that_is_all_that_differs_is_named() -> None:
    """Nothing is computed after it: the numbers are the same in both programs, read in other axes."""

    def trainer(x: Any) -> Any:
        return torch.tanh(x).unflatten(-1, (4, 2))

    said = _said(trainer, lambda x: jnp.tanh(x).reshape(3, 2, 4).swapaxes(-1, -2), (3, 8))
    assert said.startswith("layout: numbers read as [3, 4, 2] here (test_reread.py:"), said
    assert "as [3, 2, 4], then turned there" in said


def test_a_reshape_that_both_have_is_left_as_it_is() -> None:
    def trainer(x: Any) -> Any:
        return torch.exp(torch.tanh(x).unflatten(-1, (4, 2)))

    here, there = _programs(trainer, lambda x: jnp.expm1(jnp.tanh(x).reshape(3, 4, 2)), (3, 8))
    for mine, other in ((here[0], there[0]), (there[0], here[0])):
        assert not candidates_of(mine.operations, other.operations).moved


def _turned(x: Any, kit: Any, *, halves: bool, cos: Any, sin: Any) -> Any:
    """Return [places, heads, 4] turned by their place, in pairs of the last axis."""
    if halves:
        first, second = x[..., :2], x[..., 2:]
        both = (first * cos - second * sin, second * cos + first * sin)
        return torch.cat(both, -1) if kit is torch else jnp.concatenate(both, -1)
    first, second = x[..., 0::2], x[..., 1::2]
    both = (first * cos - second * sin, second * cos + first * sin)
    return kit.stack(both, -1).reshape(x.shape)


@pytest.mark.parametrize("halves", [True, False])
def test_pairs_of_halves_and_of_neighbours_are_told(halves: bool) -> None:
    angles = np.arange(5.0)[:, None, None] * np.array([1.0, 0.31])

    def trainer(q: Any, k: Any) -> Any:
        cos, sin = torch.from_numpy(np.cos(angles)), torch.from_numpy(np.sin(angles))
        a, b = (_turned(torch.tanh(x), torch, halves=halves, cos=cos, sin=sin) for x in (q, k))
        return torch.softmax(torch.einsum("qhd,khd->hqk", a, b), -1)

    def port(q: Any, k: Any) -> Any:
        a, b = (_turned(jnp.tanh(x), jnp, halves=not halves, cos=np.cos(angles), sin=np.sin(angles)) for x in (q, k))
        return jax.nn.softmax(jnp.einsum("qhd,khd->hqk", a, b), -1)

    said = _said(trainer, port, (5, 2, 4), (5, 2, 4))
    mine, other = ("halves", "neighbours") if halves else ("neighbours", "halves")
    assert said.startswith(f"pairs: {mine} of the last axis here") or said.startswith(f"pairs: {mine} here"), said
    assert f"{other} there" in said or f"{other} of the last axis there" in said


def test_halves_that_both_take_are_no_pairs_of_neighbours() -> None:
    def trainer(x: Any) -> Any:
        h = torch.tanh(x)
        return torch.exp(h[..., :2] * torch.sigmoid(h[..., 2:]))

    def port(x: Any) -> Any:
        h = jnp.tanh(x)
        return jnp.exp(h[..., :2] * jax.nn.relu(h[..., 2:]))

    assert "pairs" not in _said(trainer, port, (5, 4))
