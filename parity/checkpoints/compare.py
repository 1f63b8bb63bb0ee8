"""The comparison of two sealed checkpoints without loading them; needs neither jax nor torch.

Each side digests its leaves in the order in which they lie in its memory: two seals of one side and one schema
are enough. JAX keeps matrices and convolution kernels with their axes in another order than PyTorch (see
`parity.twins.table`); across sides, and across schemas, their bytes are read and digested again as the other's were.
"""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np

from parity.checkpoints.ranges import ByteRange, item_size
from parity.checkpoints.seal import FILE, Seal, compare_listing, read_seal
from parity.checkpoints.since import untouched_since
from parity.errors import CheckpointError, DamagedError
from parity.state import (
    Difference,
    DigestSchema,
    Order,
    compare_digests,
    digest_text,
    in_schema_2,
    order_of,
    read_text,
    schema_of,
)
from parity.storage import list_files, open_regular

__all__ = ["compare", "own_bytes", "sealed_alike", "seems_whole"]


def compare(a: Path, b: Path) -> list[Difference]:
    """Return the leaves in which two sealed checkpoints differ.

    Args:
        a: A checkpoint, `checkpoints/<step>`.
        b: Another, of either side.

    Raises:
        CheckpointError: One has no valid seal, or one that need not name every leaf; or it holds other bytes than
            were sealed where they had to be read.
    """
    first, second = read_seal(a), read_seal(b)
    for path, seal in ((a, first), (b, second)):
        if not seal.complete:
            raise CheckpointError(f"{path} has a seal of no run and no tree, which need not name every leaf")
    left, right = ({leaf: in_schema_2(text) for leaf, text in seal.leaves.items()} for seal in (first, second))
    for leaf in sorted(left.keys() & right.keys()):
        ours, theirs = ((order_of(text), schema_of(text)) for text in (left[leaf], right[leaf]))
        if ours == theirs:
            continue
        if (place := own_bytes(second, leaf)) is not None:
            right[leaf] = _digest_again(b, leaf, right[leaf], place, ours)
        elif (place := own_bytes(first, leaf)) is not None:
            left[leaf] = _digest_again(a, leaf, left[leaf], place, theirs)
    return compare_digests(left, right)


def sealed_alike(a: Path, b: Path) -> bool:
    """Return whether two seals name the same leaves with the same digests, and their files have the sealed sizes.

    No array is read: `verify` finds a flipped bit in a file of the sealed size. The seal of a run or a tree names
    every leaf of the state; that of a conversion names its arrays, and one that was made afterwards no leaf at all,
    so those two never say that all is equal.

    Args:
        a: A checkpoint, `checkpoints/<step>`.
        b: Another.

    Returns:
        False also where a seal is missing or not valid, does not name every leaf, or is older than a file of it.
    """
    if not (seems_whole(a) and seems_whole(b)):
        return False
    first, second = read_seal(a), read_seal(b)
    every = all(seal.complete and seal.leaves for seal in (first, second))
    return every and first.leaves == second.leaves


def seems_whole(path: Path) -> bool:
    """Return whether a checkpoint has a valid seal and all of its files with their sizes, none written after it.

    Args:
        path: The directory of a checkpoint.
    """
    try:
        seal = read_seal(path)
        return not compare_listing(seal, list_files(path)) and untouched_since(seal, path, path / FILE)
    except CheckpointError:
        return False


def own_bytes(seal: Seal, leaf: str) -> ByteRange | None:
    """Return the range that holds the bytes of an array as they were in memory, all of them and nothing else.

    Args:
        seal: Of the checkpoint.
        leaf: Neutral name of the array.
    """
    digest = seal.leaves[leaf].rpartition(" ")[2]
    return next((place for place in seal.places.get(leaf, ()) if place.digest in (None, digest)), None)


def _digest_again(path: Path, leaf: str, text: str, place: ByteRange, way: tuple[Order, DigestSchema]) -> str:
    """Read the bytes of an array, compare them with its text, and return the text that another way gives it.

    A way is the order of the axes and the schema of the digest.
    """
    array = read_text(text)
    size = item_size(place, array.shape) if array else None
    if array is None or size is None:
        raise CheckpointError(f"{path}: {leaf} cannot be {text!r} and lie in {place.size} bytes")
    found = _read(path / place.file, place)
    if len(found) == place.size:
        axes = array.order or tuple(range(len(array.shape)))
        value = np.frombuffer(found, f"V{size}")  # NumPy need not know the type to move its bytes
        value = value.reshape([array.shape[axis] for axis in axes]).transpose(np.argsort(axes))
        as_it_was, again = (
            array.dtype + made[made.index("[") :]
            for made in (digest_text(value, array.order, array.schema), digest_text(value, *way))
        )
        if as_it_was == text:
            return again
    raise DamagedError(f"{path} is not what was sealed:", [(place.file, f"the bytes of {leaf} are others")])


def _read(path: Path, place: ByteRange) -> bytes:
    """Return the bytes of a place, of what is there of it; the file's size bounds what is asked for."""
    try:
        handle = open_regular(path)
        with os.fdopen(handle, "rb") as file:
            file.seek(place.start)
            return file.read(min(place.size, max(0, os.fstat(handle).st_size - place.start)))
    except OSError as error:
        raise CheckpointError(f"{path} cannot be read: {error.strerror or error}") from error
