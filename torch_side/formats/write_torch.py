"""The writer of `torch.save` files: any tree, its arrays written block by block.

PyTorch writes the archive with room for each storage (`torch.serialization.skip_data`); the elements are written into
that room, and the CRC-32 of each into the directory afterwards.
"""

from __future__ import annotations

import os
import struct
import zlib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import torch

from parity.errors import CheckpointError
from parity.formats import Array, Key, Tree, TreeLeaf, Writer, map_leaves, misfits, open_torch_file, open_zip
from parity.storage import WriteBack

__all__ = ["TORCH_SAVE", "has_tensors", "write_torch"]

MOST_BITS = 1000
"""Longest integer that `weights_only=True` reads back; PyTorch pickles longer ones with an opcode that it refuses."""

SMALL = 1 << 16
"""Bytes of an array whose checksum is computed by the caller."""

CENTRAL = b"PK\x01\x02"
DESCRIPTOR = b"PK\x07\x08"


def write_torch(tree: Tree, path: Path) -> None:
    """Write a tree so that `torch.load(path, weights_only=True)` returns it, each array as a tensor.

    Arrays that are the same elements (`Array.shared`) become one storage, as tied weights are.

    Args:
        tree: What is written.
        path: A file that does not exist.

    Raises:
        OSError: The disk is full, or failed.
    """
    tensors: dict[Any, tuple[torch.Tensor, Array]] = {}

    def room(keys: tuple[Key, ...], leaf: Any) -> Any:
        if not isinstance(leaf, Array):
            return leaf
        key = (leaf.shared, leaf.shape, leaf.dtype.name) if leaf.shared is not None else keys
        if key not in tensors:
            tensors[key] = (torch.empty(leaf.shape, dtype=getattr(torch, leaf.dtype.name)), leaf)
        return tensors[key][0]

    with torch.serialization.skip_data():
        torch.save(map_leaves(tree, room), path)
    records = open_zip(path)
    with path.open("r+b", buffering=0) as file, WriteBack() as back, ThreadPoolExecutor(1) as pool:
        sums = {}
        for number, (_, array) in enumerate(tensors.values()):
            name = f"data/{number}"
            sums[name] = _fill(file.fileno(), records.place(name).start, array, back, pool)
        _write_sums(file.fileno(), records, back, sums)


def _fill(handle: int, start: int, array: Array, back: WriteBack, pool: ThreadPoolExecutor) -> int:
    """Write the elements of an array at an offset, and return their CRC-32; it is computed beside the writing."""
    total, pending = 0, None
    for block in array.blocks():
        data = memoryview(block.view("u1"))
        if array.nbytes <= SMALL:  # one block: to hand it over would take longer
            back.write(handle, data, start)
            return zlib.crc32(data)
        if pending is not None:
            total = pending.result()
        pending = pool.submit(zlib.crc32, data, total)
        back.write(handle, data, start)
        start += len(data)
    return pending.result() if pending is not None else total


def _write_sums(handle: int, records: Any, back: WriteBack, sums: dict[str, int]) -> None:
    """Write the CRC-32 of each record into its descriptor and into the directory of the archive."""
    for name, (place, entry) in records.sum_places(sums).items():
        for at, magic, skip in ((place, DESCRIPTOR, 4), (entry, CENTRAL, 16)):
            if at is None:
                continue
            if os.pread(handle, 4, at) != magic:
                raise CheckpointError(f"{records.path}: no checksum of {name!r} where PyTorch writes it")
            back.write(handle, struct.pack("<I", sums[name]), at + skip)


def has_tensors(dtype: str) -> bool:
    """Return whether PyTorch saves tensors of a type; those of less than a byte are names only.

    Example:
        >>> has_tensors("bfloat16"), has_tensors("int4"), has_tensors("float4_e2m1fn")
        (True, False, False)
    """
    found = getattr(torch, dtype, None)
    part = dtype.rstrip("01234567") in ("int", "uint") and dtype[-2:] not in ("16", "32", "64")
    return isinstance(found, torch.dtype) and not part and dtype != "complex32"


def _misfit(leaf: TreeLeaf) -> str:
    if isinstance(leaf, Array) and not has_tensors(leaf.dtype.name):
        return f"PyTorch has no {leaf.dtype.name}"
    wide = isinstance(leaf, int) and leaf.bit_length() > MOST_BITS
    return f"torch.load reads no integer of {leaf.bit_length()} bits" if wide else ""


TORCH_SAVE = Writer(
    format="torch.save",
    directory=False,
    cannot_hold=lambda tree: misfits(tree, _misfit),
    write=write_torch,
    read=lambda path: open_torch_file(path).tree,
)
"""The writer of one file."""
