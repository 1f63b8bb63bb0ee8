"""What a model is: one frozen dataclass per kind, checked when it is made; and the checks all specs use."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from typing import Any, Literal

from parity.errors import SpecError
from parity.policy import INT32

__all__ = [
    "INT32",
    "CnnSpec",
    "GptSpec",
    "MlpSpec",
    "ModelSpec",
    "positive",
    "require",
    "require_layers",
    "require_numbers",
    "shown",
]

FLOAT32 = float.fromhex("0x1.fffffep127")
"""Largest float of a spec: rates and scales are float32 on devices, in all precisions but float64."""

MOST_LAYERS = 10_000
"""Of one model; every layer is built one by one, and PyTorch takes a minute for a step through 10,000."""


def require(condition: bool, name: str, problem: str) -> None:
    """Raise a SpecError for a field unless a condition holds."""
    if not condition:
        raise SpecError(name, problem)


def positive(value: float, name: str) -> None:
    """Raise a SpecError for a field whose value is not above 0."""
    require(value > 0, name, f"must be above 0, got {value}")


def require_numbers(spec: Any, table: str = "", **most: int) -> None:
    """Raise a SpecError for a number that a device cannot hold, in any field of a spec, in tuples too.

    Args:
        spec: A dataclass of a spec.
        table: Where it stands in a run's spec, such as `optimizer`.
        most: Field name to its largest integer, where that is not that of int32.
    """
    for field in fields(spec):
        name, value = f"{table}.{field.name}".lstrip("."), getattr(spec, field.name)
        for number in value if isinstance(value, tuple) else (value,):
            if isinstance(number, float):
                require(math.isfinite(number), name, f"must be finite, got {number}")
                require(abs(number) <= FLOAT32, name, f"must be at most {FLOAT32:.8g}, got {number}")
            elif isinstance(number, int):
                limit = most.get(field.name, INT32)
                require(abs(number) <= limit, name, f"must be at most {limit}, got {shown(number)}")


def shown(number: int) -> str:
    """Return an integer for a message: Python refuses to print one of more than 4,300 digits."""
    return str(number) if abs(number) < 10**30 else f"an integer of {number.bit_length()} bits"


def require_layers(layers: int, name: str) -> None:
    """Raise a SpecError for a field that asks for more layers than can be built."""
    require(layers <= MOST_LAYERS, name, f"must be at most {MOST_LAYERS} layers, got {layers}")


@dataclass(frozen=True, kw_only=True)
class MlpSpec:
    """Fully connected network with ReLU and dropout after every hidden layer."""

    kind: Literal["mlp"] = "mlp"
    inputs: int = 64
    """Features of one sample after flattening."""
    hidden: tuple[int, ...] = (128, 128)
    """Width of each hidden layer."""
    classes: int = 10

    def __post_init__(self) -> None:
        require_numbers(self, "model")
        require(len(self.hidden) > 0, "model.hidden", "needs at least one layer")
        require_layers(len(self.hidden), "model.hidden")
        positive(self.inputs, "model.inputs")
        positive(self.classes, "model.classes")
        for width in self.hidden:
            positive(width, "model.hidden")


@dataclass(frozen=True, kw_only=True)
class CnnSpec:
    """3x3 convolutions, each followed by BatchNorm, ReLU and 2x2 average pooling, then one linear layer."""

    kind: Literal["cnn"] = "cnn"
    size: int = 8
    """Height and width of the (one-channel) images; must be divisible by 2 ** len(channels)."""
    channels: tuple[int, ...] = (8, 16)
    classes: int = 10

    def __post_init__(self) -> None:
        require_numbers(self, "model")
        require(len(self.channels) > 0, "model.channels", "needs at least one layer")
        require_layers(len(self.channels), "model.channels")
        positive(self.size, "model.size")
        positive(self.classes, "model.classes")
        for width in self.channels:
            positive(width, "model.channels")
        require(
            self.size % 2 ** len(self.channels) == 0,
            "model.channels",
            f"{len(self.channels)} poolings by 2 do not divide an image of {self.size} pixels",
        )


@dataclass(frozen=True, kw_only=True)
class GptSpec:
    """Pre-norm decoder: learned positions, causal attention, GELU (erf) MLP of four times the width."""

    kind: Literal["gpt"] = "gpt"
    vocabulary: int = 256
    context: int = 32
    """Tokens per sample."""
    layers: int = 2
    heads: int = 4
    width: int = 64
    tied: bool = False
    """Whether the head is the transposed token embedding (one parameter, not two)."""
    embedding_std: float = 1.0
    """Standard deviation of the embedding tables at the start (1.0 is PyTorch's; 0.02 is GPT-2's)."""

    def __post_init__(self) -> None:
        require_numbers(self, "model")
        for name in ("vocabulary", "context", "layers", "heads", "width", "embedding_std"):
            positive(getattr(self, name), f"model.{name}")
        require_layers(self.layers, "model.layers")
        require(
            self.width % self.heads == 0,
            "model.heads",
            f"{self.heads} heads do not divide a width of {self.width}",
        )


ModelSpec = MlpSpec | CnnSpec | GptSpec
