"""Byte ranges: where the bytes of a leaf lie in the files of a checkpoint, and reading them without a framework."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from parity.formats import boxes, extents
from parity.state import LeafDigest, block_shape, in_schema_2, read_text
from parity.storage import digest_range, open_regular

__all__ = ["ByteRange", "is_intact", "item_size"]

PIECE = 16 << 20
"""Bytes of an array that are read at once, if one row of it has no more."""

MOST_ITEM = 64
"""Bytes of an element; the largest of NumPy's has 32."""


@dataclass(frozen=True)
class ByteRange:
    """Where bytes of a leaf lie in a file, as they are in memory."""

    file: str
    start: int
    size: int
    digest: str | None = None
    """XXH3-128 of the range. None for all of an array, in the order in which it was digested: the leaf's own digest
    says what must be there, and no byte is digested twice."""


def item_size(found: ByteRange, shape: Sequence[int]) -> int | None:
    """Return the bytes of each element of an array that fills a range; None where it cannot be that array.

    Args:
        found: The range.
        shape: Shape of the array; 1 is returned for one without elements, whose range is empty.

    Example:
        >>> item_size(ByteRange("state.pt", 64, 24), (2, 3)), item_size(ByteRange("state.pt", 64, 24), (2, 5))
        (4, None)
    """
    elements = math.prod(shape)
    if elements == 0:
        return 1 if found.size == 0 else None
    size, rest = divmod(found.size, elements)
    return size if rest == 0 and 0 < size <= MOST_ITEM else None


def is_intact(root: Path, found: ByteRange, text: str) -> bool:
    """Return whether a range holds the bytes that were sealed; read in pieces, never as a whole.

    Args:
        root: The checkpoint.
        found: A range of it.
        text: The text of the leaf, in a seal that was read.

    Raises:
        OSError: The file cannot be read.
    """
    if found.digest is not None:
        return digest_range(root / found.file, found.start, found.size) == found.digest
    array = read_text(text)
    item = item_size(found, array.shape) if array else None
    if array is None or item is None:
        return False
    if block_shape(array.shape, array.order) == array.shape:
        read = digest_range(root / found.file, found.start, found.size)
        return in_schema_2(f"{text.partition(' ')[0]} {read}") == text
    axes = array.order or tuple(range(len(array.shape)))
    leaf = LeafDigest(array.shape, array.dtype, array.order)
    with os.fdopen(open_regular(root / found.file), "rb") as file:
        file.seek(found.start)
        for box in boxes([array.shape[axis] for axis in axes], PIECE // item):
            start, extent = [low for low, _ in box], extents(box)
            data = file.read(item * math.prod(extent))
            if len(data) < item * math.prod(extent):
                return False  # the file is shorter than it was
            piece = np.frombuffer(data, f"V{item}").reshape(extent).transpose(np.argsort(axes))
            leaf.add([start[axes.index(axis)] for axis in range(len(axes))], piece)
    return leaf.text() == text
