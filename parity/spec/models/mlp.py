"""The fully connected network, for digits and for regression."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar, Literal

from parity.spec.models.base import ModelBase, WideLayer, too_few
from parity.spec.models.leaves import ParamSpec, affine
from parity.spec.values import require_layers, require_numbers, require_positive

__all__ = ["MlpSpec"]


@dataclass(frozen=True, kw_only=True)
class MlpSpec(ModelBase):
    """A fully connected network with ReLU and dropout after every hidden layer.

    Shapes: input [batch, inputs], output logits [batch, classes]; of a regression, as many numbers.

    Raises:
        SpecError: A value is out of range, or does not fit another one; names the field.
    """

    SOURCES: ClassVar[tuple[str, ...]] = ("digits", "regression")
    kind: Literal["mlp"] = "mlp"
    inputs: int = 64
    """Number of features of a sample, after flattening."""
    hidden: tuple[int, ...] = (128, 128)
    """Width of each hidden layer."""
    classes: int = 10
    """Number of outputs."""

    def __post_init__(self) -> None:
        require_numbers(self, "model")
        require_layers(len(self.hidden), "model.hidden")
        require_positive(self, "model", "inputs", "classes", "hidden")

    def leaves(self) -> Iterator[ParamSpec]:
        """Yield the weight and the bias of each layer."""
        last = len(self.hidden)
        for i, (fan_in, fan_out) in enumerate(itertools.pairwise((self.inputs, *self.hidden, self.classes))):
            # Every second width is split over `model`, so that a layer by columns is followed by one by rows: the
            # activations between the two stay where they are.
            inner, outer = ("embed", "hidden") if i % 2 == 0 else ("hidden", "embed")
            axes = ("classes" if i == last else outer, "features" if i == 0 else inner)
            yield from affine(f"layers.{i}", (fan_out, fan_in), axes)

    def widest(self) -> list[WideLayer]:
        """Return the widest hidden layer."""
        return [WideLayer("a hidden layer", max(self.hidden), {"model.hidden": max(self.hidden)})]

    def growth(self) -> dict[str, int]:
        """Return the fields that decide how many parameters there are."""
        return {"model.hidden": max(self.hidden), "model.inputs": self.inputs, "model.classes": self.classes}

    def sample_bytes(self, source: str) -> int:
        """Return what one sample and its target take: float32, and a class as int32."""
        return 4 * self.inputs + 4 * (self.classes if source == "regression" else 1)

    @property
    def regression(self) -> tuple[int, int]:
        """Return the inputs and outputs."""
        return self.inputs, self.classes

    def misfit(self, features: int, values: int) -> tuple[str, str] | None:
        """Return the field that does not fit samples, and why."""
        if self.inputs != features:
            return "inputs", f"{self.inputs}, but a sample has {features} features"
        return too_few("classes", self.classes, values)
