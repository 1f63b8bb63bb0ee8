"""Compare two sealed checkpoints without loading them; needs neither jax nor torch.

Each side digests its leaves as they lie in its memory, so that no byte is moved for a seal: of one side, two seals
say everything. JAX keeps matrices and convolution kernels with their axes in another order than PyTorch (see
`parity.twins.table`); across sides their bytes are read, and digested again in the other's order.
"""

from __future__ import annotations

import math
import os
import re
from pathlib import Path

import numpy as np
import xxhash

from parity.checkpoints.seal import Place, Seal, read_seal
from parity.contract import Difference, Order, compare_digests, digest_text, order_of
from parity.errors import CheckpointError, DamagedError
from parity.storage import open_regular

__all__ = ["compare"]

_ARRAY = re.compile(r"(\w+)\[([0-9]{1,15}(?:,[0-9]{1,15}){0,15})\](?:@.*)?")


def compare(a: Path, b: Path) -> list[Difference]:
    """Return the leaves in which two sealed checkpoints differ.

    Args:
        a: A checkpoint, `checkpoints/<step>`.
        b: Another, of either side.

    Raises:
        CheckpointError: One has no valid seal, or holds other bytes than were sealed where they had to be read.
    """
    first, second = read_seal(a), read_seal(b)
    left, right = dict(first.leaves), dict(second.leaves)
    for leaf in sorted(left.keys() & right.keys()):
        ours, theirs = order_of(left[leaf]), order_of(right[leaf])
        if ours == theirs:
            continue
        if (place := _own_bytes(second, leaf)) is not None:
            right[leaf] = _digest_again(b, leaf, right[leaf], place, ours)
        elif (place := _own_bytes(first, leaf)) is not None:
            left[leaf] = _digest_again(a, leaf, left[leaf], place, theirs)
    return compare_digests(left, right)


def _own_bytes(seal: Seal, leaf: str) -> Place | None:
    """Return the place that holds the bytes of an array as they were in memory, all of them and nothing else."""
    digest = seal.leaves[leaf].rpartition(" ")[2]
    return next((place for place in seal.places.get(leaf, ()) if place.digest == digest), None)


def _digest_again(path: Path, leaf: str, text: str, place: Place, order: Order) -> str:
    """Read the bytes of an array and digest them in another order."""
    match = _ARRAY.fullmatch(text.rpartition(" ")[0])
    shape = [int(n) for n in match[2].split(",")] if match else []
    axes = order_of(text) or tuple(range(len(shape)))
    elements = math.prod(shape)
    if match is None or sorted(axes) != list(range(len(shape))) or not elements or place.size % elements:
        raise CheckpointError(f"{path}: {leaf} cannot be {text!r} and lie in {place.size} bytes")
    found = _read(path / place.file, place)
    if xxhash.xxh3_128_hexdigest(found) != place.digest:
        raise DamagedError(f"{path} is not what was sealed:", [(place.file, f"the bytes of {leaf} are others")])
    value = np.frombuffer(found, f"V{place.size // elements}")  # NumPy need not know the type to move its bytes
    again = digest_text(value.reshape([shape[axis] for axis in axes]).transpose(np.argsort(axes)), order)
    return match[1] + again[again.index("[") :]


def _read(path: Path, place: Place) -> bytes:
    """Return the bytes of a place, of what is there of it; the file's size bounds what is asked for."""
    try:
        handle = open_regular(path)
        with os.fdopen(handle, "rb") as file:
            file.seek(place.start)
            return file.read(min(place.size, max(0, os.fstat(handle).st_size - place.start)))
    except OSError as error:
        raise CheckpointError(f"{path} cannot be read: {error.strerror or error}") from error
