"""Byte ranges: where the bytes of a leaf lie in the files of a checkpoint, and reading them without a framework."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path

import numpy as np

from parity.contract import LeafDigest, block_shape, in_schema_2, read_text
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
        for start, extent in _pieces([array.shape[axis] for axis in axes], PIECE // item):
            data = file.read(item * math.prod(extent))
            if len(data) < item * math.prod(extent):
                return False  # the file is shorter than it was
            piece = np.frombuffer(data, f"V{item}").reshape(extent).transpose(np.argsort(axes))
            leaf.add([start[axes.index(axis)] for axis in range(len(axes))], piece)
    return leaf.text() == text


def _pieces(shape: Sequence[int], most: int) -> Iterator[tuple[tuple[int, ...], tuple[int, ...]]]:
    """Divide an array in C order into boxes of consecutive elements; yield the start and the extents of each.

    Example:
        >>> list(_pieces([2, 3], 4))
        [((0, 0), (1, 3)), ((1, 0), (1, 3))]
    """
    if not math.prod(shape):
        return
    axis = next((a for a in range(len(shape)) if math.prod(shape[a + 1 :]) <= most), None)
    if axis is None:  # no axes at all
        yield (), ()
        return
    rest = tuple(shape[axis + 1 :])
    step = most // math.prod(rest)
    for lead in product(*map(range, shape[:axis])):
        for low in range(0, shape[axis], step):
            yield (*lead, low, *(0 for _ in rest)), (*(1 for _ in lead), min(step, shape[axis] - low), *rest)
