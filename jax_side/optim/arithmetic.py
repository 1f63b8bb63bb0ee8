"""Arithmetic of torch.optim in JAX: interpolation, bias corrections, powers of step counts, roundings."""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

__all__ = [
    "correction",
    "halved",
    "lerp",
    "like",
    "power",
    "product_sign",
    "quotient",
    "rounded",
    "unknown_zero",
    "wide",
]


def wide() -> Any:
    """Return the dtype of scalars: float64 with 64-bit types, as Python's numbers on PyTorch's side, else float32."""
    return jnp.result_type(float)


def like(x: Any, leaf: jax.Array) -> jax.Array:
    """Cast a scalar to the dtype of a leaf: a float64 scalar would otherwise promote a float32 leaf.

    Args:
        x: A number or a scalar array.
        leaf: The array whose dtype is wanted.
    """
    return np.asarray(x, leaf.dtype)[()] if isinstance(x, float | int) else jnp.asarray(x, leaf.dtype)


def lerp(start: jax.Array, end: jax.Array, weight: Any) -> jax.Array:
    """Interpolate as torch.lerp does: from the nearer end.

    Args:
        start: Value at weight 0.
        end: Value at weight 1, of the same shape.
        weight: Scalar, a number or an array.
    """
    known = isinstance(weight, float | int)
    near = start + like(weight, start) * (end - start) if not known or weight < 0.5 else None
    far = end - (end - start) * like(1 - weight, start) if not known or weight >= 0.5 else None
    if known:
        return far if near is None else near
    return jnp.where(weight < 0.5, near, far)


def power(base: Any, exponent: jax.Array) -> jax.Array:
    """Return base ** exponent, a scalar.

    Args:
        base: A number or a scalar array; it is cast to the dtype of the exponent.
        exponent: Floating scalar array.

    Numerics: in float64 on a CPU, bit for bit Python's own power (0 of 6,000 differed, jax 0.10.2).
    """
    return jnp.power(jnp.asarray(base, exponent.dtype), exponent)


def product_sign(a: jax.Array, b: jax.Array) -> jax.Array:
    """Return the sign of a product that is rounded as PyTorch rounds it, subnormal numbers included.

    XLA on the CPU takes a subnormal product for 0: with gradients of 1e-20 in float32 the sign is lost. A product of
    both factors times 2 ** 64 (2 ** 512 in float64) tells whether PyTorch's would be rounded to 0.

    Args:
        a: Floating array.
        b: One of the same dtype and shape.
    """
    if a.dtype not in (jnp.float32, jnp.float64):
        return jnp.sign(a * b)
    info = jnp.finfo(a.dtype)
    half = 1 - info.minexp // 2
    least = 2.0 ** (info.minexp - info.nmant - 1 + 2 * half)
    scaled = jnp.abs((a * like(2.0**half, a)) * (b * like(2.0**half, b)))
    return jnp.where(scaled <= like(least, a), 0, jnp.sign(a) * jnp.sign(b))


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


def unknown_zero(bits: jax.Array) -> jax.Array:
    """Return -0.0 as a scalar that no compiler knows to be one: no square leaves 5 when divided by 8.

    Args:
        bits: An integer scalar that is known only at run time; of a constant, the zero is one too.

    Returns:
        A scalar of the wide dtype. x + -0.0 is x for every x: -0.0, infinities and NaN included.
    """
    return jnp.where((bits * bits & 7) == 5, 1.0, -0.0).astype(wide())


def rounded(x: jax.Array, zero: jax.Array) -> jax.Array:
    """Round a product to its dtype, also where a sum follows: XLA would contract the two into one rounding.

    A `reduce_precision` to the dtype itself is an identity on a CPU, and a barrier is gone before code is generated;
    a sum with a zero that is known only at run time has to be computed, and takes the contraction upon itself.

    Args:
        x: The product.
        zero: What `unknown_zero` returns.

    Numerics: bit for bit the rounded product (100,000 of 100,000 sums equal NumPy's, compiled and in a scan; 76,552
    without it, jax 0.10.2 on a CPU).
    """
    return x + like(zero, x)


def quotient(x: jax.Array, by: Any) -> jax.Array:
    """Divide by a scalar: XLA would multiply a root by its reciprocal, another number one time in seven.

    Args:
        x: The dividend.
        by: A number or a scalar array.

    Numerics: bit for bit NumPy's division (4,096 of 4,096; 3,501 by a plain division under jit, jax 0.10.2 on a CPU):
    a divisor that depends on the element, though it never does, is no scalar that XLA could invert.
    """
    return x / jnp.where(x == x, like(by, x), 1)


def halved(x: jax.Array, dtype: Any) -> jax.Array:
    """Round float32 values to bfloat16 or float16 and keep them as float32; others are returned as they are.

    XLA drops a cast to a narrower dtype and back, whose rounding is what PyTorch's kernels do between two operations.

    Args:
        x: Values of float32.
        dtype: What they are rounded to.
    """
    info = jnp.finfo(dtype)
    if info.bits >= 32:
        return x
    near = jax.lax.reduce_precision(x, info.nexp, info.nmant)
    if info.nexp == 8:
        return near
    smallest = float(info.smallest_subnormal)  # reduce_precision takes subnormal numbers of float16 for zero
    return jnp.where(jnp.abs(x) < float(info.smallest_normal), jnp.round(x / smallest) * smallest, near)
