"""Where a gradient is stopped in one of two losses alone, and where it is scaled on its way back."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

from jax_side.probes.programs import JaxProgram
from parity.checks.proving.stops import _cause, _Draw
from torch_side.probes.programs import TorchProgram

_SHAPES = {"u": (4, 3), "w": (3, 3)}
_DRAWS = [
    {leaf: np.random.default_rng([seed, at]).standard_normal(shape) for at, (leaf, shape) in enumerate(
        {**_SHAPES, "x": (5, 4), "y": (5, 4)}.items())}
    for seed in (1, 2)
]  # fmt: skip
_ONE = [np.ones(())]


def _distance(p: Any, z: Any, stop: Callable[[Any], Any]) -> Any:
    z = stop(z)
    return -(p * z).sum() + 0.1 * (z * z * p).sum()


def _twice(held: Any, tanh: Callable[[Any], Any], stop: Callable[[Any], Any]) -> Any:
    """Return a loss of two views, each against the other that is stopped: one line, in two calls."""
    a, b = (tanh(held[key] @ held["u"]) for key in ("x", "y"))
    return _distance(a @ held["w"], b, stop) + _distance(b @ held["w"], a, stop)


def _target(held: Any, tanh: Callable[[Any], Any], stop: Callable[[Any], Any]) -> Any:
    a, b = (tanh(held[key] @ held["u"]) for key in ("x", "y"))
    return ((a @ held["w"] - stop(b @ held["w"])) ** 2).sum()


def _plain(value: Any) -> Any:
    return value


@jax.custom_vjp
def _reversed(value: Any) -> Any:
    return value


_reversed.defvjp(lambda value: (value, None), lambda _, back: (-0.3 * back,))

Loss = Callable[[Any, Callable[[Any], Any], Callable[[Any], Any]], Any]


def _said(loss: Loss, here: Callable[[Any], Any], there: Callable[[Any], Any]) -> str:
    draws = []
    for draw in _DRAWS:
        held = {key: torch.from_numpy(one.copy()).requires_grad_(key in _SHAPES) for key, one in draw.items()}
        grads = torch.autograd.grad(loss(held, torch.tanh, here), [held[leaf] for leaf in _SHAPES])
        own = {leaf: grad.numpy() for leaf, grad in zip(_SHAPES, grads, strict=True)}
        plain = {key: one.detach() for key, one in held.items()}
        one = TorchProgram(lambda plain=plain: lambda: loss(plain, torch.tanh, here))  # type: ignore[misc]
        with jax.enable_x64(True):
            leaves = {leaf: jnp.asarray(draw[leaf]) for leaf in _SHAPES}
            rest = {key: jnp.asarray(draw[key]) for key in "xy"}

            def run(leaves: Any, rest: Any) -> Any:
                return [loss({**leaves, **rest}, jnp.tanh, there)]

            two = JaxProgram(run, leaves, rest)
            made = jax.grad(lambda leaves, rest=rest: run(leaves, rest)[0])(leaves)  # type: ignore[misc]
        other = {leaf: np.asarray(made[leaf]) for leaf in _SHAPES}
        draws.append(_Draw((one, two), (own, other), (_ONE, _ONE)))
    models = SimpleNamespace(leaves=dict(_SHAPES))
    pairing = SimpleNamespace(subjects=SimpleNamespace(first=models, second=models), over=lambda one, grads: one)
    return _cause(pairing, draws)  # type: ignore[arg-type]


@pytest.mark.parametrize("loss", [_twice, _target])
def test_a_stop_that_the_port_has_not_is_told_with_its_line(loss: Loss) -> None:
    said = _said(loss, torch.Tensor.detach, _plain)
    assert said.startswith("gradient stopped: there it goes back through what "), said
    assert "here it is stopped at test_stops.py:" in said
    assert said.endswith("(with that changed all gradients are equal)")


@pytest.mark.parametrize("loss", [_twice, _target])
def test_a_stop_that_the_port_alone_has_is_told_with_its_line(loss: Loss) -> None:
    said = _said(loss, _plain, jax.lax.stop_gradient)
    assert said.startswith("gradient stopped: at `stop("), said
    assert "there, not here" in said


def test_a_gradient_that_is_scaled_on_its_way_back_is_told_by_how_much() -> None:
    class Scaled(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, value: Any) -> Any:
            return value.clone()

        @staticmethod
        def backward(ctx: Any, back: Any) -> Any:
            return -0.3 * back

    said = _said(_target, Scaled.apply, _plain)
    assert said.startswith("gradient scaled: of what goes back through what "), said
    assert "here it is -0.3 times what it is there" in said


def test_two_weights_that_are_exchanged_behind_stops_are_told_together() -> None:
    """Both terms have one value, and only their gradients differ."""

    def loss(held: Any, tanh: Callable[[Any], Any], stop: Callable[[Any], Any]) -> Any:
        a, b = tanh(held["x"] @ held["u"]), held["y"] @ held["u"] @ held["w"]
        here, there = (1.0, 0.25) if tanh is torch.tanh else (0.25, 1.0)
        return here * ((a - stop(b)) ** 2).sum() + there * ((b - stop(a)) ** 2).sum()

    said = _said(loss, torch.Tensor.detach, jax.lax.stop_gradient)
    assert said.count("gradient scaled: ") == 2, said
    assert "here it is 4 times what it is there" in said
    assert "here it is 0.25 times what it is there" in said
    assert said.endswith("(with both changed all gradients are equal)")


@pytest.mark.parametrize("loss", [_twice, _target])
def test_where_both_stop_alike_nothing_is_told(loss: Loss) -> None:
    assert _said(loss, torch.Tensor.detach, jax.lax.stop_gradient) == ""


def test_a_derivative_of_its_own_stays_as_it_is() -> None:
    assert _said(_target, torch.Tensor.detach, _reversed).startswith("gradient s")


def test_what_no_stop_explains_has_no_cause() -> None:
    assert _said(lambda held, tanh, stop: _target(held, tanh, stop) * (3.0 if tanh is jnp.tanh else 1.0) ** 0.5,
                 torch.Tensor.detach, lambda value: jax.lax.stop_gradient(value) * 0.5) == ""  # fmt: skip
