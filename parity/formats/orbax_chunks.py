"""Whether every chunk of an array is in the store of an Orbax item: looked up, not read.

TensorStore takes a chunk that is not there for one full of zeros. Orbax writes every chunk, and says so in its
description, so that there a chunk without bytes is a loss, and the array must not be read.

Source: the zarr specifications, versions 2 and 3 (chunk keys).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product

from parity.errors import CheckpointError
from parity.formats.raw_chunks import chunk_name

__all__ = ["Grid", "check_chunks", "key_below"]

MOST_HOLES = 1_000_000
"""Most chunks that may be left out of an array, where chunks of zeros are."""

FEW = 64
"""Chunks of an array whose keys are kept."""

MOST_RATIO = 1 << 16
"""Bytes that one byte of a compressed chunk can become: zstd writes 128 KiB of one value in 4 bytes."""


@dataclass(frozen=True)
class Grid:
    """The chunks of an array."""

    shape: Sequence[int]
    chunk: Sequence[int]
    """Shape of what has a key of its own: a chunk, or a shard of chunks."""
    key: Callable[[Sequence[int]], str] = chunk_name
    """Takes a place in the grid, and returns the key of the chunk."""
    itemsize: int = 1
    plain: bool = False
    """Whether a chunk is the bytes of its elements, not compressed."""

    @cached_property
    def keys(self) -> tuple[str, ...]:
        """Return the keys of its chunks, where they are few: many arrays of a file are alike, and share a grid."""
        return tuple(self) if self.count <= FEW else ()

    @cached_property
    def count(self) -> int:
        """Return the number of chunks."""
        return math.prod(-(-n // c) for n, c in zip(self.shape, self.chunk, strict=True))

    @cached_property
    def nbytes(self) -> int:
        """Return the bytes of the elements of one chunk."""
        return math.prod(self.chunk) * self.itemsize

    def __iter__(self) -> Iterator[str]:
        """Yield the key of each chunk."""
        yield from map(self.key, product(*(range(-(-n // c)) for n, c in zip(self.shape, self.chunk, strict=True))))


def key_below(name: str, key: str) -> str:
    """Return the key of what belongs to an array; one that is the whole checkpoint has no name.

    Example:
        >>> key_below("layer.w", "0.0"), key_below("", "0.0")
        ('layer.w/0.0', '0.0')
    """
    return f"{name}/{key}" if name else key


def check_chunks(where: str, name: str, grid: Grid, stored: Mapping[str, int], *, complete: bool) -> int:
    """Check the chunks of one array against what is stored; return how many are not.

    Args:
        where: The item, for messages.
        name: The array.
        grid: Its chunks.
        stored: Key to bytes of all that the store holds.
        complete: Whether every chunk was written.

    Raises:
        CheckpointError: A chunk is missing and was written, or has not the bytes for its elements.
    """
    if not math.prod(grid.shape):
        return 0
    if grid.count > FEW and not complete and grid.count > len(stored) + MOST_HOLES:
        raise CheckpointError(f"{where}: {name} has {grid.count:,} chunks, and {len(stored):,} values are stored")
    missing = 0
    for key in grid.keys or grid:
        place = key_below(name, key)
        size = stored.get(place)
        if size is not None:
            _check_size(where, place, grid, size)
        elif complete:
            raise CheckpointError(f"{where}: {place} is missing: a chunk of the array {name}".rstrip())
        else:
            missing += 1
    return missing


def _check_size(where: str, key: str, grid: Grid, size: int) -> None:
    if grid.plain and size != grid.nbytes:
        raise CheckpointError(f"{where}: {key} has {size:,} bytes, expected {grid.nbytes:,}")
    if grid.nbytes > (size + 1) * MOST_RATIO:
        raise CheckpointError(
            f"{where}: {key} has {size:,} bytes, and its chunk would be {grid.nbytes:,}: no compression does that"
        )
