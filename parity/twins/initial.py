"""One start for both sides: PyTorch's default distributions, drawn with the shared generator in NumPy.

Every parameter is drawn from its own key (seed and name), so adding a layer does not change the others. Values
are rounded to float32 in every precision: a float64 run and a float32 run start from the same numbers.
"""

from __future__ import annotations

import math

import numpy as np
import xxhash
from numpy.typing import NDArray

from parity import threefry
from parity.spec import ModelSpec
from parity.spec.models import BUFFERS, ParamSpec

__all__ = ["initial_buffers", "initial_params"]


def initial_params(model: ModelSpec, seed: int) -> dict[str, NDArray[np.float32]]:
    """Return parameter name to its float32 start value, in PyTorch's layout.

    Linear and convolution weights and biases are uniform in +-1/sqrt(fan_in), embeddings normal with
    `embedding_std`, norms 1 and 0.

    Args:
        model: The model.
        seed: Seed of all draws, in [0, 2**32).

    Source: `reset_parameters` of torch.nn.Linear, Conv2d, Embedding, LayerNorm, BatchNorm2d (torch 2.13).
    """
    root, std = threefry.key(seed), getattr(model, "embedding_std", 1.0)
    return {leaf.name: _draw(leaf, root, std) for leaf in model.param_specs() if leaf.kind not in BUFFERS}


def initial_buffers(model: ModelSpec) -> dict[str, NDArray[np.generic]]:
    """Return the running statistics (float32) and batch counters (int64) of the BatchNorm layers."""
    buffers: dict[str, NDArray[np.generic]] = {}
    for leaf in model.param_specs():
        if leaf.kind in BUFFERS:
            dtype = np.int64 if leaf.kind == "count" else np.float32
            buffers[leaf.name] = np.full(leaf.shape, leaf.kind == "variance", dtype)
    return buffers


def _draw(leaf: ParamSpec, root: NDArray[np.uint32], std: float) -> NDArray[np.float32]:
    own = threefry.fold_in(root, xxhash.xxh32_intdigest(leaf.name.encode()))
    if leaf.kind in ("scale", "shift"):
        values = np.full(leaf.shape, 1.0 if leaf.kind == "scale" else 0.0)
    elif leaf.kind == "embedding":
        values = _normal(own, leaf.shape) * std
    else:
        bound = 1.0 / math.sqrt(leaf.fan_in)
        values = (2.0 * threefry.uniform(own, math.prod(leaf.shape)).reshape(leaf.shape) - 1.0) * bound
    return values.astype(np.float32)


def _normal(own: NDArray[np.uint32], shape: tuple[int, ...]) -> NDArray[np.float64]:
    """Draw standard normal values by Box and Muller's transform."""
    n = math.prod(shape)
    draws = threefry.uniform(own, 2 * n)
    return (np.sqrt(-2.0 * np.log(draws[:n])) * np.cos(2.0 * np.pi * draws[n:])).reshape(shape)
