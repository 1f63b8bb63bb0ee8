"""The linear model: one affine map, for regression."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar, Literal

from parity.spec.models.base import ModelBase, WideLayer
from parity.spec.models.leaves import ParamSpec, affine
from parity.spec.values import require_numbers, require_positive

__all__ = ["LinearSpec"]


@dataclass(frozen=True, kw_only=True)
class LinearSpec(ModelBase):
    """One affine map, for regression: no hidden layer, no dropout.

    Shapes: input [batch, inputs], output [batch, outputs].

    Raises:
        SpecError: A value is out of range, or does not fit another one; names the field.
    """

    SOURCES: ClassVar[tuple[str, ...]] = ("regression",)
    kind: Literal["linear"] = "linear"
    inputs: int = 16
    """Number of features of a sample."""
    outputs: int = 1

    def __post_init__(self) -> None:
        require_numbers(self, "model")
        require_positive(self, "model", "inputs", "outputs")

    def leaves(self) -> Iterator[ParamSpec]:
        """Yield the weight and the bias."""
        yield from affine("head", (self.outputs, self.inputs), ("outputs", "features"))

    def widest(self) -> list[WideLayer]:
        """Return the outputs."""
        return [WideLayer("outputs", self.outputs, {"model.outputs": self.outputs})]

    def growth(self) -> dict[str, int]:
        """Return the fields that decide how many parameters there are."""
        return {"model.inputs": self.inputs, "model.outputs": self.outputs}

    def sample_bytes(self, source: str) -> int:
        """Return what one sample and its target take: float32."""
        del source
        return 4 * self.inputs + 4 * self.outputs

    @property
    def regression(self) -> tuple[int, int]:
        """Return the inputs and outputs."""
        return self.inputs, self.outputs
