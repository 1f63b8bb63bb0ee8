"""Mistakes in loops over time: a turn less, a value of another turn, a factor that is missing in each turn."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

from jax_side.probes.programs import JaxProgram
from parity.checks.programs import explain
from parity.checks.programs.changes import changes_of
from parity.contract import ProgramOperation
from torch_side.probes.programs import TorchProgram

_DRAWS = np.random.default_rng(11)
_W, _A = _DRAWS.standard_normal((4, 4)), _DRAWS.standard_normal((4, 6))
_X = [np.random.default_rng(seed).standard_normal((3, 4)) for seed in (1, 2)]
_SERIES = [np.random.default_rng(seed).standard_normal((5, 3)) for seed in (3, 4)]
_LIVE = (np.random.default_rng(7).random((5, 3)) < 0.6).astype(float)


def _said(trainer: Any, port: Any, inputs: list[np.ndarray]) -> str:
    here = [TorchProgram(lambda x=x: lambda: trainer(torch.from_numpy(x))) for x in inputs]
    with jax.enable_x64(True):
        there = [JaxProgram(lambda x: [port(x)], jnp.asarray(x)) for x in inputs]
    return ", or ".join(one.text for one in explain(here, there))


def _routed(x: torch.Tensor) -> torch.Tensor:
    w, a = torch.from_numpy(_W), torch.from_numpy(_A)
    hat = torch.tanh(x @ w)
    b = torch.zeros(3, 4, dtype=x.dtype)
    for _ in range(3):
        c = b.softmax(-1)
        b = b + c * hat
    return torch.sin(b) @ a


def _routed_port(turns: int, scale: float) -> Any:
    def port(x: Any) -> Any:
        hat, b = jnp.tanh(x @ _W), jnp.zeros((3, 4))
        for _ in range(turns):
            b = b + jax.nn.softmax(b, -1) * hat * scale
        return jnp.sin(b) @ _A

    return port


@pytest.mark.parametrize("turns", [2, 1, 4])
def test_another_number_of_turns_is_told(turns: int) -> None:
    said = _said(_routed, _routed_port(turns, 1.0), _X)
    assert said.startswith("turns of a loop: 3 turns here"), said
    assert f"{turns} turn{'s' if turns > 1 else ''} there" in said, said


def test_a_number_in_each_turn_is_no_number_of_turns() -> None:
    assert "turns of a loop" not in _said(_routed, _routed_port(3, 0.5), _X)


def test_a_function_that_is_called_for_two_values_is_no_loop() -> None:
    def both(x: torch.Tensor) -> torch.Tensor:
        w, a = torch.from_numpy(_W), torch.from_numpy(_A)
        encode = lambda h: torch.tanh(h @ w)  # noqa: E731
        first = encode(x)
        second = encode(x.flip(0))
        return (first * 0.7 + second) @ a

    def once(x: Any) -> Any:
        h = jnp.tanh(x @ _W)
        return (h * 0.7 + h) @ _A

    assert "turns of a loop" not in _said(both, once, _X)


def _stepped(x: torch.Tensor) -> torch.Tensor:
    w, a = torch.from_numpy(_W), torch.from_numpy(_A)
    y = x
    for _ in range(3):
        k = torch.tanh(y @ w)
        second = torch.tanh((y + 0.1 * k) @ w)
        y = y + 0.2 * second
    return y @ a


def _stepped_port(x: Any) -> Any:
    y = x
    for _ in range(3):
        k = jnp.tanh(y @ _W)
        y = y + 0.2 * k
    return y @ _A


def test_the_first_slope_in_place_of_the_second_is_told() -> None:
    said = _said(_stepped, _stepped_port, _X)
    assert said.startswith("value taken: what tanh makes at test_turns.py"), said


def _discounted(r: torch.Tensor) -> torch.Tensor:
    live, adv, out = torch.from_numpy(_LIVE), torch.zeros(3, dtype=r.dtype), []
    for t in reversed(range(5)):
        adv = r[t] * live[t] + 0.9 * live[t] * adv
        out.append(adv)
    return torch.stack(out)


def _discounted_port(live_there: bool) -> Any:
    def port(r: Any) -> Any:
        def back(adv: Any, x: Any) -> Any:
            one, live = x
            adv = one * live + (0.9 * live * adv if live_there else 0.9 * adv)
            return adv, adv

        return jax.lax.scan(back, jnp.zeros(3), (r, jnp.asarray(_LIVE)), reverse=True)[1][::-1]

    return port


def test_a_factor_that_is_missing_in_each_turn_is_told() -> None:
    said = _said(_discounted, _discounted_port(live_there=False), _SERIES)
    assert "the factor alone" in said or "times what" in said, said


def test_a_mask_that_a_call_is_given_by_its_key_is_left_out() -> None:
    mask = np.tril(np.ones((3, 3), bool))

    def attended(x: torch.Tensor) -> torch.Tensor:
        q, a = (x @ torch.from_numpy(_W))[None], torch.from_numpy(_A)
        y = torch.nn.functional.scaled_dot_product_attention(q, x[None], x[None], attn_mask=torch.from_numpy(mask))
        return y[0] @ a

    def port(x: Any) -> Any:
        return jax.nn.softmax((x @ _W) @ x.T / 2.0, -1) @ x @ _A

    said = _said(attended, port, _X)
    assert "attn_mask as it is" in said, said
    assert "none there" in said, said


def _read(r: torch.Tensor) -> torch.Tensor:
    h, out = torch.zeros(3, dtype=r.dtype), []
    for t in range(5):
        h = 0.8 * h + torch.tanh(r[t])
        out.append((h * r[t]).sum())
    return torch.stack(out)


def test_a_state_that_is_read_before_its_update_is_told() -> None:
    def port(r: Any) -> Any:
        def turn(h: Any, x: Any) -> Any:
            y = (h * x).sum()
            return 0.8 * h + jnp.tanh(x), y

        return jax.lax.scan(turn, jnp.zeros(3), r)[1]

    said = _said(_read, port, _SERIES)
    assert "in the turn before there" in said or "value taken" in said, said


def test_values_that_one_line_makes_are_told_apart_by_their_number() -> None:
    def slope(y: Any, w: Any) -> Any:
        return torch.tanh(y @ w)

    def stepped(x: torch.Tensor) -> torch.Tensor:
        w, a, y = torch.from_numpy(_W), torch.from_numpy(_A), x
        for _ in range(3):
            k = slope(y, w)
            second = slope(y * 1.5 + 0.1 * k, w)
            y = y + 0.2 * second
        return y @ a

    said = _said(stepped, _stepped_port, _X)
    assert "(number 2 of that line) here" in said, said
    assert "(number 1 of that line) there" in said, said


@pytest.mark.parametrize(("mask", "turned"), [(np.ones((3, 3), bool), False), (np.tril(np.ones((3, 3), bool)), True)])
def test_a_mask_that_is_set_everywhere_is_not_turned_round(mask: np.ndarray, turned: bool) -> None:
    said = [change.other for change in changes_of([ProgramOperation("ones", "mine.py:3", (), (mask,))], 0)]
    assert ("the other way round" in said) == turned
    assert "set nowhere" in said
