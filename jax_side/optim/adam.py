"""Adam and its kin: Adam, AdamW, NAdam, RAdam, Adamax."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp

from jax_side.optim.arithmetic import correction, lerp, like, power, quotient, wide
from jax_side.optim.groups import Optimizer
from jax_side.optim.rules import Slots, StepContext, moved, register
from jax_side.optim.transform import make
from parity.state import has_effect

__all__ = ["adam", "adamax", "adamw", "nadam", "radam"]

Betas = tuple[float, float]


def adam(
    lr: Any = 1e-3,
    betas: Betas = (0.9, 0.999),
    eps: float = 1e-8,
    weight_decay: float = 0,
    amsgrad: bool = False,
    *,
    maximize: bool = False,
    decoupled_weight_decay: bool = False,
    **options: Any,
) -> Optimizer:
    """Return torch.optim.Adam as an Optax transformation.

    `optax.adam` has no decay, and takes the bias corrections in float32. `optax.amsgrad` keeps the maximum of the
    corrected second moment, torch that of the moment itself, which it corrects afterwards: neither of Optax's
    settings gives torch's steps.

    Args:
        lr: Learning rate: a number, or a schedule of Optax.
        betas: Decays of the two moments, each in [0, 1).
        eps: Added to the root of the corrected second moment.
        weight_decay: Its product with the parameter is added to the gradient, before the moments.
        amsgrad: Whether to divide by the largest second moment so far.
        maximize: Whether to climb.
        decoupled_weight_decay: Whether to decay the parameter itself, as AdamW does.
        **options: As of `sgd`.

    Raises:
        SpecError: A value outside of its range.
        UnknownNameError: An option that does not exist; lists those that do.

    Numerics: 1e-15 relative of torch's update in float64; the bits of Python's power are those of XLA on a CPU.
    Source: torch.optim.Adam (2.13); Kingma and Ba, arXiv:1412.6980; Reddi et al., arXiv:1904.09237.

    Example:
        >>> import jax.numpy as jnp
        >>> tx = adam(lr=0.5)
        >>> params = {"w": jnp.ones(2)}
        >>> updates, state = tx.update({"w": jnp.ones(2)}, tx.init(params), params, learning_rate=0.25)
        >>> updates["w"].round(4).tolist()
        [-0.25, -0.25]
    """
    own = {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay, "amsgrad": amsgrad}
    return make("Adam", {**own, "maximize": maximize, "decoupled_weight_decay": decoupled_weight_decay}, options)


def adamw(
    lr: Any = 1e-3,
    betas: Betas = (0.9, 0.999),
    eps: float = 1e-8,
    weight_decay: float = 1e-2,
    amsgrad: bool = False,
    *,
    maximize: bool = False,
    **options: Any,
) -> Optimizer:
    """Return torch.optim.AdamW as an Optax transformation.

    `optax.adamw` decays by 1e-4 unless told otherwise, torch by 1e-2.

    Args:
        lr: Learning rate: a number, or a schedule of Optax.
        betas: Decays of the two moments, each in [0, 1).
        eps: Added to the root of the corrected second moment.
        weight_decay: Decay of the parameter itself, scaled by the learning rate.
        amsgrad: As of `adam`.
        maximize: Whether to climb; the decay stays one.
        **options: As of `sgd`.

    Raises:
        SpecError: A value outside of its range.
        UnknownNameError: An option that does not exist; lists those that do.

    Source: torch.optim.AdamW (2.13); Loshchilov and Hutter, arXiv:1711.05101.

    Example:
        >>> from parity.state import GroupRule
        >>> matrices = GroupRule(label="matrices", ndim=(2,))
        >>> others = GroupRule(label="others", arguments={"weight_decay": 0.0})
        >>> tx = adamw(lr=1e-3, weight_decay=0.1, groups=(matrices, others))
        >>> [(group.label, group.arguments["weight_decay"]) for group in tx.groups]
        [('matrices', 0.1), ('others', 0.0)]
    """
    own = {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay, "amsgrad": amsgrad}
    return make("AdamW", {**own, "maximize": maximize}, options)


def _moments(g: jax.Array, slots: Slots, at: StepContext) -> Slots:
    b1, b2 = at.h["betas"]
    first = at.stored(lerp(slots["first_moment"], g, 1 - b1))
    second = at.stored(at.product(like(b2, g) * slots["second_moment"]) + like(1 - b2, g) * g * g)
    return {"first_moment": first, "second_moment": second}


def _start(g: jax.Array, p: jax.Array, at: StepContext, decoupled: bool) -> tuple[jax.Array, jax.Array]:
    """Return the gradient with coupled decay, and the parameter after a decoupled one."""
    decay = at.h["weight_decay"]
    if decoupled:
        return g, at.decayed(p)
    return (at.stored(g + at.term(decay, g) * p) if has_effect(decay) else g), p


def _corrections(h: Mapping[str, Any], t: jax.Array, first: jax.Array, kept: Any) -> dict[str, jax.Array]:
    c1, c2 = (correction(beta, t) for beta in h["betas"])
    return {"rate": h["lr"] / c1, "root": jnp.sqrt(c2)}


def _adam(
    g: jax.Array, p: jax.Array, slots: Slots, at: StepContext, decoupled: bool | None = None
) -> tuple[jax.Array, Slots]:
    h = at.h
    g, start = _start(g, p, at, h["decoupled_weight_decay"] if decoupled is None else decoupled)
    new = _moments(g, slots, at)
    divisor = new["second_moment"]
    if "second_moment_maximum" in slots:
        divisor = jnp.maximum(slots["second_moment_maximum"], divisor)
        new["second_moment_maximum"] = divisor
    denominator = at.stored(quotient(at.stored(jnp.sqrt(divisor)), at.once["root"]))
    denominator = at.stored(denominator + at.term(h["eps"], g))
    return moved(p, start, -like(at.once["rate"], g) * new["first_moment"] / denominator), new


def _adamw(g: jax.Array, p: jax.Array, slots: Slots, at: StepContext) -> tuple[jax.Array, Slots]:
    return _adam(g, p, slots, at, decoupled=True)


def nadam(
    lr: Any = 2e-3,
    betas: Betas = (0.9, 0.999),
    eps: float = 1e-8,
    weight_decay: float = 0,
    momentum_decay: float = 4e-3,
    decoupled_weight_decay: bool = False,
    *,
    maximize: bool = False,
    **options: Any,
) -> Optimizer:
    """Return torch.optim.NAdam as an Optax transformation.

    `optax.nadam` is another method: its weight of the first moment is constant, torch's grows with the step, and the
    product of all of them corrects the bias.

    Args:
        lr: Learning rate: a number, or a schedule of Optax.
        betas: Decays of the two moments, each in [0, 1).
        eps: Added to the root of the corrected second moment.
        weight_decay: Coupled, or decoupled as asked for.
        momentum_decay: How fast the weight of the first moment grows.
        decoupled_weight_decay: Whether to decay the parameter itself.
        maximize: Whether to climb.
        **options: As of `sgd`. With `scalar_dtype` float32, the product is kept in float32, as torch does.

    Raises:
        SpecError: A value outside of its range.
        UnknownNameError: An option that does not exist; lists those that do.

    Source: torch.optim.NAdam (2.13); Dozat, ICLR workshop 2016.
    """
    own = {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay, "momentum_decay": momentum_decay}
    return make("NAdam", {**own, "decoupled_weight_decay": decoupled_weight_decay, "maximize": maximize}, options)


def _nadam_scalars(
    h: Mapping[str, Any], t: jax.Array, first: jax.Array, kept: Mapping[str, jax.Array]
) -> dict[str, jax.Array]:
    beta1, beta2 = h["betas"]
    mu, following = (beta1 * (1 - 0.5 * power(0.96, at * h["momentum_decay"])) for at in (t, t + 1))
    product = kept["momentum_product"]
    product = product * mu.astype(product.dtype)
    exact = product.astype(wide())
    return {
        "momentum_product": product,
        "correction": correction(beta2, t),
        "of_gradient": -h["lr"] * (1 - mu) / (1 - exact),
        "of_moment": -h["lr"] * following / (1 - exact * following),
    }


def _nadam(g: jax.Array, p: jax.Array, slots: Slots, at: StepContext) -> tuple[jax.Array, Slots]:
    h, once = at.h, at.once
    g, start = _start(g, p, at, h["decoupled_weight_decay"])
    new = _moments(g, slots, at)
    root = at.stored(jnp.sqrt(at.stored(quotient(new["second_moment"], once["correction"]))))
    denominator = at.stored(root + at.term(h["eps"], g))
    middle = at.stored(start + like(once["of_gradient"], g) * g / denominator)
    return moved(p, middle, like(once["of_moment"], g) * new["first_moment"] / denominator), new


def radam(
    lr: Any = 1e-3,
    betas: Betas = (0.9, 0.999),
    eps: float = 1e-8,
    weight_decay: float = 0,
    decoupled_weight_decay: bool = False,
    *,
    maximize: bool = False,
    **options: Any,
) -> Optimizer:
    """Return torch.optim.RAdam as an Optax transformation.

    `optax.radam` adds `eps` to the root of the corrected second moment, torch to that of the moment itself; decay is
    missing there.

    Args:
        lr: Learning rate: a number, or a schedule of Optax.
        betas: Decays of the two moments, each in [0, 1).
        eps: Added to the root of the second moment, before its correction.
        weight_decay: Coupled, or decoupled as asked for.
        decoupled_weight_decay: Whether to decay the parameter itself.
        maximize: Whether to climb.
        **options: As of `sgd`.

    Raises:
        SpecError: A value outside of its range.
        UnknownNameError: An option that does not exist; lists those that do.

    Numerics: the length of the average cancels nine digits in early steps. In float64 it is taken as torch takes it,
    in float32 by a series that cancels nothing.
    Source: torch.optim.RAdam (2.13); Liu et al., arXiv:1908.03265.
    """
    own = {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay}
    return make("RAdam", {**own, "decoupled_weight_decay": decoupled_weight_decay, "maximize": maximize}, options)


def _radam_scalars(h: Mapping[str, Any], t: jax.Array, first: jax.Array, kept: Any) -> dict[str, jax.Array]:
    beta1, beta2 = h["betas"]
    c2 = correction(beta2, t)
    longest, length = 2 / (1 - beta2) - 1, _length(beta2, t, c2)
    square = (length - 4) * (length - 2) * longest / ((longest - 4) * (longest - 2) * length)
    rectified = length > 5
    factor = jnp.where(rectified, jnp.sqrt(jnp.where(rectified, square, 1)), 1)
    return {"correction": correction(beta1, t), "root": jnp.sqrt(c2), "rectified": rectified, "factor": factor}


def _radam(g: jax.Array, p: jax.Array, slots: Slots, at: StepContext) -> tuple[jax.Array, Slots]:
    h, once = at.h, at.once
    g, start = _start(g, p, at, h["decoupled_weight_decay"])
    new = _moments(g, slots, at)
    root = at.stored(at.stored(jnp.sqrt(new["second_moment"])) + at.term(h["eps"], g))
    narrow = at.dtype.itemsize < 4  # PyTorch divides a number by a tensor as 1 / tensor * number
    adaptive = at.stored(1 / root) * like(once["root"], g) if narrow else like(once["root"], g) / root
    step = at.product(at.stored(quotient(new["first_moment"], once["correction"])) * like(h["lr"], g))
    long = at.product(at.product(step * at.stored(adaptive)) * like(once["factor"], g))
    return moved(p, start, -jnp.where(once["rectified"] != 0, long, step)), new


def _length(beta: Any, t: jax.Array, correction2: jax.Array) -> jax.Array:
    """Return the length of the simple moving average that the second moment is like."""
    if t.dtype == jnp.float64 or not isinstance(beta, float) or not beta:
        return 2 / (1 - beta) - 1 - 2 * t * power(beta, t) / correction2
    rate = -math.log(beta)  # the length is coth(rate / 2) - 2 / rate + 2 / rate * (1 - x / expm1(x)), x = rate t
    x = rate * t
    series = x / 2 - x**2 / 12 + x**4 / 720 - x**6 / 30240 + x**8 / 1209600
    part = jnp.where(x < 0.5, series, 1 - x / jnp.expm1(x))
    return (1 / math.tanh(rate / 2) - 2 / rate) + 2 / rate * part


def adamax(
    lr: Any = 2e-3,
    betas: Betas = (0.9, 0.999),
    eps: float = 1e-8,
    weight_decay: float = 0,
    *,
    maximize: bool = False,
    **options: Any,
) -> Optimizer:
    """Return torch.optim.Adamax as an Optax transformation.

    `optax.adamax` takes the same steps without decay.

    Args:
        lr: Learning rate: a number, or a schedule of Optax.
        betas: Decays of the first moment and of the infinity norm, each in [0, 1).
        eps: Added to the size of the gradient, before the maximum is taken.
        weight_decay: Coupled: its product with the parameter is added to the gradient.
        maximize: Whether to climb.
        **options: As of `sgd`.

    Raises:
        SpecError: A value outside of its range.
        UnknownNameError: An option that does not exist; lists those that do.

    Source: torch.optim.Adamax (2.13); Kingma and Ba, arXiv:1412.6980, section 7.1.
    """
    own = {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay, "maximize": maximize}
    return make("Adamax", own, options)


def _adamax_scalars(h: Mapping[str, Any], t: jax.Array, first: jax.Array, kept: Any) -> dict[str, jax.Array]:
    return {"rate": h["lr"] / correction(h["betas"][0], t)}


def _adamax(g: jax.Array, p: jax.Array, slots: Slots, at: StepContext) -> tuple[jax.Array, Slots]:
    h, (b1, b2) = at.h, at.h["betas"]
    g, _ = _start(g, p, at, False)
    first = at.stored(lerp(slots["first_moment"], g, 1 - b1))
    size = at.stored(jnp.abs(g) + at.term(h["eps"], g))
    norm = jnp.maximum(at.stored(like(b2, g) * slots["infinity_norm"]), size)
    return -like(at.once["rate"], g) * first / norm, {"first_moment": first, "infinity_norm": norm}


register("Adam", _adam, _corrections)
register("AdamW", _adamw, _corrections)
register("NAdam", _nadam, _nadam_scalars)
register("RAdam", _radam, _radam_scalars)
register("Adamax", _adamax, _adamax_scalars)
