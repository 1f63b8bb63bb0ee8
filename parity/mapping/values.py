"""Transforms of the elements themselves: their scale and their dtype."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from parity.errors import CheckpointError
from parity.formats import dtype_named
from parity.mapping.lazy import Retyped, Scaled
from parity.mapping.transform import Extents, RuleClass, Transform

__all__ = ["Cast", "Recount", "Times", "require_dtype"]


@dataclass(frozen=True)
class Times(Transform):
    """The elements times a factor, or divided by it."""

    rule_class: ClassVar[RuleClass] = "value-scaling"
    factor: float
    divides: bool = False

    @property
    def how(self) -> str:
        """Return what happens, as a phrase."""
        return f"{'divided by' if self.divides else 'times'} {self.factor!r}"

    def forward(self, arrays: Sequence[Any], names: Sequence[str]) -> list[Any]:
        """Return each array scaled, in its own dtype."""
        return [Scaled(array, 1 / self.factor if self.divides else self.factor) for array in arrays]

    def inverse(self, shapes: Extents) -> Transform:
        """Return the division, or the product; exact where the factor is a power of two."""
        return Times(self.factor, not self.divides)


@dataclass(frozen=True)
class Cast(Transform):
    """Another dtype, rounded to it."""

    says: ClassVar[str] = "cast to {dtype}"
    rule_class: ClassVar[RuleClass] = "lossy"
    dtype: str

    def forward(self, arrays: Sequence[Any], names: Sequence[str]) -> list[Any]:
        """Return each array in the new dtype."""
        return [Retyped(array, require_dtype(self.dtype)) for array in arrays]


@dataclass(frozen=True)
class Recount(Transform):
    """Counters in another type that holds them, such as the int32 of JAX, which has no int64 by default; of NumPy.

    Example:
        >>> import numpy as np
        >>> [count] = Recount("int32", "int64").forward([np.array(7)], ["step"])
        >>> count.dtype, Recount("int32", "int64").inverse([])
        (dtype('int32'), Recount(dtype='int64', before='int32'))
    """

    says: ClassVar[str] = "counted in {dtype}"
    dtype: str
    before: str
    """Type of the counters before it."""

    def forward(self, arrays: Sequence[Any], names: Sequence[str]) -> list[Any]:
        """Return each counter in the new type, which must hold it."""
        made = [array.astype(self.dtype) for array in arrays]
        for array, one in zip(arrays, made, strict=True):
            if (one != array).any():
                raise CheckpointError(f"{names[0]}: {array.dtype} {array} does not fit {self.dtype}")
        return made

    def inverse(self, shapes: Extents) -> Transform:
        """Return the way to the type before."""
        return Recount(self.before, self.dtype)


def require_dtype(name: str) -> Any:
    """Return the dtype of a name.

    Raises:
        CheckpointError: There is none.
    """
    found = dtype_named(name)
    if found is None:
        raise CheckpointError(
            f"cast: {name!r} is no dtype; known are float32, bfloat16, float16, float64 and the like"
        )
    return found
