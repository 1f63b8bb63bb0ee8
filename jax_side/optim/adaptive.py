"""Optimizers that divide by the size of past gradients: RMSprop, Adagrad, Adadelta."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from jax_side.optim.arithmetic import lerp, like
from jax_side.optim.groups import Optimizer
from jax_side.optim.rules import Slots, StepContext, register
from jax_side.optim.transform import make
from parity.state import has_effect

__all__ = ["adadelta", "adagrad", "rmsprop"]


def rmsprop(
    lr: Any = 1e-2,
    alpha: float = 0.99,
    eps: float = 1e-8,
    weight_decay: float = 0,
    momentum: float = 0,
    centered: bool = False,
    *,
    maximize: bool = False,
    **options: Any,
) -> Optimizer:
    """Return torch.optim.RMSprop as an Optax transformation.

    `optax.rmsprop` decays by 0.9 unless told otherwise, adds `eps` inside the root, and its momentum holds the
    learning rate, which is another optimizer once the rate changes.

    Args:
        lr: Learning rate: a number, or a schedule of Optax.
        alpha: Decay of the mean of squares.
        eps: Added to the root.
        weight_decay: Coupled: its product with the parameter is added to the gradient.
        momentum: Weight of a buffer of steps; 0 for none.
        centered: Whether to divide by the standard deviation.
        maximize: Whether to climb.
        **options: As of `sgd`.

    Raises:
        SpecError: A value outside of its range.
        UnknownNameError: An option that does not exist; lists those that do.

    Source: torch.optim.RMSprop (2.13); Graves, arXiv:1308.0850.
    """
    own = {"lr": lr, "alpha": alpha, "eps": eps, "weight_decay": weight_decay, "momentum": momentum}
    return make("RMSprop", {**own, "centered": centered, "maximize": maximize}, options)


@partial(jax.jit, inline=True)
def _less_square(x: jax.Array, mean: jax.Array) -> jax.Array:
    """Return x - mean * mean in one rounding, as PyTorch contracts it: negative in both or in neither.

    Compiled by itself too, as the two operations of a step that is not compiled would round twice.
    """
    return x - mean * mean


def _rmsprop(g: jax.Array, p: jax.Array, slots: Slots, at: StepContext) -> tuple[jax.Array, Slots]:
    h, alpha = at.h, at.h["alpha"]
    if has_effect(h["weight_decay"]):
        g = at.stored(g + at.term(h["weight_decay"], g) * p)
    squares = at.product(alpha * slots["second_moment"]) + (1 - alpha) * g * g
    new = {"second_moment": at.stored(squares)}
    variance = new["second_moment"]
    if "first_moment" in slots:
        mean = at.stored(lerp(slots["first_moment"], g, 1 - alpha))
        new["first_moment"] = mean
        variance = at.stored(_less_square(variance, mean))
    scale = at.stored(at.stored(jnp.sqrt(variance)) + at.term(h["eps"], g))
    if "momentum" not in slots:
        return -like(h["lr"], g) * g / scale, new
    buffer = at.stored(at.product(like(h["momentum"], g) * slots["momentum"]) + g / scale)
    return -at.term(h["lr"], g) * buffer, {**new, "momentum": buffer}


def adagrad(
    lr: Any = 1e-2,
    lr_decay: float = 0,
    weight_decay: float = 0,
    initial_accumulator_value: float = 0,
    eps: float = 1e-10,
    *,
    maximize: bool = False,
    **options: Any,
) -> Optimizer:
    """Return torch.optim.Adagrad as an Optax transformation.

    `optax.adagrad` starts its sum at 0.1, adds `eps` inside the root, and has neither decay.

    Args:
        lr: Learning rate: a number, or a schedule of Optax.
        lr_decay: The rate is divided by 1 plus this times the updates before.
        weight_decay: Coupled: its product with the parameter is added to the gradient.
        initial_accumulator_value: Where the sums of squares start.
        eps: Added to the root.
        maximize: Whether to climb.
        **options: As of `sgd`.

    Raises:
        SpecError: A value outside of its range.
        UnknownNameError: An option that does not exist; lists those that do.

    Source: torch.optim.Adagrad (2.13); Duchi et al., JMLR 12, 2011.
    """
    own = {"lr": lr, "lr_decay": lr_decay, "weight_decay": weight_decay, "eps": eps, "maximize": maximize}
    return make("Adagrad", {**own, "initial_accumulator_value": initial_accumulator_value}, options)


def _adagrad(g: jax.Array, p: jax.Array, slots: Slots, at: StepContext) -> tuple[jax.Array, Slots]:
    h = at.h
    if has_effect(h["weight_decay"]):
        g = at.stored(g + at.term(h["weight_decay"], g) * p)
    total = at.stored(slots["sum_of_squares"] + g * g)
    root = at.stored(at.stored(jnp.sqrt(total)) + at.term(h["eps"], g))
    return -like(at.once["rate"], g) * g / root, {"sum_of_squares": total}


def _adagrad_scalars(h: Mapping[str, Any], t: jax.Array, first: jax.Array, kept: Any) -> dict[str, jax.Array]:
    return {"rate": h["lr"] / (1 + (t - 1) * h["lr_decay"])}


def adadelta(
    lr: Any = 1.0,
    rho: float = 0.9,
    eps: float = 1e-6,
    weight_decay: float = 0,
    *,
    maximize: bool = False,
    **options: Any,
) -> Optimizer:
    """Return torch.optim.Adadelta as an Optax transformation.

    `optax.adadelta` takes the same steps, its decay coupled as here; its learning rate has no default.

    Args:
        lr: Learning rate: a number, or a schedule of Optax.
        rho: Decay of both means of squares.
        eps: Added inside both roots.
        weight_decay: Coupled: its product with the parameter is added to the gradient.
        maximize: Whether to climb.
        **options: As of `sgd`.

    Raises:
        SpecError: A value outside of its range.
        UnknownNameError: An option that does not exist; lists those that do.

    Source: torch.optim.Adadelta (2.13); Zeiler, arXiv:1212.5701.
    """
    own = {"lr": lr, "rho": rho, "eps": eps, "weight_decay": weight_decay, "maximize": maximize}
    return make("Adadelta", own, options)


def _adadelta(g: jax.Array, p: jax.Array, slots: Slots, at: StepContext) -> tuple[jax.Array, Slots]:
    h, rho = at.h, at.h["rho"]
    if has_effect(h["weight_decay"]):
        g = at.stored(g + at.term(h["weight_decay"], g) * p)
    eps = at.term(h["eps"], g)
    squares = at.stored(at.product(rho * slots["second_moment"]) + (1 - rho) * g * g)
    root = at.stored(jnp.sqrt(at.stored(squares + eps)))
    step = at.stored(jnp.sqrt(at.stored(slots["squared_updates"] + eps)))
    step = at.product(at.stored(step / root) * g)
    updates = at.stored(at.product(rho * slots["squared_updates"]) + (1 - rho) * step * step)
    return -at.term(h["lr"], g) * step, {"second_moment": squares, "squared_updates": updates}


register("RMSprop", _rmsprop)
register("Adagrad", _adagrad, _adagrad_scalars)
register("Adadelta", _adadelta)
