"""An array as files of plain bytes, one for each chunk of zarr 2, written straight from where the elements lie."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from jax_side.formats.zarr import describe_array
from parity.formats import BLOCK_BYTES, Array, Box, boxes, chunk_name, extents
from parity.storage import WriteBack

__all__ = ["chunk_of", "chunks", "write_chunks"]


def write_chunks(folder: Path, array: Array, back: WriteBack) -> None:
    """Write an array into a new directory: its description, and a file for each chunk."""
    chunk = chunk_of(array.shape, array.dtype.itemsize)
    folder.mkdir()
    (folder / ".zarray").write_text(describe_array(array.shape, chunk, array.dtype.name), encoding="utf-8")
    size = math.prod(chunk) * array.dtype.itemsize
    for name, _, values in chunks(array, chunk):
        with (folder / name).open("xb", buffering=0) as file:
            back.write(file.fileno(), values.reshape(-1).view("u1"))
            file.truncate(size)


def chunks(array: Array, chunk: tuple[int, ...]) -> Iterator[tuple[str, Box, NDArray[Any]]]:
    """Yield the name, the box and the elements of each chunk, as they are stored; the last may lack its padding.

    Args:
        array: What is written.
        chunk: The shape of its chunks, as `chunk_of` returns it.
    """
    for box in boxes(array.shape, math.prod(chunk)):
        index = [low // side for (low, _), side in zip(box, chunk, strict=True)]
        yield chunk_name(index), box, _stored(array.read(box))


def chunk_of(shape: tuple[int, ...], item: int) -> tuple[int, ...]:
    """Return the shape of the chunks: boxes of consecutive elements, as equal as they can be, to have little padding.

    Example:
        >>> chunk_of((9, 1 << 20), 8), chunk_of((3,), 4), chunk_of((), 4)
        ((2, 1048576), (3,), ())
    """
    first = next(boxes(shape, max(1, BLOCK_BYTES // item)), None)
    if first is None:
        return tuple(max(n, 1) for n in shape)
    sides = []
    for n, side in zip(shape, extents(first), strict=True):
        count = -(-n // side)
        sides.append(-(-n // count))
    return tuple(sides)


def _stored(values: NDArray[Any]) -> NDArray[Any]:
    """Return elements in C order, little-endian as the description says."""
    plain = values.astype(values.dtype.newbyteorder("<"), copy=False) if values.dtype.byteorder == ">" else values
    return np.ascontiguousarray(plain).reshape(values.shape)
