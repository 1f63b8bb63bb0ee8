"""The leaves of a model: shapes, initial values, the rows of the table and the memory of a run follow from them.

Names and shapes are PyTorch's (linear weights [out, in], convolutions [out, in, 3, 3]); the kind of a leaf decides
how it starts and where JAX keeps it, so nothing has to be guessed from a name.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal

__all__ = ["BUFFERS", "Kind", "ParamSpec", "affine", "norm"]

Kind = Literal["linear", "convolution", "bias", "embedding", "scale", "shift", "mean", "variance", "count"]
"""`scale` and `shift` are a norm's parameters; `mean`, `variance` and `count` the buffers of a BatchNorm."""

BUFFERS = ("mean", "variance", "count")
"""Kinds that no gradient reaches."""


@dataclass(frozen=True)
class ParamSpec:
    """One leaf of a model.

    Example:
        >>> from parity.spec import MlpSpec
        >>> MlpSpec(inputs=64, hidden=(16,)).param_specs()[1]
        ParamSpec(name='layers.0.bias', shape=(16,), kind='bias', fan_in=64)
    """

    name: str
    """Key in the PyTorch module's state_dict; the neutral name, without its group."""
    shape: tuple[int, ...]
    kind: Kind
    fan_in: int = 0
    """Inputs of each output of the linear layer or convolution that a weight or bias belongs to."""
    axes: tuple[str, ...] = field(default=(), repr=False)
    """Logical name of each axis, in the order of `shape`; empty for a leaf whose axes have none. `parity.spec.AXES`
    says along which axis of the mesh each of them is split."""

    def __post_init__(self) -> None:
        assert len(self.axes) in (0, len(self.shape)), f"{self.name}: {self.axes} of {self.shape}"


def affine(module: str, shape: tuple[int, int], axes: tuple[str, ...] = ()) -> Iterator[ParamSpec]:
    """Yield the weight and the bias of a linear layer.

    Args:
        module: Its name.
        shape: Outputs and inputs.
        axes: Logical names of outputs and inputs.
    """
    yield ParamSpec(f"{module}.weight", shape, "linear", shape[1], axes)
    yield ParamSpec(f"{module}.bias", shape[:1], "bias", shape[1], axes[:1])


def norm(module: str, width: int, axes: tuple[str, ...] = ()) -> Iterator[ParamSpec]:
    """Yield the scale and the shift of a norm over `width` features.

    Args:
        module: Its name.
        width: Features.
        axes: Logical name of the features.
    """
    yield ParamSpec(f"{module}.weight", (width,), "scale", axes=axes)
    yield ParamSpec(f"{module}.bias", (width,), "shift", axes=axes)
