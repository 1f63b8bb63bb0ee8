"""Transforms of several arrays into one, and of one into several."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Any, ClassVar

from parity.errors import CheckpointError
from parity.mapping.lazy import Added, Cut, Joined, Stacked
from parity.mapping.transform import Extents, RuleClass, Transform

__all__ = ["Add", "Copies", "Join", "Split", "Stack", "Tie", "Unstack"]


@dataclass(frozen=True)
class Join(Transform):
    """Arrays one after the other along an axis."""

    says: ClassVar[str] = "joined along axis {axis}"
    needs_shapes: ClassVar[bool] = True
    axis: int
    each: int = 0
    """How many become one, of several wholes in a row, such as the parts of each layer; 0 where all do."""

    def forward(self, arrays: Sequence[Any], names: Sequence[str]) -> list[Any]:
        """Return one array, or as many as there are wholes."""
        return [Joined(some, self.axis) for some in self._wholes(arrays)]

    def moved(self, shapes: Extents) -> list[tuple[int, ...]]:
        """Return the shape of each whole."""
        return [
            (*some[0][: self.axis], sum(shape[self.axis] for shape in some), *some[0][self.axis + 1 :])
            for some in self._wholes(shapes)
        ]

    def inverse(self, shapes: Extents) -> Transform:
        """Return the split into parts of the extents that were joined.

        Raises:
            CheckpointError: Those of several wholes are not the same.
        """
        found = [tuple(shape[self.axis] for shape in some) for some in self._wholes(shapes)]
        if len(set(found)) > 1:
            every = " and ".join(str(list(one)) for one in dict.fromkeys(found))
            raise CheckpointError(f"parts of {every} along axis {self.axis}: those of every layer must be the same")
        return Split(found[0], self.axis)

    def _wholes(self, of_parts: Sequence[Any]) -> list[Sequence[Any]]:
        each = self.each or len(of_parts)
        if len(of_parts) % each:
            raise CheckpointError(f"{len(of_parts)} arrays are joined {each} at a time, and some are left")
        return [of_parts[at : at + each] for at in range(0, len(of_parts), each)]


@dataclass(frozen=True)
class Split(Transform):
    """The parts of an array along an axis, or of each of several."""

    says: ClassVar[str] = "split {extents} along axis {axis}"
    extents: tuple[int, ...]
    axis: int = 0

    def forward(self, arrays: Sequence[Any], names: Sequence[str]) -> list[Any]:
        """Return the parts; they must make up the array."""
        for one in arrays:
            if sum(self.extents) != (one.shape[self.axis] if self.axis < len(one.shape) else -1):
                raise CheckpointError(
                    f"{names[0]}: parts {list(self.extents)} do not make up {one} along axis {self.axis}"
                )
        bounds = list(pairwise(accumulate(self.extents, initial=0)))
        return [Cut(one, self.axis, a, b) for one in arrays for a, b in bounds]

    def moved(self, shapes: Extents) -> list[tuple[int, ...]]:
        """Return the shapes of the parts."""
        return [(*whole[: self.axis], extent, *whole[self.axis + 1 :]) for whole in shapes for extent in self.extents]

    def inverse(self, shapes: Extents) -> Transform:
        """Return the join."""
        return Join(self.axis, len(self.extents) if len(shapes) > 1 else 0)


@dataclass(frozen=True)
class Stack(Transform):
    """Arrays of one shape along a new axis."""

    says: ClassVar[str] = "stacked along axis {axis}"
    needs_shapes: ClassVar[bool] = True
    axis: int

    def forward(self, arrays: Sequence[Any], names: Sequence[str]) -> list[Any]:
        """Return one array."""
        return [Stacked(arrays, self.axis)]

    def moved(self, shapes: Extents) -> list[tuple[int, ...]]:
        """Return the shape of the stack."""
        return [(*shapes[0][: self.axis], len(shapes), *shapes[0][self.axis :])]

    def inverse(self, shapes: Extents) -> Transform:
        """Return the arrays of the stack again, as many as went in."""
        return Unstack(self.axis, len(shapes))


@dataclass(frozen=True)
class Unstack(Transform):
    """The arrays that lie along an axis, which none of them has; the inverse of `Stack`."""

    says: ClassVar[str] = "{count} taken apart along axis {axis}"
    axis: int
    count: int

    def forward(self, arrays: Sequence[Any], names: Sequence[str]) -> list[Any]:
        """Return as many arrays as there should be."""
        [one] = arrays
        return [Cut(one, self.axis, at, at + 1, drop=True) for at in range(self.count)]

    def moved(self, shapes: Extents) -> list[tuple[int, ...]]:
        """Return the shape of each."""
        [whole] = shapes
        return [(*whole[: self.axis], *whole[self.axis + 1 :])] * self.count

    def inverse(self, shapes: Extents) -> Transform:
        """Return the stack."""
        return Stack(self.axis)


@dataclass(frozen=True)
class Add(Transform):
    """The sum of arrays, from which they cannot be had again."""

    says: ClassVar[str] = "added"
    rule_class: ClassVar[RuleClass] = "merging"

    def forward(self, arrays: Sequence[Any], names: Sequence[str]) -> list[Any]:
        """Return one array."""
        return [Added(arrays)]

    def moved(self, shapes: Extents) -> list[tuple[int, ...]]:
        """Return the shape of the sum."""
        return [tuple(shapes[0])]


@dataclass(frozen=True)
class Tie(Transform):
    """Several names of one array."""

    says: ClassVar[str] = "tied"
    count: int

    def forward(self, arrays: Sequence[Any], names: Sequence[str]) -> list[Any]:
        """Return the array; all must be of one type. Whether their values are one is the caller's to compare."""
        if len({(array.shape, array.dtype) for array in arrays}) > 1:
            raise CheckpointError(f"{' and '.join(names)} are tied and differ: {', '.join(map(str, arrays))}")
        return [arrays[0]]

    def moved(self, shapes: Extents) -> list[tuple[int, ...]]:
        """Return the shape of the array."""
        return [tuple(shapes[0])]

    def inverse(self, shapes: Extents) -> Transform:
        """Return the array for each name."""
        return Copies(self.count)


@dataclass(frozen=True)
class Copies(Transform):
    """One array under several names; the inverse of `Tie`."""

    says: ClassVar[str] = "{count} of one"
    count: int

    def forward(self, arrays: Sequence[Any], names: Sequence[str]) -> list[Any]:
        """Return the array as often as it has names."""
        return [*arrays] * self.count

    def moved(self, shapes: Extents) -> list[tuple[int, ...]]:
        """Return its shape as often."""
        return [tuple(shape) for shape in shapes] * self.count

    def inverse(self, shapes: Extents) -> Transform:
        """Return the tie."""
        return Tie(self.count)
