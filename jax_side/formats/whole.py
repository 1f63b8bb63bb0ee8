"""Arrays read straight from the files of a store: by several threads, into memory that JAX takes as it is.

TensorStore reads an array into a buffer of its own and copies it into the array that Orbax returns: twice the memory,
and most of the time of a restore. Where the store holds the bytes of an array as they are in memory, one read is all
it takes. What was read is compared with the seal like everything else that is restored.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import jax
import numpy as np
from numpy.typing import NDArray

from jax_side.formats.described import leaf_name
from jax_side.formats.ocdbt import Range
from parity.storage import read_ranges

__all__ = ["LEAST", "read_buffers", "read_whole"]

LEAST = 1
"""Bytes from which on an array is read here. Where Orbax has written the store, small ones lie in its nodes, and are
Orbax's to read."""

ALIGNMENT = 64
"""Bytes XLA aligns its buffers to on a CPU; an array that is not is copied."""

Id = TypeVar("Id", bound=Hashable)


def read_whole(store: Path, tree: Any, stored: Mapping[str, Sequence[Range]]) -> dict[int, jax.Array]:
    """Read the arrays of a store that lie there whole, if this process alone holds the state.

    Args:
        store: Directory of an item.
        tree: What it holds: shapes, dtypes and shardings, which were compared with the store's own description.
        stored: Array name to the ranges of its values, as `locate` returns them.

    Returns:
        Number of a leaf, in the order of `jax.tree.leaves`, to its array; the others are Orbax's to read.

    Raises:
        EOFError: A file is shorter than it was.
        OSError: A file cannot be read, or is a link.
    """
    if jax.process_count() > 1:  # putting an array on devices of others would make all of them compare it
        return {}
    leaves, _ = jax.tree_util.tree_flatten_with_path(tree)
    buffers = read_buffers(
        store, {i: (leaf_name(path), _bytes(leaf)) for i, (path, leaf) in enumerate(leaves)}, stored
    )
    arrays = {i: buffer.view(leaves[i][1].dtype).reshape(leaves[i][1].shape) for i, buffer in buffers.items()}
    return {i: jax.device_put(array, leaves[i][1].sharding) for i, array in arrays.items()}


def read_buffers(
    store: Path, wanted: Mapping[Id, tuple[str, int]], stored: Mapping[str, Sequence[Range]]
) -> dict[Id, NDArray[np.uint8]]:
    """Read the bytes of arrays that lie whole in a store, by several threads; empty ones are left out.

    Args:
        store: Directory of an item.
        wanted: What an array is called by the caller to its name in the store and its size in bytes.
        stored: As of `read_whole`.

    Raises:
        EOFError: A file is shorter than it was.
        OSError: A file cannot be read, or is a link.
    """
    buffers: dict[Id, NDArray[np.uint8]] = {}
    ranges: dict[Path, list[tuple[int, memoryview]]] = {}
    for one, (name, size) in wanted.items():
        whole = [r for r in stored.get(name, ()) if r.whole]
        if len(whole) != 1 or whole[0].size < LEAST or whole[0].size != size:
            continue
        buffers[one] = _aligned(size)
        ranges.setdefault(store / whole[0].file, []).append((whole[0].start, memoryview(buffers[one])))
    read_ranges(ranges)
    return buffers


def _bytes(leaf: Any) -> int:
    """Return the size of a plain array; a typed key has no plain elements."""
    if jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key):
        return -1
    return int(math.prod(leaf.shape) * leaf.dtype.itemsize)


def _aligned(size: int) -> NDArray[np.uint8]:
    memory = np.empty(size + ALIGNMENT, np.uint8)
    start = -memory.ctypes.data % ALIGNMENT
    return memory[start : start + size]
