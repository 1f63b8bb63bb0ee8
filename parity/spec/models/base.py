"""What every model of a spec says of itself: its leaves, the memory that it takes, and the data that fits it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from typing import ClassVar, NamedTuple

from parity.spec.models.leaves import BUFFERS, ParamSpec

__all__ = ["ModelBase", "WideLayer"]


class WideLayer(NamedTuple):
    """A layer whose output may be what a step takes most memory for."""

    what: str
    elements: int
    """Of one sample."""
    factors: Mapping[str, int]
    """Field of the spec to what it contributes."""


class ModelBase(ABC):
    """A kind of model. A side adds a module under the same `kind`, and nothing else asks which model it is."""

    kind: str
    SOURCES: ClassVar[tuple[str, ...]]
    """The `data.source` that fit it."""

    @abstractmethod
    def leaves(self) -> Iterator[ParamSpec]:
        """Yield every leaf, in the order of PyTorch's modules."""

    @abstractmethod
    def widest(self) -> list[WideLayer]:
        """Return the layers of which one has the largest output."""

    @abstractmethod
    def growth(self) -> dict[str, int]:
        """Return the fields that decide how many parameters there are, each with what it contributes."""

    @abstractmethod
    def sample_bytes(self, source: str) -> int:
        """Return what one sample and its target take as arrays of the host."""

    def units(self) -> dict[str, tuple[str, int]]:
        """Return logical axis to what it consists of, and how many: it is split between those, never through one.

        Axes that are not there are split between any two of their elements.
        """
        return {}

    @property
    def regression(self) -> tuple[int, int]:
        """Return the inputs and outputs of a regression; (0, 0) for a model that takes part in none."""
        return 0, 0

    @property
    def tokens(self) -> int:
        """Return the tokens of a sample of text; 0 for a model of other data."""
        return 0

    def misfit(self, features: int, values: int) -> tuple[str, str] | None:
        """Return the field that does not fit samples, and why; None where all fit.

        Args:
            features: Numbers of a sample.
            values: One more than the largest target.
        """
        del features, values
        return None

    def param_specs(self) -> tuple[ParamSpec, ...]:
        """Return every leaf: parameters in the order of the modules, then buffers."""
        return tuple(sorted(self.leaves(), key=lambda leaf: leaf.kind in BUFFERS))


def too_few(field: str, outputs: int, values: int) -> tuple[str, str] | None:
    """Return what `misfit` does of a model with fewer outputs than the data has values."""
    return (field, f"{outputs}, but the data has values up to {values - 1}") if outputs < values else None
