"""An array of zarr 2 whose chunks are files of plain bytes: mapped, and joined where a box touches several.

Source: the zarr specification, version 2: a chunk is a file of the chunk's whole shape in C order, named by its place
in the grid; what lies beyond the array is padding.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from parity.errors import CheckpointError
from parity.formats.array import BLOCK_BYTES, Array, Box, MappedArray
from parity.formats.mapping import map_file
from parity.formats.pieces import InPieces, Piece

__all__ = ["RawChunks", "chunk_name"]


def chunk_name(index: Sequence[int]) -> str:
    """Return the name of the file of a chunk.

    Example:
        >>> chunk_name((0, 12)), chunk_name(())
        ('0.12', '0')
    """
    return ".".join(map(str, index)) or "0"


class RawChunks(InPieces):
    """One array, all of whose chunks are there."""

    def __init__(self, folder: Path, shape: Sequence[int], chunk: Sequence[int], dtype: np.dtype[Any]) -> None:
        self.folder, self.shape, self.chunk, self.dtype = folder, tuple(shape), tuple(chunk), dtype
        self._mapped: dict[tuple[int, ...], Array] = {}

    def near(self, box: Box) -> Iterator[Piece]:
        """Yield the chunks that a box touches; those at the end reach beyond the array."""
        spans = [range(low // side, -(-high // side)) for (low, high), side in zip(box, self.chunk, strict=True)]
        for index in product(*spans):
            start = tuple(at * side for at, side in zip(index, self.chunk, strict=True))
            yield Piece(start, self.chunk, partial(self._chunk, index))

    def _chunk(self, index: tuple[int, ...]) -> Array:
        if index not in self._mapped:
            path = self.folder / chunk_name(index)
            if not path.is_file():
                raise CheckpointError(f"{path} is missing: a chunk of the array {self.folder.name}")
            found = map_file(path)
            expected = math.prod(self.chunk) * self.dtype.itemsize
            if found.nbytes != expected:
                raise CheckpointError(f"{path} has {found.nbytes:,} bytes, expected {expected:,}")
            self._mapped[index] = MappedArray(found, self.dtype, self.chunk)
        return self._mapped[index]

    def blocks(self, most: int = BLOCK_BYTES) -> Iterator[NDArray[Any]]:
        """Yield all of it in C order; the files are closed in the end."""
        yield from super().blocks(most)
        self._mapped.clear()
