"""What a model is: one frozen dataclass per kind, checked when it is made; and the checks all specs use."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from parity.errors import SpecError

__all__ = ["CnnSpec", "GptSpec", "MlpSpec", "ModelSpec", "positive", "require"]


def require(condition: bool, name: str, problem: str) -> None:
    """Raise a SpecError for a field unless a condition holds."""
    if not condition:
        raise SpecError(name, problem)


def positive(value: float, name: str) -> None:
    """Raise a SpecError for a field whose value is not above 0."""
    require(value > 0, name, f"must be above 0, got {value}")


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
        require(len(self.hidden) > 0, "model.hidden", "needs at least one layer")
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
        require(len(self.channels) > 0, "model.channels", "needs at least one layer")
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
        for name in ("vocabulary", "context", "layers", "heads", "width", "embedding_std"):
            positive(getattr(self, name), f"model.{name}")
        require(
            self.width % self.heads == 0,
            "model.heads",
            f"{self.heads} heads do not divide a width of {self.width}",
        )


ModelSpec = MlpSpec | CnnSpec | GptSpec
