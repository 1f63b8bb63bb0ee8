"""Arrays that a checkpoint keeps in pieces: boxes of a grid, or consecutive parts of the elements."""

from __future__ import annotations

import math
from abc import abstractmethod
from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import numpy as np
from numpy.typing import NDArray

from parity.errors import CheckpointError
from parity.formats.array import BLOCK_BYTES, Array, Box, extents

__all__ = ["FlatArray", "InPieces", "Piece", "PiecedArray", "Segment"]


@dataclass(frozen=True)
class Piece:
    """One box of an array, which lies somewhere of its own."""

    start: tuple[int, ...]
    """Its first index along each axis of the array."""
    shape: tuple[int, ...]
    load: Callable[[], Array]
    """Opens it; called when a box of it is read, not before."""

    @property
    def box(self) -> Box:
        """Return it as a box of the array."""
        return tuple((low, low + n) for low, n in zip(self.start, self.shape, strict=True))


class InPieces(Array):
    """An array that lies in pieces; a read opens those it touches."""

    @abstractmethod
    def near(self, box: Box) -> Iterable[Piece]:
        """Return pieces, among them all that have an element of a box."""

    def read(self, box: Box) -> NDArray[Any]:
        """Return a box of it: a view where it lies in one piece, gathered otherwise."""
        found = np.empty(extents(box), self.dtype)
        for piece in self.near(box):
            common = _common(piece.box, box)
            if common == box:
                return self._part(piece, box)
            if common is not None:
                place = tuple(slice(lo - at, hi - at) for (lo, hi), (at, _) in zip(common, box, strict=True))
                found[place] = self._part(piece, common)
        return found

    def _part(self, piece: Piece, box: Box) -> NDArray[Any]:
        array = piece.load()
        if array.shape != piece.shape or array.dtype != self.dtype:
            expected = f"{self.dtype.name}[{','.join(map(str, piece.shape))}]"
            raise CheckpointError(f"the piece at {_span(piece.box)} is {array}, expected {expected}")
        return array.read(tuple((lo - at, hi - at) for (lo, hi), at in zip(box, piece.start, strict=True)))


class PiecedArray(InPieces):
    """An array whose pieces are listed and cover it once."""

    def __init__(self, shape: Sequence[int], dtype: np.dtype[Any], pieces: Sequence[Piece]) -> None:
        """Take the pieces.

        Raises:
            CheckpointError: They reach beyond the array, overlap, or leave a hole.
        """
        self.shape, self.dtype = tuple(shape), dtype
        for piece in pieces:
            if len(piece.start) != len(self.shape) or len(piece.shape) != len(self.shape):
                raise CheckpointError(f"{self} has a piece at {list(piece.start)} of shape {list(piece.shape)}")
            if any(low < 0 or low > high or high > n for (low, high), n in zip(piece.box, self.shape, strict=True)):
                raise CheckpointError(f"{self} has a piece beyond its end: {_span(piece.box)}")
        self.pieces = [piece for piece in pieces if math.prod(piece.shape)]
        _check_disjoint(self, self.pieces)
        held = sum(math.prod(piece.shape) for piece in self.pieces)
        if held != self.size:
            raise CheckpointError(f"{self} has pieces of {held:,} elements, expected {self.size:,}: a hole")

    def near(self, box: Box) -> Sequence[Piece]:
        """Return all pieces."""
        return self.pieces


@dataclass(frozen=True)
class Segment:
    """Consecutive elements of an array of one axis."""

    array: Array
    start: int
    size: int


