"""Arrays made of others, lazily: permuted, reshaped, joined, cut, scaled, cast; read by boxes of the source."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import Any

import numpy as np
from numpy.typing import NDArray

from parity.errors import CheckpointError
from parity.formats import Array, Box, extents

__all__ = ["Added", "Cut", "Joined", "Permuted", "Reshaped", "Retyped", "Scaled", "Stacked", "Zeros"]

RUN_BYTES = 4 << 20
"""Bytes of a run of a reshaped array that are read at once."""


class Permuted(Array):
    """An array with its axes in another order, as `numpy.transpose` gives it."""

    def __init__(self, source: Array, axes: Sequence[int]) -> None:
        if sorted(axes) != list(range(len(source.shape))):
            raise CheckpointError(f"permute {list(axes)} does not name the {len(source.shape)} axes of {source}")
        self.source, self.axes = source, tuple(axes)
        self.shape, self.dtype = tuple(source.shape[a] for a in axes), source.dtype
        self.chunk_bytes = source.chunk_bytes

    def read(self, box: Box) -> NDArray[Any]:
        """Return a box, read as the box of the source with its axes put back."""
        inner = tuple(box[self.axes.index(axis)] for axis in range(len(self.axes)))
        return self.source.read(inner).transpose(self.axes)


class Reshaped(Array):
    """An array of another shape, its elements in C order."""

    def __init__(self, source: Array, shape: Sequence[int]) -> None:
        if math.prod(shape) != source.size:
            raise CheckpointError(f"reshape to {list(shape)}: {source} has {source.size} elements")
        self.source, self.shape, self.dtype = source, tuple(shape), source.dtype
        self.chunk_bytes = source.chunk_bytes

    def read(self, box: Box) -> NDArray[Any]:
        """Return a box, read as runs of consecutive elements."""
        out = np.empty(extents(box), self.dtype)
        if not out.size:
            return out
        tail = len(self.shape)  # axes from here on are whole, so that a run spans them
        while tail > 0 and box[tail - 1] == (0, self.shape[tail - 1]):
            tail -= 1
        flat = out.reshape(-1)
        at = 0
        for lead in np.ndindex(*extents(box[: max(tail - 1, 0)])):
            first = [low + i for (low, _), i in zip(box, lead, strict=False)]
            start = _offset(self.shape, [*first, *(low for low, _ in box[len(first) :])])
            length = math.prod(extents(box[max(tail - 1, 0) :]))
            for part in _flat(self.source, start, start + length):
                flat[at : at + part.size] = part
                at += part.size
        return out


class Joined(Array):
    """Arrays one after the other along an axis."""

    def __init__(self, parts: Sequence[Array], axis: int) -> None:
        first = parts[0]
        rest = {(p.shape[:axis], p.shape[axis + 1 :], p.dtype) for p in parts}
        if len(rest) != 1 or not 0 <= axis < len(first.shape):
            raise CheckpointError(f"cannot be joined along axis {axis}: {', '.join(map(str, parts))}")
        self.parts, self.axis, self.dtype = tuple(parts), axis, first.dtype
        self.starts = list(accumulate((p.shape[axis] for p in parts), initial=0))
        self.shape = (*first.shape[:axis], self.starts[-1], *first.shape[axis + 1 :])
        self.chunk_bytes = max(p.chunk_bytes for p in parts)

    def read(self, box: Box) -> NDArray[Any]:
        """Return a box, read from the parts that it touches."""
        low, high = box[self.axis]
        pieces = []
        for part, start in zip(self.parts, self.starts, strict=False):
            a, b = max(low, start), min(high, start + part.shape[self.axis])
            if a < b:
                inner = (*box[: self.axis], (a - start, b - start), *box[self.axis + 1 :])
                pieces.append(part.read(inner))
        return np.concatenate(pieces, self.axis) if pieces else np.empty(extents(box), self.dtype)


class Stacked(Array):
    """Arrays of one shape along a new axis."""

    def __init__(self, parts: Sequence[Array], axis: int) -> None:
        if len({(p.shape, p.dtype) for p in parts}) != 1 or not 0 <= axis <= len(parts[0].shape):
            raise CheckpointError(f"cannot be stacked along axis {axis}: {', '.join(map(str, parts[:4]))}")
        self.parts, self.axis, self.dtype = tuple(parts), axis, parts[0].dtype
        shape = parts[0].shape
        self.shape = (*shape[:axis], len(parts), *shape[axis:])
        self.chunk_bytes = max(p.chunk_bytes for p in parts)

    def read(self, box: Box) -> NDArray[Any]:
        """Return a box, read from the parts that it touches."""
        inner = (*box[: self.axis], *box[self.axis + 1 :])
        low, high = box[self.axis]
        if low == high:
            return np.empty(extents(box), self.dtype)
        return np.stack([part.read(inner) for part in self.parts[low:high]], self.axis)


class Cut(Array):
    """A part of an array along an axis, or one index of it."""

    def __init__(self, source: Array, axis: int, start: int, stop: int, *, drop: bool = False) -> None:
        if not (0 <= axis < len(source.shape) and 0 <= start <= stop <= source.shape[axis]):
            raise CheckpointError(f"{source} has no part {start} to {stop} along axis {axis}")
        self.source, self.axis, self.start, self.drop = source, axis, start, drop
        middle = () if drop else (stop - start,)
        self.shape, self.dtype = (*source.shape[:axis], *middle, *source.shape[axis + 1 :]), source.dtype
        self.chunk_bytes = source.chunk_bytes

    def read(self, box: Box) -> NDArray[Any]:
        """Return a box of the part."""
        if self.drop:
            inner = (*box[: self.axis], (self.start, self.start + 1), *box[self.axis :])
            return self.source.read(inner).reshape(extents(box))
        low, high = box[self.axis]
        return self.source.read((*box[: self.axis], (low + self.start, high + self.start), *box[self.axis + 1 :]))


class Scaled(Array):
    """An array times a number, computed in its own dtype."""

    def __init__(self, source: Array, factor: float) -> None:
        self.source, self.factor = source, factor
        self.shape, self.dtype, self.chunk_bytes = source.shape, source.dtype, source.chunk_bytes

    def read(self, box: Box) -> NDArray[Any]:
        """Return a box, scaled."""
        return np.asarray(self.source.read(box) * self.dtype.type(self.factor))


class Added(Array):
    """The sum of arrays, computed in their own dtype."""

    def __init__(self, parts: Sequence[Array]) -> None:
        if len({(p.shape, p.dtype) for p in parts}) != 1:
            raise CheckpointError(f"cannot be added: {', '.join(map(str, parts))}")
        self.parts, self.shape, self.dtype = tuple(parts), parts[0].shape, parts[0].dtype
        self.chunk_bytes = max(p.chunk_bytes for p in parts)

    def read(self, box: Box) -> NDArray[Any]:
        """Return a box of the sum."""
        total = self.parts[0].read(box)
        for part in self.parts[1:]:
            total = np.asarray(total + part.read(box))
        return total


class Retyped(Array):
    """An array in another dtype, rounded as NumPy does."""

    def __init__(self, source: Array, dtype: np.dtype[Any]) -> None:
        self.source, self.shape, self.dtype, self.chunk_bytes = source, source.shape, dtype, source.chunk_bytes

    def read(self, box: Box) -> NDArray[Any]:
        """Return a box, cast."""
        return self.source.read(box).astype(self.dtype)


class Zeros(Array):
    """An array of one value that no file holds, such as the moments of a parameter before its first update."""

    def __init__(self, shape: Sequence[int], dtype: np.dtype[Any], value: float = 0.0) -> None:
        self.shape, self.dtype, self.value = tuple(shape), dtype, value

    def read(self, box: Box) -> NDArray[Any]:
        """Return a box."""
        return np.full(extents(box), self.value, self.dtype)


def _offset(shape: Sequence[int], index: Sequence[int]) -> int:
    at = 0
    for n, i in zip(shape, index, strict=True):
        at = at * n + i
    return at


def _flat(source: Array, start: int, stop: int) -> Iterator[NDArray[Any]]:
    """Yield the elements from one to another of an array in C order, in runs."""
    most = max(1, RUN_BYTES // source.dtype.itemsize)
    while start < stop:
        size = min(stop - start, most)
        yield from (np.ascontiguousarray(source.read(box)).reshape(-1) for box in _cover(source.shape, start, size))
        start += size


def _cover(shape: Sequence[int], start: int, size: int) -> Iterator[Box]:
    """Yield boxes of consecutive elements that make up a range of an array in C order."""
    if not shape:
        yield ()
        return
    row = math.prod(shape[1:])
    while size > 0:
        at, inside = divmod(start, row)
        if inside or size < row:
            length = min(size, row - inside)
            yield from (((at, at + 1), *box) for box in _cover(shape[1:], inside, length))
        else:
            length = size // row * row
            yield ((at, at + length // row), *((0, n) for n in shape[1:]))
        start, size = start + length, size - length
