"""Boxes of tensors in a `torch.save` file that was laid out before: each written at its place by whoever holds it."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from itertools import product
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from parity import storage
from parity.formats import Box

__all__ = ["ShardPiece", "runs", "write_at"]


class ShardPiece(NamedTuple):
    """What this process writes of one tensor."""

    leaf: str | None
    """Its neutral name; None for what is not in the neutral state, as the generators."""
    number: int
    """Number of its record in the archive, or where that starts in the file."""
    shape: tuple[int, ...]
    """Of the whole tensor."""
    box: Box
    values: NDArray[np.generic]


def runs(piece: ShardPiece) -> Iterator[tuple[int, memoryview]]:
    """Yield the runs of bytes of a piece that lie together in the whole tensor, each with its offset there."""
    item, inner = piece.values.itemsize, len(piece.shape)
    while inner and piece.box[inner - 1] == (0, piece.shape[inner - 1]):
        inner -= 1  # axes behind are whole
    outer = max(0, inner - 1)
    rest = math.prod(piece.shape[inner:])
    strides = [math.prod(piece.shape[axis + 1 :]) for axis in range(len(piece.shape))]
    for index in product(*(range(high - low) for low, high in piece.box[:outer])):
        values = np.ascontiguousarray(piece.values[index])
        start = sum((low + i) * stride for (low, _), i, stride in zip(piece.box, index, strides, strict=False))
        start += piece.box[outer][0] * rest if inner else 0
        if values.size:
            yield start * item, memoryview(values.reshape(-1).view(np.uint8))


def write_at(descriptor: int, data: memoryview, at: int) -> None:
    """Write bytes at a place of a file, all of them."""
    while data:
        count = os.pwrite(descriptor, data[: storage.WRITE_BYTES], at)
        data, at = data[count:], at + count
