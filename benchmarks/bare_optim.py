"""The equations of PyTorch's optimizers in bare `jax.numpy`, as one writes them by hand for one's own training.

Defaults only, one count for all parameters, no groups, no masks, no names: each function takes the arguments of
PyTorch's class and returns `init(params)` and `step(params, state, grads, lr)`, trees in and out.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

__all__ = ["BARE", "Bare"]

Leaf = Callable[..., tuple[jax.Array, tuple[Any, ...]]]


class Bare(NamedTuple):
    """One optimizer, written by hand."""

    init: Callable[[Any], Any]
    step: Callable[[Any, Any, Any, jax.Array], tuple[Any, Any]]


def _of(slots: Callable[[jax.Array], tuple[Any, ...]], leaf: Leaf, scalars: Any = None) -> Bare:
    """Build an optimizer from what it keeps for a leaf and the new values of a leaf.

    Args:
        slots: The values kept for a parameter, before the first step.
        leaf: From parameter, gradient, slots, rate, count and scalars, the new parameter and slots.
        scalars: From count, rate and scalars before, what is computed once in a step.
    """

    def init(params: Any) -> Any:
        leaves = jax.tree.leaves(params)
        return jnp.zeros((), jnp.float32), jnp.ones((), jnp.float32), [slots(p) for p in leaves]

    def step(params: Any, state: Any, grads: Any, lr: jax.Array) -> tuple[Any, Any]:
        count, product, kept = state
        count = count + 1
        once, product = scalars(count, lr, product) if scalars else (None, product)
        leaves, structure = jax.tree.flatten(params)
        moved = [leaf(*one, lr, count, once) for one in zip(leaves, jax.tree.leaves(grads), kept, strict=True)]
        return structure.unflatten([p for p, _ in moved]), (count, product, [s for _, s in moved])

    return Bare(init, step)


def _zeros(number: int) -> Callable[[jax.Array], tuple[Any, ...]]:
    return lambda p: tuple(jnp.zeros_like(p) for _ in range(number))


def _corrections(count: jax.Array, lr: jax.Array, product: jax.Array) -> Any:
    del lr
    return tuple(-jnp.expm1(count * math.log(beta)) for beta in (0.9, 0.999)), product


def _moments(g: jax.Array, m: jax.Array, v: jax.Array) -> tuple[jax.Array, jax.Array]:
    return m + (1 - 0.9) * (g - m), 0.999 * v + (1 - 0.999) * g * g


def _sgd(p: Any, g: Any, s: Any, lr: Any, t: Any, once: Any) -> Any:
    buffer = 0.9 * s[0] + g
    return p - lr * buffer, (buffer,)


def _adam(p: Any, g: Any, s: Any, lr: Any, t: Any, once: Any) -> Any:
    (c1, c2), (m, v) = once, _moments(g, *s)
    return p - lr / c1 * m / (jnp.sqrt(v) / jnp.sqrt(c2) + 1e-8), (m, v)


def _adamw(p: Any, g: Any, s: Any, lr: Any, t: Any, once: Any) -> Any:
    (c1, c2), (m, v) = once, _moments(g, *s)
    return p + (-(lr * 1e-2) * p - lr / c1 * m / (jnp.sqrt(v) / jnp.sqrt(c2) + 1e-8)), (m, v)


def _nadam_scalars(count: jax.Array, lr: jax.Array, product: jax.Array) -> Any:
    mu, after = (0.9 * (1 - 0.5 * jnp.power(0.96, at * 4e-3)) for at in (count, count + 1))
    product = product * mu
    of_gradient, of_moment = -lr * (1 - mu) / (1 - product), -lr * after / (1 - product * after)
    return (-jnp.expm1(count * math.log(0.999)), of_gradient, of_moment), product


def _nadam(p: Any, g: Any, s: Any, lr: Any, t: Any, once: Any) -> Any:
    (c2, of_gradient, of_moment), (m, v) = once, _moments(g, *s)
    size = jnp.sqrt(v / c2) + 1e-8
    return p + (of_gradient * g / size + of_moment * m / size), (m, v)


def _radam_scalars(count: jax.Array, lr: jax.Array, product: jax.Array) -> Any:
    (c1, c2), _ = _corrections(count, lr, product)
    rate = -math.log(0.999)
    x = rate * count
    series = x / 2 - x**2 / 12 + x**4 / 720 - x**6 / 30240 + x**8 / 1209600
    part = jnp.where(x < 0.5, series, 1 - x / jnp.expm1(x))
    longest, length = 2 / (1 - 0.999) - 1, (1 / math.tanh(rate / 2) - 2 / rate) + 2 / rate * part
    square = (length - 4) * (length - 2) * longest / ((longest - 4) * (longest - 2) * length)
    good = length > 5
    return (c1, c2, good, jnp.where(good, jnp.sqrt(jnp.where(good, square, 1)), 1)), product


def _radam(p: Any, g: Any, s: Any, lr: Any, t: Any, once: Any) -> Any:
    (c1, c2, good, factor), (m, v) = once, _moments(g, *s)
    step = m / c1 * lr
    return p - jnp.where(good, step * (jnp.sqrt(c2) / (jnp.sqrt(v) + 1e-8)) * factor, step), (m, v)


def _adamax(p: Any, g: Any, s: Any, lr: Any, t: Any, once: Any) -> Any:
    m, norm = s[0] + (1 - 0.9) * (g - s[0]), jnp.maximum(0.999 * s[1], jnp.abs(g) + 1e-8)
    return p - lr / once[0] * m / norm, (m, norm)


def _rmsprop(p: Any, g: Any, s: Any, lr: Any, t: Any, once: Any) -> Any:
    squares = 0.99 * s[0] + (1 - 0.99) * g * g
    return p - lr * g / (jnp.sqrt(squares) + 1e-8), (squares,)


def _adagrad(p: Any, g: Any, s: Any, lr: Any, t: Any, once: Any) -> Any:
    total = s[0] + g * g
    return p - lr * g / (jnp.sqrt(total) + 1e-10), (total,)


def _adadelta(p: Any, g: Any, s: Any, lr: Any, t: Any, once: Any) -> Any:
    squares = 0.9 * s[0] + (1 - 0.9) * g * g
    step = jnp.sqrt(s[1] + 1e-6) / jnp.sqrt(squares + 1e-6) * g
    return p - lr * step, (squares, 0.9 * s[1] + (1 - 0.9) * step * step)


def _rprop(p: Any, g: Any, s: Any, lr: Any, t: Any, once: Any) -> Any:
    sign = jnp.sign(g * s[0])
    factor = jnp.where(sign > 0, 1.2, jnp.where(sign < 0, 0.5, jnp.where(sign == 0, 1, sign)))
    size = jnp.clip(jnp.where(t == 1, lr, s[1]) * factor, 1e-6, 50)
    held = jnp.where(sign < 0, 0, g)
    return p - jnp.sign(held) * size, (held, size)


def _asgd(p: Any, g: Any, s: Any, lr: Any, t: Any, once: Any) -> Any:
    rate, weight, average = s
    rate = jnp.where(t == 1, lr, rate)
    new = p + (-(1e-4 * rate) * p - rate * g)
    average = jnp.where(weight == 1, new, average + (new - average) * weight)
    return new, (lr / (1 + 1e-4 * lr * t) ** 0.75, 1 / jnp.maximum(1, t - 1e6), average)


def _adafactor(p: Any, g: Any, s: Any, lr: Any, t: Any, once: Any) -> Any:
    size_of = lambda x: jnp.sqrt(jnp.sum(x * x)) / math.sqrt(x.size)  # noqa: E731
    eps, weight = float(jnp.finfo(p.dtype).eps), t**-0.8
    rate = jnp.maximum(1e-3, size_of(p)) * jnp.minimum(lr, 1 / jnp.sqrt(t))
    means = [jnp.mean(g * g, axis=axis, keepdims=True) for axis in (-1, -2)]
    near = [old + weight * (new - old) for old, new in zip(s, means, strict=True)]
    far = [new - (new - old) * (1 - weight) for old, new in zip(s, means, strict=True)]
    rows, columns = (jnp.where(weight < 0.5, one, two) for one, two in zip(near, far, strict=True))
    variance = rows * columns / jnp.maximum(jnp.mean(rows, axis=-2, keepdims=True), eps)
    step = g * jax.lax.rsqrt(jnp.maximum(variance, eps * eps))
    return p + step * (-rate / jnp.maximum(1.0, size_of(step))), (rows, columns)


def _muon(p: Any, g: Any, s: Any, lr: Any, t: Any, once: Any) -> Any:
    buffer = s[0] + (1 - 0.95) * (g - s[0])
    x = (buffer - (buffer - g) * (1 - 0.95)).astype(jnp.bfloat16)
    tall, exact = x.shape[0] > x.shape[1], jnp.float32
    x = x.T if tall else x
    x = x / jnp.maximum(jnp.linalg.norm(x.astype(exact)).astype(x.dtype), jnp.asarray(1e-7, x.dtype))
    product = lambda left, right: jnp.matmul(left, right, precision="highest", preferred_element_type=exact)  # noqa: E731
    for _ in range(5):
        gram = product(x, x.T).astype(x.dtype)
        quadratic = (-4.7750 * gram.astype(exact) + 2.0315 * product(gram, gram)).astype(x.dtype)
        x = (3.4445 * x.astype(exact) + product(quadratic, x)).astype(x.dtype)
    step = -(lr * math.sqrt(max(1, p.shape[0] / p.shape[1]))) * (x.T if tall else x).astype(p.dtype)
    return p + (step - (lr * 0.1) * p), (buffer,)


def _lion(p: Any, g: Any, s: Any, lr: Any, t: Any, once: Any) -> Any:
    sign = jnp.sign(0.9 * s[0] + (1 - 0.9) * g)
    return p - lr * sign, (0.99 * s[0] + (1 - 0.99) * g,)


BARE: dict[str, Bare] = {
    "SGD": _of(_zeros(1), _sgd),
    "Adam": _of(_zeros(2), _adam, _corrections),
    "AdamW": _of(_zeros(2), _adamw, _corrections),
    "NAdam": _of(_zeros(2), _nadam, _nadam_scalars),
    "RAdam": _of(_zeros(2), _radam, _radam_scalars),
    "Adamax": _of(_zeros(2), _adamax, _corrections),
    "RMSprop": _of(_zeros(1), _rmsprop),
    "Adagrad": _of(_zeros(1), _adagrad),
    "Adadelta": _of(_zeros(2), _adadelta),
    "Rprop": _of(_zeros(2), _rprop),
    "ASGD": _of(lambda p: (jnp.zeros(()), jnp.ones(()), jnp.zeros_like(p)), _asgd),
    "Adafactor": _of(lambda p: (jnp.zeros((p.shape[0], 1)), jnp.zeros((1, p.shape[1]))), _adafactor),
    "Muon": _of(_zeros(1), _muon),
    "Lion": _of(_zeros(1), _lion),
}
"""Name of the class to its equations; SGD with momentum 0.9, the others with PyTorch's defaults."""
