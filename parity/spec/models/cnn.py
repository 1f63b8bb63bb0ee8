"""The convolutional network with BatchNorm, for digits."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar, Literal

from parity.spec.models.base import ModelBase, WideLayer, too_few
from parity.spec.models.leaves import ParamSpec, affine, norm
from parity.spec.values import require, require_layers, require_numbers, require_positive

__all__ = ["CnnSpec"]


@dataclass(frozen=True, kw_only=True)
class CnnSpec(ModelBase):
    """3x3 convolutions, each followed by BatchNorm, ReLU and 2x2 average pooling, then one linear layer.

    Shapes: input [batch, size * size], output logits [batch, classes].

    Raises:
        SpecError: A value is out of range, or does not fit another one; names the field.
    """

    SOURCES: ClassVar[tuple[str, ...]] = ("digits",)
    kind: Literal["cnn"] = "cnn"
    size: int = 8
    """Height and width of the one-channel images in pixels; must be divisible by 2 ** len(channels)."""
    channels: tuple[int, ...] = (8, 16)
    """Output channels of each convolution."""
    classes: int = 10

    def __post_init__(self) -> None:
        require_numbers(self, "model")
        require_layers(len(self.channels), "model.channels")
        require_positive(self, "model", "size", "classes", "channels")
        require(
            self.size % 2 ** len(self.channels) == 0,
            "model.channels",
            f"{len(self.channels)} poolings by 2 do not divide an image of {self.size} pixels",
        )

    def leaves(self) -> Iterator[ParamSpec]:
        """Yield what each convolution and its norm have, buffers included, then the linear layer."""
        channels = (1, *self.channels)
        for i, (c_in, c_out) in enumerate(itertools.pairwise(channels)):
            axes = ("channels", "previous" if i else "image", "height", "width")
            yield ParamSpec(f"convs.{i}.weight", (c_out, c_in, 3, 3), "convolution", 9 * c_in, axes)
            yield from norm(f"norms.{i}", c_out, axes[:1])
            yield ParamSpec(f"norms.{i}.running_mean", (c_out,), "mean", axes=axes[:1])
            yield ParamSpec(f"norms.{i}.running_var", (c_out,), "variance", axes=axes[:1])
            yield ParamSpec(f"norms.{i}.num_batches_tracked", (), "count")
        side = self.size // 2 ** len(self.channels)
        yield from affine("head", (self.classes, channels[-1] * side * side), ("classes", "features"))

    def widest(self) -> list[WideLayer]:
        """Return the convolution with the largest images."""
        images = [channels * (self.size >> i) ** 2 for i, channels in enumerate(self.channels)]
        factors = {"model.channels": max(self.channels), "model.size": self.size**2}
        return [WideLayer("a convolution", max(images), factors)]

    def growth(self) -> dict[str, int]:
        """Return the fields that decide how many parameters there are."""
        return {"model.channels": max(self.channels), "model.size": self.size**2, "model.classes": self.classes}

    def sample_bytes(self, source: str) -> int:
        """Return what one image and its class take: float32, int32."""
        del source
        return 4 * self.size**2 + 4

    def misfit(self, features: int, values: int) -> tuple[str, str] | None:
        """Return the field that does not fit samples, and why."""
        if self.size**2 != features:
            return "size", f"{self.size} x {self.size}, but an image has {features} pixels"
        return too_few("classes", self.classes, values)
