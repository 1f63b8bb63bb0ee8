"""Transforms of the layout of an array: which order its axes have, and which shape.

`Permute` and `Reshape` also take arrays of NumPy and JAX, of which they only call what both have.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from parity.errors import CheckpointError
from parity.formats import Array
from parity.mapping.lazy import Permuted, Reshaped
from parity.mapping.transform import Extents, Transform

__all__ = ["Permute", "Reshape", "Transpose"]


@dataclass(frozen=True)
class Permute(Transform):
    """The axes in another order, as `numpy.transpose` takes it; arrays of NumPy and JAX too.

    Example:
        >>> turned = Permute((2, 3, 1, 0))
        >>> turned.moved([(64, 3, 5, 5)]), turned.inverse([])
        ([(5, 5, 3, 64)], Permute(axes=(3, 2, 0, 1)))
    """

    says: ClassVar[str] = "permuted {axes}"
    axes: tuple[int, ...]

    def forward(self, arrays: Sequence[Any], names: Sequence[str] = ()) -> list[Any]:
        """Return each array with its axes in the new order; a view where its library has views."""
        return [Permuted(a, self.axes) if isinstance(a, Array) else a.transpose(self.axes) for a in arrays]

    def moved(self, shapes: Extents) -> list[tuple[int, ...]]:
        """Return each shape with its axes in the new order."""
        return [tuple(shape[axis] for axis in self.axes) for shape in shapes]

    def inverse(self, shapes: Extents = ()) -> Permute:
        """Return the order that puts each axis back."""
        return Permute(tuple(self.axes.index(axis) for axis in range(len(self.axes))))


@dataclass(frozen=True)
class Transpose(Transform):
    """The last two axes exchanged, however many there are."""

    says: ClassVar[str] = "transposed"

    def forward(self, arrays: Sequence[Any], names: Sequence[str]) -> list[Any]:
        """Return each array transposed; it must have two axes to exchange."""
        turned = []
        for array in arrays:
            ndim = len(array.shape)
            if ndim < 2:
                raise CheckpointError(
                    f"{names[0]} has {ndim} axes, and its rule transposes it; name it in a rule of its own"
                )
            turned += Permute((*range(ndim - 2), ndim - 1, ndim - 2)).forward([array])
        return turned

    def moved(self, shapes: Extents) -> list[tuple[int, ...]]:
        """Return each shape transposed."""
        return [(*shape[:-2], *reversed(shape[-2:])) for shape in shapes]

    def inverse(self, shapes: Extents) -> Transform:
        """Return the same."""
        return self


@dataclass(frozen=True)
class Reshape(Transform):
    """Another shape, the elements in C order; arrays of NumPy and JAX too."""

    says: ClassVar[str] = "reshaped to {shape}"
    needs_shapes: ClassVar[bool] = True
    shape: tuple[int, ...]

    def forward(self, arrays: Sequence[Any], names: Sequence[str] = ()) -> list[Any]:
        """Return each array in the new shape."""
        return [Reshaped(a, self.shape) if isinstance(a, Array) else a.reshape(self.shape) for a in arrays]

    def moved(self, shapes: Extents) -> list[tuple[int, ...]]:
        """Return the new shape for each."""
        return [self.shape for _ in shapes]

    def inverse(self, shapes: Extents) -> Transform:
        """Return the way to the shape before."""
        return Reshape(tuple(shapes[0]))
