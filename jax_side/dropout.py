"""Dropout whose masks are a function of (seed, step, micro-batch, layer, position), the same on both sides."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from flax import nnx

from parity.spec import DropoutSpec
from parity.threefry import keep_threshold

__all__ = ["Dropout", "mask_keys"]

STREAM = 0xD0
"""Folded into the seed's key, so that masks share no draw with the start or the data order."""


def mask_keys(seed: int, step: jax.Array, micro: jax.Array) -> jax.Array:
    """Return the key that all masks of one micro-batch are drawn from; derived inside the traced step.

    Args:
        seed: The run's seed.
        step: int32 scalar, steps completed before this one.
        micro: int32 scalar, number of the micro-batch in its step.
    """
    root = jax.random.fold_in(jax.random.key(seed, impl="threefry2x32"), STREAM)
    return jax.random.fold_in(jax.random.fold_in(root, step), micro)


class Dropout(nnx.Module):
    """Zeroes elements with probability `rate` and scales the others by 1 / (1 - rate).

    With the shared generator an element's mask depends on its position in the *global* micro-batch, so it is
    the same on any number of devices. With the native one it comes from an `nnx.Rngs` stream, whose state is part
    of the checkpoint.
    """

    def __init__(self, spec: DropoutSpec, layer: int, rngs: nnx.Rngs) -> None:
        self.rate, self.layer = spec.rate, layer
        native = spec.generator == "native" and spec.rate > 0
        self.native = nnx.Dropout(spec.rate, rngs=rngs) if native else None

    def __call__(self, x: jax.Array, key: jax.Array | None, *, train: bool) -> jax.Array:
        """Apply to x of any shape; without `train` it is returned as it is, and needs no key."""
        if not train or self.rate == 0.0:
            return x
        if self.native is not None:
            return self.native(x, deterministic=False)
        assert key is not None
        bits = jax.random.bits(jax.random.fold_in(key, self.layer), x.shape, jnp.uint32)
        scale = jnp.asarray(1.0 / (1.0 - self.rate), x.dtype)
        return jnp.where(bits >= jnp.uint32(keep_threshold(self.rate)), x * scale, jnp.zeros((), x.dtype))
