"""Optimizers that see a parameter as a matrix, not as numbers: Adafactor, Muon."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp

from jax_side.optim.arithmetic import halved, lerp, like
from jax_side.optim.groups import Optimizer
from jax_side.optim.rules import Slots, StepContext, moved, register
from jax_side.optim.transform import make

__all__ = ["adafactor", "muon"]


def adafactor(
    lr: Any = 1e-2,
    beta2_decay: float = -0.8,
    eps: tuple[float | None, float] = (None, 1e-3),
    d: float = 1.0,
    weight_decay: float = 0.0,
    *,
    maximize: bool = False,
    **options: Any,
) -> Optimizer:
    """Return torch.optim.Adafactor as an Optax transformation.

    `optax.adafactor` factors the two largest dimensions, and only from 128 on; torch always the last two of PyTorch's
    layout. Say in `leaves` where JAX's is another one. The rate of a step is bounded by 1 / sqrt(step).

    Args:
        lr: Largest relative learning rate: a number, or a schedule of Optax.
        beta2_decay: Power of the step that is 1 minus the decay of the second moment.
        eps: Smallest root of the second moment, None for the epsilon of the parameter's dtype; smallest size of a
            parameter that scales its rate.
        d: Largest root mean square of a step before the rate.
        weight_decay: Decoupled, scaled by the learning rate.
        maximize: Whether to climb.
        **options: As of `sgd`.

    Raises:
        SpecError: A value outside of its range.
        UnknownNameError: An option that does not exist; lists those that do.

    Source: torch.optim.Adafactor (2.13); Shazeer and Stern, arXiv:1804.04235.
    """
    own = {"lr": lr, "beta2_decay": beta2_decay, "eps": eps, "d": d, "weight_decay": weight_decay}
    return make("Adafactor", {**own, "maximize": maximize}, options)


def _adafactor(g: jax.Array, p: jax.Array, slots: Slots, at: StepContext) -> tuple[jax.Array, Slots]:
    h = at.h
    eps1 = h["eps"][0] if h["eps"][0] is not None else float(jnp.finfo(p.dtype).eps)
    weight, keep = at.once["weight"], at.stored
    size = _at_least(h["eps"][1], keep(_norm(p)) / _root(p))
    rate = size * like(at.once["rate"], p)
    start = at.decayed(p)
    if g.ndim > 1:
        means = [keep(keep(keep(_norm(g, axis)) ** 2) / max(1, g.shape[axis])) for axis in (-1, -2)]
        rows = keep(lerp(slots["row_variance"], means[0], weight))
        columns = keep(lerp(slots["column_variance"], means[1], weight))
        slots = {"row_variance": rows, "column_variance": columns}
        mean = keep(jnp.mean(rows, axis=-2, keepdims=True))
        variance = keep(keep(rows * columns) / jnp.maximum(mean, eps1))
    else:
        variance = keep(lerp(slots["variance"], keep(g * g), weight))
        slots = {"variance": variance}
    step = keep(keep(jax.lax.rsqrt(jnp.maximum(variance, eps1 * eps1))) * g)
    factor = -rate / _at_least(1.0, keep(_norm(step)) / (_root(step) * h["d"]))
    return moved(p, start, keep(factor) * step), slots


def _adafactor_scalars(h: Mapping[str, Any], t: jax.Array, first: jax.Array, kept: Any) -> dict[str, jax.Array]:
    return {"weight": t ** h["beta2_decay"], "rate": jnp.minimum(h["lr"], 1 / jnp.sqrt(t))}


def _norm(x: jax.Array, axis: int | None = None) -> jax.Array:
    """Return the root of the sum of squares, over all elements or along an axis that stays."""
    return jnp.sqrt(jnp.sum(x * x, axis=axis, keepdims=axis is not None))


def _at_least(least: float, x: jax.Array) -> jax.Array:
    """Return the larger of two scalars as Python's `max` does, which torch calls: `least` where x is NaN.

    So a gradient with one NaN spoils that element alone, not all that a norm is taken of.
    """
    return jnp.where(x > least, x, like(least, x))


def _root(x: jax.Array) -> float:
    """Return the root of the number of elements, 1 of none."""
    return math.sqrt(max(1, x.size))


def muon(
    lr: Any = 1e-3,
    weight_decay: float = 0.1,
    momentum: float = 0.95,
    nesterov: bool = True,
    ns_coefficients: tuple[float, float, float] = (3.4445, -4.7750, 2.0315),
    eps: float = 1e-7,
    ns_steps: int = 5,
    adjust_lr_fn: str | None = None,
    **options: Any,
) -> Optimizer:
    """Return torch.optim.Muon as an Optax transformation, for matrices.

    Other parameters need another optimizer: a rule of a group names it, as in
    `GroupRule(label="others", ndim=(0, 1), arguments={"optimizer": "AdamW"})`. `optax.contrib.muon` sums its momentum
    where torch interpolates, and has other defaults. The rate depends on the shape in PyTorch's layout; say in
    `leaves` where JAX's is another one.

    Args:
        lr: Learning rate: a number, or a schedule of Optax.
        weight_decay: Decoupled, scaled by the learning rate.
        momentum: Decay of the buffer.
        nesterov: Whether to look one step ahead.
        ns_coefficients: Of the quintic polynomial.
        eps: Smallest norm that is divided by.
        ns_steps: Iterations.
        adjust_lr_fn: How the shape scales the rate: None or `original`: sqrt(max(1, rows / columns));
            `match_rms_adamw`: 0.2 sqrt(max(rows, columns)).
        **options: As of `sgd`, and `iteration_dtype`: float64 leaves the iteration as exact as the parameters, which
            torch does not offer.

    Raises:
        SpecError: A value outside of its range.
        UnknownNameError: An option that does not exist; lists those that do.

    Numerics: torch iterates in bfloat16 for parameters of any dtype, and so does this by default. The kernels add in
    other orders, so that elements of the step, which are up to 1, differ: by up to 0.007 for 256 x 512, 0.016 for
    64 x 64, 0.1 for 6 x 4 (normal gradients, torch 2.13 and jax 0.10 on a CPU).
    Source: torch.optim.Muon (2.13); Jordan, https://kellerjordan.github.io/posts/muon/.

    Example:
        >>> import jax.numpy as jnp
        >>> from parity.state import GroupRule
        >>> matrices = GroupRule(label="matrices", ndim=(2,))
        >>> others = GroupRule(label="others", ndim=(0, 1), arguments={"optimizer": "AdamW", "lr": 3e-4})
        >>> tx = muon(lr=1e-2, groups=(matrices, others))
        >>> sorted(tx.init({"bias": jnp.zeros(3), "weight": jnp.zeros((3, 2))}).slots)
        ['first_moment', 'momentum', 'second_moment']
    """
    own = {"lr": lr, "weight_decay": weight_decay, "momentum": momentum, "nesterov": nesterov, "eps": eps}
    shape = {"ns_coefficients": ns_coefficients, "ns_steps": ns_steps, "adjust_lr_fn": adjust_lr_fn}
    return make("Muon", {**own, **shape}, options)


def _muon(g: jax.Array, p: jax.Array, slots: Slots, at: StepContext) -> tuple[jax.Array, Slots]:
    h = at.h
    buffer = at.stored(lerp(slots["momentum"], g, 1 - h["momentum"]))
    update = at.stored(lerp(g, buffer, h["momentum"])) if h["nesterov"] else buffer
    rows, columns = p.shape
    ratio = 0.2 * math.sqrt(max(rows, columns)) if h["adjust_lr_fn"] == "match_rms_adamw" else None
    ratio = ratio if ratio is not None else math.sqrt(max(1, rows / columns)) if columns else 1.0
    step = -at.term(h["lr"] * ratio, p) * _orthogonal(update, h).astype(p.dtype)
    return moved(p, at.decayed(p), step), {"momentum": buffer}


def _orthogonal(update: jax.Array, h: Any) -> jax.Array:
    """Return a matrix with the singular vectors of `update`, its singular values near 1.

    Numerics: in bfloat16, each product is added and scaled in float32 and rounded once, as torch.addmm does it. The
    values are kept in float32, for XLA drops a cast to bfloat16 and back, and with it the rounding.
    """
    a, b, c = h["ns_coefficients"]
    tall = update.shape[0] > update.shape[1]
    kind = jnp.dtype(h.get("iteration_dtype", jnp.bfloat16))
    exact = jnp.promote_types(kind, jnp.float32)
    near = lambda x: halved(x, kind)  # noqa: E731
    x = near((update.T if tall else update).astype(exact))
    x = near(x / jnp.maximum(near(jnp.linalg.norm(x)), near(jnp.asarray(h["eps"], exact))))
    for _ in range(h["ns_steps"]):
        gram = near(_product(x, x.T))
        quadratic = near(b * gram + c * _product(gram, gram))
        x = near(a * x + _product(quadratic, x))
    return x.T if tall else x


def _product(left: jax.Array, right: jax.Array) -> jax.Array:
    return jnp.matmul(left, right, precision="highest")


register("Adafactor", _adafactor, _adafactor_scalars)
register("Muon", _muon)
