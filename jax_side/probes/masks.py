"""Dropout of JAX with masks that are given: those of NNX and linen, and of functions, are draws of `bernoulli`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from parity.contract import DropoutMasks

__all__ = ["given_masks"]


@contextmanager
def given_masks(masks: DropoutMasks | None) -> Iterator[None]:
    """Answer `jax.random.bernoulli` with masks in place of its draws, while a function is traced.

    Args:
        masks: Gives them; a draw whose probability is not known in a trace, or whose shape is not said, is its own,
            and is told. None leaves all as it is.
    """
    own = jax.random.bernoulli

    def bernoulli(key: Any, p: Any = 0.5, shape: Any = None, *args: Any, **kwargs: Any) -> Any:
        assert masks is not None
        batched = isinstance(key, jax.core.Tracer) and type(key).__name__ == "BatchTracer"
        if batched or isinstance(p, jax.core.Tracer) or np.ndim(p) or shape is None:
            masks.unseen.append("a draw of jax.random.bernoulli")
            return own(key, p, shape, *args, **kwargs)
        return jnp.asarray(masks.mask(1.0 - float(p), tuple(shape)))

    if masks is None:
        yield
        return
    jax.random.bernoulli = bernoulli
    try:
        yield
    finally:
        jax.random.bernoulli = own
