"""What two programs compute otherwise in one of several turns of a line is told of that turn, and by its numbers."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import torch

from parity.checks.programs import explain
from parity.checks.programs.grafts import grafted
from parity.checks.programs.matching import candidates_of
from tests.support.programs import traced


def _attend(x: Any, bias: Any, mask: Any) -> Any:
    scores = torch.sin(x) + bias
    return scores.masked_fill(~mask, -1e9).softmax(-1) @ x


def _attended(x: Any, bias: Any, mask: Any) -> Any:
    scores = jnp.sin(x) + bias
    return jax.nn.softmax(jnp.where(mask, scores, -1e9), -1) @ x


def test_a_term_that_only_the_first_layer_has_is_told_of_a_later_one() -> None:
    mask = np.tril(np.ones((4, 4), bool))

    def trainer(x: Any, bias: Any) -> Any:
        for _ in range(3):
            x = _attend(x, bias, torch.from_numpy(mask))
        return x

    def port(x: Any, bias: Any) -> Any:
        for _ in range(3):
            x, bias = _attended(x, bias, jnp.asarray(mask)), jnp.zeros_like(bias)
        return x

    draws = [[np.random.default_rng((at, n)).standard_normal((4, 4)) for n in range(2)] for at in range(3)]
    found = explain(*traced(trainer, port, draws))
    assert found, "the term is there in the first layer, and not in the others"
    text = found[0].text
    here, _, there = text.partition(" there")[0].partition(" here")
    assert "a + b" in here or text.startswith("left out: add is applied here"), text
    assert "a + b" not in there, text


def test_a_number_before_whole_numbers_is_told_and_not_a_function_that_gives_the_same() -> None:
    table = np.random.default_rng(5).standard_normal(8)

    def trainer(x: Any) -> Any:
        away = torch.arange(1, 11, dtype=torch.float64)
        at = (torch.log(away / 2) / np.log(8.0) * 4 + 2).long()
        return torch.exp(x + torch.from_numpy(table)[at.clamp(max=7)])

    def port(x: Any) -> Any:
        at = (jnp.log(jnp.arange(1, 11) / 2) / np.log(4.0) * 4 + 2).astype(int)
        return jnp.exp(x + jnp.asarray(table)[jnp.minimum(at, 7)])

    draws = [[np.random.default_rng(at).standard_normal((3, 10))] for at in range(3)]
    text = explain(*traced(trainer, port, draws))[0].text
    assert "2.07944" in text or "1.5 " in text, text
    assert "1.38629" in text or "number" in text or "factor" in text, text
    assert "GELU" not in text, text


def test_labels_that_are_moved_round_are_not_called_the_labels() -> None:
    table = np.random.default_rng(6).standard_normal((9, 3))

    def trainer(x: Any, label: Any) -> Any:
        moved = torch.nn.functional.pad(label[:, :-1], (1, 0), value=0)
        return torch.tanh(x) * torch.from_numpy(table)[moved]

    def port(x: Any, label: Any) -> Any:
        return jnp.tanh(x) * jnp.asarray(table)[jnp.roll(label, 1, axis=1)]

    draws = []
    for at in range(3):
        rng = np.random.default_rng(at)
        draws.append([rng.standard_normal((2, 5, 3)), rng.integers(1, 9, (2, 5))])
    text = explain(*traced(trainer, port, draws))[0].text
    assert "roll" in text or "pad" in text, text


def test_an_operation_of_which_one_of_two_results_is_another_parts() -> None:
    """The mean that it gives is the other program's, and the variance is not."""

    def trainer(x: Any) -> Any:
        variance, mean = torch.var_mean(x, -1, keepdim=True)
        return (x - mean) * torch.rsqrt(variance)

    def port(x: Any) -> Any:
        return (x - x.mean(-1, keepdims=True)) * jax.lax.rsqrt(x.var(-1, keepdims=True))

    draws = [[np.random.default_rng(at).standard_normal((4, 6))] for at in range(2)]
    here, there = traced(trainer, port, draws)
    kinds = [here[0].operations[at].kind for at in candidates_of(here[0].operations, there[0].operations).entries]
    assert "var_mean" in kinds, kinds


def test_a_norm_that_some_of_its_calls_are_more_than_the_other_has_is_left_out() -> None:
    """What two layers read is normalised once more in one program, by a function that all lines call."""

    def normed(x: Any) -> Any:
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6)

    def norm(x: Any) -> Any:
        return x * jax.lax.rsqrt((x**2).mean(-1, keepdims=True) + 1e-6)

    def trainer(x: Any, memory: Any) -> Any:
        for _ in range(2):
            x = x + torch.sin(normed(torch.tanh(x)) @ memory.transpose(0, 1)) @ memory
        return normed(torch.tanh(x))

    def port(x: Any, memory: Any) -> Any:
        for _ in range(2):
            held = norm(memory)
            x = x + jnp.sin(norm(jnp.tanh(x)) @ held.T) @ held
        return norm(jnp.tanh(x))

    draws = [[np.random.default_rng((at, n)).standard_normal((5, 4)) for n in range(2)] for at in range(3)]
    here, there = traced(trainer, port, draws)
    place = grafted(here, there, None, 6.0)
    assert place is not None, "the norm of what is read"
    assert place.text.startswith("left out: not here, "), place.text
    assert "rsqrt" in place.text


def test_calls_at_several_lines_are_those_of_a_helper_in_as_many_turns() -> None:
    def trainer(x: Any, w: Any, mean: Any, var: Any, one: Any, two: Any) -> Any:
        x = torch.nn.functional.batch_norm(x, mean, var, one, None, eps=1e-3)
        x = torch.tanh(x) @ w
        return torch.sin(torch.nn.functional.batch_norm(x, mean, var, two, None, eps=1e-3))

    def norm(x: Any, mean: Any, var: Any, scale: Any) -> Any:
        return (x - mean) / (jnp.sqrt(var) + 1e-3) * scale

    def port(x: Any, w: Any, mean: Any, var: Any, one: Any, two: Any) -> Any:
        return jnp.sin(norm(jnp.tanh(norm(x, mean, var, one)) @ w, mean, var, two))

    shapes = ((7, 5), (5, 5), (5,), (5,), (5,), (5,))
    draws = [[np.random.default_rng((at, n)).uniform(0.5, 1.5, s) for n, s in enumerate(shapes)] for at in range(3)]
    found = explain(*traced(trainer, port, draws))
    assert found
    text = found[0].text
    assert "`batch_norm(a, b, c, d, momentum=0.1, eps=0.001)`" in text, text
    assert "`(a - b) / (sqrt(c) + 0.001) * d`" in text, text
