"""The leaves of each model: one list that shapes, initial values and the rows of the table follow from.

Names and shapes are PyTorch's (linear weights [out, in], convolutions [out, in, 3, 3]); the kind of a leaf decides
how it starts and where JAX keeps it, so nothing has to be guessed from a name.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from parity.spec import CnnSpec, GptSpec, LinearSpec, MlpSpec, ModelSpec

__all__ = ["BUFFERS", "Kind", "ParamSpec", "param_shapes", "param_specs"]

Kind = Literal["linear", "convolution", "bias", "embedding", "scale", "shift", "mean", "variance", "count"]
"""`scale` and `shift` are a norm's parameters; `mean`, `variance` and `count` the buffers of a BatchNorm."""

BUFFERS = ("mean", "variance", "count")
"""Kinds that no gradient reaches."""


@dataclass(frozen=True)
class ParamSpec:
    """One leaf of a model.

    Example:
        >>> from parity.spec import MlpSpec
        >>> param_specs(MlpSpec(inputs=64, hidden=(16,)))[1]
        ParamSpec(name='layers.0.bias', shape=(16,), kind='bias', fan_in=64)
    """

    name: str
    """Key in the PyTorch module's state_dict; the neutral name, without its group."""
    shape: tuple[int, ...]
    kind: Kind
    fan_in: int = 0
    """Inputs of each output of the linear layer or convolution that a weight or bias belongs to."""


def param_specs(model: ModelSpec) -> tuple[ParamSpec, ...]:
    """Return every leaf of a model: parameters in the order of the modules, then buffers."""
    if isinstance(model, LinearSpec):
        leaves = _affine("head", (model.outputs, model.inputs))
    elif isinstance(model, MlpSpec):
        leaves = _mlp(model)
    else:
        leaves = _cnn(model) if isinstance(model, CnnSpec) else _gpt(model)
    return tuple(sorted(leaves, key=lambda leaf: leaf.kind in BUFFERS))


def param_shapes(model: ModelSpec) -> dict[str, tuple[int, ...]]:
    """Return parameter name to shape, without buffers."""
    return {leaf.name: leaf.shape for leaf in param_specs(model) if leaf.kind not in BUFFERS}


def _mlp(model: MlpSpec) -> Iterator[ParamSpec]:
    widths = (model.inputs, *model.hidden, model.classes)
    for i, (fan_in, fan_out) in enumerate(itertools.pairwise(widths)):
        yield from _affine(f"layers.{i}", (fan_out, fan_in))


def _cnn(model: CnnSpec) -> Iterator[ParamSpec]:
    channels = (1, *model.channels)
    for i, (c_in, c_out) in enumerate(itertools.pairwise(channels)):
        yield ParamSpec(f"convs.{i}.weight", (c_out, c_in, 3, 3), "convolution", 9 * c_in)
        yield from _norm(f"norms.{i}", c_out)
        yield ParamSpec(f"norms.{i}.running_mean", (c_out,), "mean")
        yield ParamSpec(f"norms.{i}.running_var", (c_out,), "variance")
        yield ParamSpec(f"norms.{i}.num_batches_tracked", (), "count")
    side = model.size // 2 ** len(model.channels)
    yield from _affine("head", (model.classes, channels[-1] * side * side))


def _gpt(model: GptSpec) -> Iterator[ParamSpec]:
    width = model.width
    yield ParamSpec("tokens.weight", (model.vocabulary, width), "embedding")
    yield ParamSpec("positions.weight", (model.context, width), "embedding")
    for i in range(model.layers):
        yield from _norm(f"blocks.{i}.norm1", width)
        yield from _norm(f"blocks.{i}.norm2", width)
        for name, fan_out, fan_in in (("qkv", 3, 1), ("out", 1, 1), ("up", 4, 1), ("down", 1, 4)):
            yield from _affine(f"blocks.{i}.{name}", (fan_out * width, fan_in * width))
    yield from _norm("norm", width)
    if not model.tied:
        yield ParamSpec("head.weight", (model.vocabulary, width), "linear", width)


def _affine(module: str, shape: tuple[int, int]) -> Iterator[ParamSpec]:
    yield ParamSpec(f"{module}.weight", shape, "linear", shape[1])
    yield ParamSpec(f"{module}.bias", shape[:1], "bias", shape[1])


def _norm(module: str, width: int) -> Iterator[ParamSpec]:
    yield ParamSpec(f"{module}.weight", (width,), "scale")
    yield ParamSpec(f"{module}.bias", (width,), "shift")
