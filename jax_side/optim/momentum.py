"""Optimizers that follow an averaged gradient: SGD, Lion, ASGD, Rprop."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp

from jax_side.optim.arithmetic import like, product_sign, wide
from jax_side.optim.groups import Optimizer
from jax_side.optim.rules import Slots, StepContext, moved, register
from jax_side.optim.transform import make
from parity.state import has_effect

__all__ = ["asgd", "lion", "rprop", "sgd"]


def sgd(
    lr: Any = 1e-3,
    momentum: float = 0,
    dampening: float = 0,
    weight_decay: float = 0,
    nesterov: bool = False,
    *,
    maximize: bool = False,
    **options: Any,
) -> Optimizer:
    """Return torch.optim.SGD as an Optax transformation.

    The first buffer is the gradient itself; `optax.sgd` starts from zeros, which differs once `dampening` is not 0,
    and has neither dampening nor decay.

    Args:
        lr: Learning rate: a number, or a schedule of Optax.
        momentum: Weight of the buffer; 0 for none.
        dampening: 1 minus the weight of the gradient that enters the buffer.
        weight_decay: Coupled: its product with the parameter is added to the gradient.
        nesterov: Whether to look one step ahead; needs momentum and no dampening.
        maximize: Whether to climb.
        **options: `groups`, `kinds`, `leaves`, `scalar_dtype`, and torch's flags, which change nothing here.

    Raises:
        SpecError: A value outside of its range.
        UnknownNameError: An option that does not exist; lists those that do.

    Source: torch.optim.SGD (2.13); Sutskever et al., ICML 2013.

    Example:
        >>> import jax.numpy as jnp
        >>> tx = sgd(lr=0.5)
        >>> params = {"w": jnp.ones(2)}
        >>> updates, state = tx.update({"w": jnp.ones(2)}, tx.init(params), params)
        >>> updates["w"].tolist()
        [-0.5, -0.5]
    """
    own = {"lr": lr, "momentum": momentum, "dampening": dampening, "weight_decay": weight_decay}
    return make("SGD", {**own, "nesterov": nesterov, "maximize": maximize}, options)


def _sgd(g: jax.Array, p: jax.Array, slots: Slots, at: StepContext) -> tuple[jax.Array, Slots]:
    h = at.h
    if has_effect(h["weight_decay"]):
        g = at.stored(g + at.term(h["weight_decay"], g) * p)
    if "momentum" in slots:
        mu, weight = like(h["momentum"], g), 1 - h["dampening"]
        buffer = at.stored(at.product(mu * slots["momentum"]) + at.term(weight, g) * g)
        if has_effect(h["dampening"]):
            buffer = jnp.where(at.first, g, buffer)
        slots = {"momentum": buffer}
        g = at.stored(g + at.term(mu, g) * buffer) if h["nesterov"] else buffer
    return -at.term(h["lr"], g) * g, slots


def lion(
    lr: Any = 1e-4,
    betas: tuple[float, float] = (0.9, 0.99),
    weight_decay: float = 0.0,
    *,
    maximize: bool = False,
    **options: Any,
) -> Optimizer:
    """Return Lion: the sign of an interpolated gradient; torch.optim has no such class.

    `optax.lion` takes the same steps with `weight_decay` given: its default is 1e-3.

    Args:
        lr: Learning rate: a number, or a schedule of Optax.
        betas: Weight of the momentum in the step, and in the next momentum.
        weight_decay: Decoupled, scaled by the learning rate.
        maximize: Whether to climb.
        **options: As of `sgd`.

    Raises:
        SpecError: A value outside of its range.
        UnknownNameError: An option that does not exist; lists those that do.

    Source: Chen et al., arXiv:2302.06675, algorithm 2.
    """
    own = {"lr": lr, "betas": betas, "weight_decay": weight_decay, "maximize": maximize}
    return make("Lion", own, options)


def _lion(g: jax.Array, p: jax.Array, slots: Slots, at: StepContext) -> tuple[jax.Array, Slots]:
    (b1, b2), m = at.h["betas"], slots["momentum"]
    sign = jnp.sign(at.product(like(b1, m) * m) + like(1 - b1, g) * g)
    momentum = at.stored(at.product(like(b2, m) * m) + like(1 - b2, g) * g)
    return moved(p, at.decayed(p), -at.term(at.h["lr"], g) * sign), {"momentum": momentum}


def rprop(
    lr: Any = 1e-2,
    etas: tuple[float, float] = (0.5, 1.2),
    step_sizes: tuple[float, float] = (1e-6, 50),
    *,
    maximize: bool = False,
    **options: Any,
) -> Optimizer:
    """Return torch.optim.Rprop as an Optax transformation.

    The learning rate is the first step size of every element and has no meaning later. `optax.rprop` lets an element
    whose sign has just changed move; torch holds it for one step.

    Args:
        lr: First step size: a number, or a schedule of Optax.
        etas: Factors of a step size after a change of sign, and after none.
        step_sizes: Smallest and largest step size.
        maximize: Whether to climb.
        **options: As of `sgd`.

    Raises:
        SpecError: A value outside of its range.
        UnknownNameError: An option that does not exist; lists those that do.

    Source: torch.optim.Rprop (2.13); Riedmiller and Braun, ICNN 1993.
    """
    return make("Rprop", {"lr": lr, "etas": etas, "step_sizes": step_sizes, "maximize": maximize}, options)


def _rprop(g: jax.Array, p: jax.Array, slots: Slots, at: StepContext) -> tuple[jax.Array, Slots]:
    del p
    (minus, plus), (low, high) = at.h["etas"], at.h["step_sizes"]
    sign = product_sign(g, slots["previous_gradient"])
    factor = jnp.where(sign > 0, plus, jnp.where(sign < 0, minus, 1))  # torch's sign of NaN is 0: nothing moves
    size = jnp.where(at.first, like(at.h["lr"], g), slots["step_size"])
    size = jnp.clip(at.stored(size * at.stored(factor.astype(g.dtype))), low, high)
    held = jnp.where(sign < 0, 0, g)
    way = jnp.where(jnp.isnan(held), 0, jnp.sign(held))
    return -way * size, {"previous_gradient": held, "step_size": size}


def asgd(
    lr: Any = 1e-2,
    lambd: float = 1e-4,
    alpha: float = 0.75,
    t0: float = 1e6,
    weight_decay: float = 0,
    *,
    maximize: bool = False,
    **options: Any,
) -> Optimizer:
    """Return torch.optim.ASGD as an Optax transformation; Optax has none.

    The rate of a step was computed after the step before it, so a learning rate given with an update acts one update
    later. The average of the parameters is the slot `average`.

    Args:
        lr: Learning rate: a number, or a schedule of Optax.
        lambd: Decay of the parameters and of the rate.
        alpha: Power of the rate's decay.
        t0: Update from which on the parameters are averaged.
        weight_decay: Coupled: its product with the parameter is added to the gradient.
        maximize: Whether to climb.
        **options: As of `sgd`; `foreach` is torch's False, for with True it computes the rate in float32, also in a
            loss of float64 (2e-8 of it). With `scalar_dtype` float32, the rate is rounded to float32, as torch does.

    Raises:
        SpecError: A value outside of its range.
        UnknownNameError: An option that does not exist; lists those that do.

    Source: torch.optim.ASGD (2.13); Polyak and Juditsky, SIAM J. Control Optim. 30, 1992.
    """
    own = {"lr": lr, "lambd": lambd, "alpha": alpha, "t0": t0, "weight_decay": weight_decay, "maximize": maximize}
    return make("ASGD", own, options)


def _asgd_scalars(
    h: Mapping[str, Any], t: jax.Array, first: jax.Array, kept: Mapping[str, jax.Array]
) -> dict[str, jax.Array]:
    scalar = kept["rate"].dtype
    rate = jnp.where(first, h["lr"].astype(scalar), kept["rate"]).astype(wide())
    return {
        "now": rate,
        "left": 1 - h["lambd"] * rate,
        "weight": kept["average_weight"].astype(wide()),
        "rate": h["lr"] / (1 + h["lambd"] * h["lr"] * t) ** h["alpha"],
        "average_weight": 1 / jnp.maximum(1, t - h["t0"]),
    }


def _asgd(g: jax.Array, p: jax.Array, slots: Slots, at: StepContext) -> tuple[jax.Array, Slots]:
    h, once = at.h, at.once
    if has_effect(h["weight_decay"]):
        g = at.stored(g + at.term(h["weight_decay"], g) * p)
    start, step = at.product(p * like(once["left"], p)), -at.term(once["now"], g) * g
    new, average, weight = at.stored(start + step), slots["average"], like(once["weight"], p)
    apart = at.product(at.stored(new - average) * weight)
    average = jnp.where(weight == 1, new, at.stored(average + apart))
    return moved(p, start, step), {"average": average}


register("SGD", _sgd)
register("Lion", _lion)
register("Rprop", _rprop)
register("ASGD", _asgd, _asgd_scalars)
