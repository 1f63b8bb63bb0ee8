"""Scalar arithmetic of torch.optim in JAX: interpolation, bias corrections, powers of step counts."""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp

__all__ = ["correction", "lerp", "like", "power", "rounded", "wide"]


def wide() -> Any:
    """Return the dtype of scalars: float64 with 64-bit types, as Python's numbers on PyTorch's side, else float32."""
    return jnp.result_type(float)


def like(x: Any, leaf: jax.Array) -> jax.Array:
    """Cast a scalar to the dtype of a leaf: a float64 scalar would otherwise promote a float32 leaf.

    Args:
        x: A number or a scalar array.
        leaf: The array whose dtype is wanted.
    """
    return jnp.asarray(x, leaf.dtype)


def lerp(start: jax.Array, end: jax.Array, weight: Any) -> jax.Array:
    """Interpolate as torch.lerp does: from the nearer end.

    Args:
        start: Value at weight 0.
        end: Value at weight 1, of the same shape.
        weight: Scalar, a number or an array.
    """
    near = start + like(weight, start) * (end - start)
    far = end - (end - start) * like(1 - weight, start)
    if isinstance(weight, float | int):
        return near if weight < 0.5 else far
    return jnp.where(weight < 0.5, near, far)


def power(base: Any, exponent: jax.Array) -> jax.Array:
    """Return base ** exponent, a scalar.

    Args:
        base: A number or a scalar array; it is cast to the dtype of the exponent.
        exponent: Floating scalar array.

    Numerics: in float64 on a CPU, bit for bit Python's own power (0 of 6,000 differed, jax 0.10.2).
    """
    return jnp.power(jnp.asarray(base, exponent.dtype), exponent)


def correction(beta: Any, step: jax.Array) -> jax.Array:
    """Return the bias correction 1 - beta ** step, a scalar.

    Args:
        beta: Decay in [0, 1), a number or a scalar array.
        step: Updates of the parameter, this one included: a scalar array, whose dtype the correction has.

    Numerics: in float64 as PyTorch takes it, including the digits that it cancels; in float32 as
    -expm1(step log beta), since subtracting a float32 power from 1 is off by 1e-5 in an early step with 0.999.
    """
    if step.dtype == jnp.float64:
        return 1 - power(beta, step)
    if isinstance(beta, float | int):
        return -jnp.expm1(step * math.log(beta)) if beta else jnp.ones_like(step)
    beta = jnp.asarray(beta, step.dtype)
    return jnp.where(beta > 0, -jnp.expm1(step * jnp.log(jnp.where(beta > 0, beta, 1))), 1)


def rounded(x: jax.Array) -> jax.Array:
    """Round to the dtype of x at once: XLA would contract a product into the addition that follows."""
    info = jnp.finfo(x.dtype)
    return jax.lax.reduce_precision(x, info.nexp, info.nmant)
