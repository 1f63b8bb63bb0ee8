"""A sealed checkpoint of a run by its neutral names: arrays where their bytes lie, anything else as the seal has it.

Both sides have the same names and PyTorch's axes there, so that one comparison serves any two of them.
"""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from parity.checkpoints.compare import own_bytes
from parity.checkpoints.ranges import ByteRange, item_size
from parity.checkpoints.seal import Seal, read_seal
from parity.errors import CheckpointError
from parity.formats import Array, MappedArray, Opaque, Source, dtype_named, map_file
from parity.state import read_text

__all__ = ["neutral_source"]


class _Stated(Opaque):
    """A value of which the seal alone is read: its type and its value, or its digest where that is long."""

    def __str__(self) -> str:
        """Return what the seal says."""
        return self.name


def neutral_source(path: Path) -> Source:
    """Return a sealed checkpoint as a flat tree of neutral names; no array is read.

    Args:
        path: `checkpoints/<step>` of a run of either side.

    Returns:
        An array whose bytes lie nowhere as they were in memory, or that has a type that NumPy does not know, is there
        by its digest alone.

    Raises:
        CheckpointError: It has no valid seal, or a file is missing or shorter than was sealed.
    """
    seal = read_seal(path)
    files: dict[str, NDArray[np.uint8]] = {}
    tree = {leaf: _leaf(path, seal, leaf, files) for leaf in seal.leaves}
    return Source(path=path, format=f"run of the side {seal.side}", tree=tree, detail=f"step {seal.step}")


def _leaf(path: Path, seal: Seal, leaf: str, files: dict[str, NDArray[np.uint8]]) -> Array | _Stated:
    text = seal.leaves[leaf]
    array, place = read_text(text), own_bytes(seal, leaf)
    dtype = None if array is None else dtype_named(array.dtype)
    if array is None or place is None or dtype is None or item_size(place, array.shape) != dtype.itemsize:
        return _Stated(text)
    axes = array.order or tuple(range(len(array.shape)))
    extents = [array.shape[axis] for axis in axes]
    strides = [0] * len(axes)
    for at, axis in enumerate(axes):
        strides[axis] = math.prod(extents[at + 1 :]) * dtype.itemsize
    if place.file not in files:
        files[place.file] = _bytes(path, place)
    return MappedArray(files[place.file], dtype, array.shape, start=place.start, strides=strides)


def _bytes(path: Path, place: ByteRange) -> NDArray[np.uint8]:
    file = path / place.file
    if file.is_symlink():
        raise CheckpointError(f"{file} cannot be read: it is a link")
    return map_file(file)