class FlatArray(Array):
    """An array whose elements, in C order, are segments of others, one after the other."""

    def __init__(self, shape: Sequence[int], segments: Sequence[Segment]) -> None:
        """Take the segments in order.

        Raises:
            CheckpointError: They have more or fewer elements than the array, different dtypes, or reach beyond
                the arrays they are of.
        """
        dtypes = {segment.array.dtype for segment in segments}
        self.shape = tuple(shape)
        self.dtype = segments[0].array.dtype if segments else np.dtype("float32")
        if len(dtypes) > 1:
            raise CheckpointError(f"{self} has parts of different dtypes: {', '.join(sorted(map(str, dtypes)))}")
        for one in segments:
            if one.array.shape != (one.array.size,) or not 0 <= one.start <= one.start + one.size <= one.array.size:
                raise CheckpointError(f"{self}: elements {one.start} to {one.start + one.size} of {one.array}")
        self._segments = [segment for segment in segments if segment.size]
        self._stops = list(accumulate(segment.size for segment in self._segments))
        held = self._stops[-1] if self._stops else 0
        if held != self.size:
            raise CheckpointError(f"{self} has parts of {held:,} elements, expected {self.size:,}")

    def read(self, box: Box) -> NDArray[Any]:
        """Return a box of it: a view where its rows lie in one segment and are few, gathered otherwise."""
        extent = extents(box)
        if not math.prod(extent):
            return np.empty(extent, self.dtype)
        if not self.shape:
            return self._elements(0, 1).reshape(())
        found, (low, high) = self._rows(box, self.shape, 0), box[0]
        if found.shape[0] == high - low:
            return found
        made = np.empty(extent, self.dtype)
        self._fill(made, box, self.shape, 0)
        return made

    def _fill(self, out: NDArray[Any], box: Box, shape: tuple[int, ...], start: int) -> None:
        """Copy a box of the part that has a shape and begins at an element."""
        (low, high), row = box[0], math.prod(shape[1:])
        at = low
        while at < high:
            found = self._rows(((at, high), *box[1:]), shape, start)
            if len(found):
                out[at - low : at - low + len(found)] = found
                at += len(found)
            else:  # a row that lies in two segments, or is large
                self._fill(out[at - low], box[1:], shape[1:], start + at * row)
                at += 1

    def _rows(self, box: Box, shape: tuple[int, ...], start: int) -> NDArray[Any]:
        """Return the first rows of a box: as many as lie in one segment and are small together, maybe none."""
        (low, high), row = box[0], math.prod(shape[1:])
        first = start + low * row
        in_segment = (self._stops[bisect_right(self._stops, first)] - first) // row
        count = min(high - low, in_segment, BLOCK_BYTES // (row * self.dtype.itemsize))
        found = self._elements(first, first + count * row).reshape(count, *shape[1:])
        return found[(slice(None), *(slice(*pair) for pair in box[1:]))]

    def _elements(self, low: int, high: int) -> NDArray[Any]:
        """Return elements of one segment."""
        at = bisect_right(self._stops, low)
        segment = self._segments[at]
        shift = segment.start - (self._stops[at] - segment.size)
        return segment.array.read(((low + shift, high + shift),))


def _common(a: Box, b: Box) -> Box | None:
    """Return what two boxes share, None if that is nothing; those of an array without axes share its element."""
    both = tuple((max(p[0], q[0]), min(p[1], q[1])) for p, q in zip(a, b, strict=True))
    return both if all(low < high for low, high in both) else None


def _span(box: Box) -> str:
    return f"[{', '.join(f'{low}:{high}' for low, high in box)}]"


def _check_disjoint(array: Array, pieces: Sequence[Piece]) -> None:
    """Check that no two pieces share an element, going along the axis that divides them most."""
    if len(pieces) < 2:
        return
    low = np.array([piece.start for piece in pieces], np.int64).reshape(len(pieces), -1)
    high = low + np.array([piece.shape for piece in pieces], np.int64).reshape(len(pieces), -1)
    if not low.shape[1]:
        raise CheckpointError(f"{array} has {len(pieces)} pieces, expected one")
    axis = int(np.argmax([len(np.unique(column)) for column in low.T]))
    order = np.argsort(low[:, axis], kind="stable")
    low, high = low[order], high[order]
    for at in range(len(pieces) - 1):
        stop = int(np.searchsorted(low[:, axis], high[at, axis]))
        clash = np.all((low[at + 1 : stop] < high[at]) & (high[at + 1 : stop] > low[at]), axis=1)
        if clash.any():
            other = pieces[order[at + 1 + int(clash.argmax())]]
            raise CheckpointError(
                f"{array} has pieces that overlap: {_span(pieces[order[at]].box)}, {_span(other.box)}"
            )
