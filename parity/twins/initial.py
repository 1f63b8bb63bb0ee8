"""One start for both sides: PyTorch's default distributions, drawn with the shared generator in NumPy.

Every parameter is drawn from its own key (seed and name), so adding a layer does not change the others. Values
are rounded to float32 in every precision: a float64 run and a float32 run start from the same numbers.
"""

from __future__ import annotations

import itertools
import math

import numpy as np
import xxhash
from numpy.typing import NDArray

from parity import threefry
from parity.spec import CnnSpec, GptSpec, MlpSpec, ModelSpec

__all__ = ["initial_buffers", "initial_params", "param_shapes"]


def param_shapes(model: ModelSpec) -> dict[str, tuple[int, ...]]:
    """Return canonical parameter name to shape in PyTorch layout (linear [out, in], conv [out, in, 3, 3])."""
    if isinstance(model, MlpSpec):
        return _mlp_shapes(model)
    return _cnn_shapes(model) if isinstance(model, CnnSpec) else _gpt_shapes(model)


def _mlp_shapes(model: MlpSpec) -> dict[str, tuple[int, ...]]:
    widths = (model.inputs, *model.hidden, model.classes)
    shapes: dict[str, tuple[int, ...]] = {}
    for i, (fan_in, fan_out) in enumerate(itertools.pairwise(widths)):
        shapes[f"layers.{i}.weight"] = (fan_out, fan_in)
        shapes[f"layers.{i}.bias"] = (fan_out,)
    return shapes


def _cnn_shapes(model: CnnSpec) -> dict[str, tuple[int, ...]]:
    channels = (1, *model.channels)
    shapes: dict[str, tuple[int, ...]] = {}
    for i, (c_in, c_out) in enumerate(itertools.pairwise(channels)):
        shapes[f"convs.{i}.weight"] = (c_out, c_in, 3, 3)
        shapes[f"norms.{i}.weight"] = (c_out,)
        shapes[f"norms.{i}.bias"] = (c_out,)
    side = model.size // 2 ** len(model.channels)
    shapes["head.weight"] = (model.classes, channels[-1] * side * side)
    shapes["head.bias"] = (model.classes,)
    return shapes


def _gpt_shapes(model: GptSpec) -> dict[str, tuple[int, ...]]:
    width = model.width
    shapes: dict[str, tuple[int, ...]] = {
        "tokens.weight": (model.vocabulary, width),
        "positions.weight": (model.context, width),
    }
    linears = {
        "qkv": (3 * width, width),
        "out": (width, width),
        "up": (4 * width, width),
        "down": (width, 4 * width),
    }
    for i in range(model.layers):
        for name in ("norm1", "norm2"):
            shapes[f"blocks.{i}.{name}.weight"] = (width,)
            shapes[f"blocks.{i}.{name}.bias"] = (width,)
        for name, shape in linears.items():
            shapes[f"blocks.{i}.{name}.weight"] = shape
            shapes[f"blocks.{i}.{name}.bias"] = shape[:1]
    shapes["norm.weight"] = shapes["norm.bias"] = (width,)
    if not model.tied:
        shapes["head.weight"] = (model.vocabulary, width)
    return shapes


def initial_params(model: ModelSpec, seed: int) -> dict[str, NDArray[np.float32]]:
    """Return canonical parameter name to its float32 start value, in PyTorch layout.

    Linear and convolution weights and biases are uniform in +-1/sqrt(fan_in), embeddings normal with
    `embedding_std`, norms 1 and 0.

    Source: `reset_parameters` of torch.nn.Linear, Conv2d, Embedding, LayerNorm, BatchNorm2d (torch 2.13).
    """
    shapes = param_shapes(model)
    root = threefry.key(seed)
    params = {}
    for name, shape in shapes.items():
        module, _, leaf = name.rpartition(".")
        own = threefry.fold_in(root, xxhash.xxh32_intdigest(name.encode()))
        if "norm" in module:
            values = np.full(shape, 1.0 if leaf == "weight" else 0.0)
        elif module in ("tokens", "positions"):
            values = _normal(own, shape) * getattr(model, "embedding_std", 1.0)
        else:
            bound = 1.0 / math.sqrt(math.prod(shapes[f"{module}.weight"][1:]))
            values = (2.0 * threefry.uniform(own, math.prod(shape)).reshape(shape) - 1.0) * bound
        params[name] = values.astype(np.float32)
    return params


def initial_buffers(model: ModelSpec) -> dict[str, NDArray[np.generic]]:
    """Return the running statistics (float32) and batch counters (int64) of the BatchNorm layers."""
    buffers: dict[str, NDArray[np.generic]] = {}
    for i, channels in enumerate(model.channels if isinstance(model, CnnSpec) else ()):
        buffers[f"norms.{i}.running_mean"] = np.zeros(channels, np.float32)
        buffers[f"norms.{i}.running_var"] = np.ones(channels, np.float32)
        buffers[f"norms.{i}.num_batches_tracked"] = np.zeros((), np.int64)
    return buffers


def _normal(own: NDArray[np.uint32], shape: tuple[int, ...]) -> NDArray[np.float64]:
    """Draw standard normal values by Box and Muller's transform."""
    n = math.prod(shape)
    draws = threefry.uniform(own, 2 * n)
    return (np.sqrt(-2.0 * np.log(draws[:n])) * np.cos(2.0 * np.pi * draws[n:])).reshape(shape)
