"""An array of zarr 2 whose chunks are files of plain bytes: mapped, and joined where a box touches several.

Source: the zarr specification, version 2: a chunk is a file of the chunk's whole shape in C order, named by its place
in the grid; what lies beyond the array is padding.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from parity.errors import CheckpointError
from parity.formats.array import BLOCK_BYTES, Array, Box, boxes, extents
from parity.formats.mapping import map_file

__all__ = ["RawChunks", "chunk_name"]


def chunk_name(index: Sequence[int]) -> str:
    """Return the name of the file of a chunk.

    Example:
        >>> chunk_name((0, 12)), chunk_name(())
        ('0.12', '0')
    """
    return ".".join(map(str, index)) or "0"


class RawChunks(Array):
    """One array, all of whose chunks are there."""

    def __init__(self, folder: Path, shape: Sequence[int], chunk: Sequence[int], dtype: np.dtype[Any]) -> None:
        self.folder, self.shape, self.chunk, self.dtype = folder, tuple(shape), tuple(chunk), dtype
        self._mapped: dict[tuple[int, ...], NDArray[Any]] = {}

    def read(self, box: Box) -> NDArray[Any]:
        """Return a box: a view of the file if one chunk holds it, else its parts together."""
        extent = extents(box)
        if not math.prod(extent):
            return np.empty(extent, self.dtype)
        spans = [range(low // side, -(-high // side)) for (low, high), side in zip(box, self.chunk, strict=True)]
        parts = list(product(*spans))
        if len(parts) == 1:
            return self._part(parts[0], box)[0]
        out = np.empty(extent, self.dtype)
        for index in parts:
            values, place = self._part(index, box)
            out[place] = values
        return out

    def _part(self, index: tuple[int, ...], box: Box) -> tuple[NDArray[Any], tuple[slice, ...]]:
        """Return what a chunk has of a box, and where in the box that is."""
        inner, place = [], []
        for at, side, (low, high) in zip(index, self.chunk, box, strict=True):
            first, end = max(low, at * side), min(high, (at + 1) * side)
            inner.append(slice(first - at * side, end - at * side))
            place.append(slice(first - low, end - low))
        return self._chunk(index)[tuple(inner)], tuple(place)

    def _chunk(self, index: tuple[int, ...]) -> NDArray[Any]:
        if index not in self._mapped:
            path = self.folder / chunk_name(index)
            if not path.is_file():
                raise CheckpointError(f"{path} is missing: a chunk of the array {self.folder.name}")
            found = map_file(path)
            expected = math.prod(self.chunk) * self.dtype.itemsize
            if found.nbytes != expected:
                raise CheckpointError(f"{path} has {found.nbytes:,} bytes, expected {expected:,}")
            self._mapped[index] = found.view(self.dtype).reshape(self.chunk)
        return self._mapped[index]

    def blocks(self, most: int = BLOCK_BYTES) -> Iterator[NDArray[Any]]:
        """Yield all of it in C order; the files are closed in the end."""
        for box in boxes(self.shape, max(1, most // self.dtype.itemsize)):
            yield np.ascontiguousarray(self.read(box)).reshape(-1)
        self._mapped.clear()
