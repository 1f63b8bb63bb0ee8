"""The writer of Flax's MessagePack files: what `flax.serialization.to_bytes` returns, written block by block.

Source: `flax/serialization.py`, Flax 0.12.8; the MessagePack specification for the headers of bytes and extensions.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

import msgpack

from parity.formats import Array, Key, Opaque, Tree, Writer, dtype_named, is_text, leaf_name, open_flax
from parity.storage import WRITE_BYTES

__all__ = ["FLAX_MSGPACK", "write_msgpack"]

CHUNK_BYTES = 1 << 30
"""Largest array in bytes that Flax writes as one; a larger one becomes a map of pieces of this size."""

NDARRAY, COMPLEX = 1, 2
CHUNKED = "__msgpack_chunked_array__"
ELSEWHERE = "//GDAPlaceholder:"
MOST_BYTES = (1 << 32) - 1
MOST_DEPTH = 100


def write_msgpack(tree: Tree, path: Path) -> None:
    """Write a tree so that `flax.serialization.msgpack_restore` and `restore_checkpoint` of `flax.training` read it.

    Lists and tuples become maps with the keys "0", "1" and so on, and integer keys become text, as Flax has it.

    Args:
        tree: What is written.
        path: A file that does not exist.

    Raises:
        OSError: The disk is full, or failed.
    """
    with path.open("xb") as file:
        _write(file, tree, msgpack.Packer())


def _write(file: BinaryIO, tree: Tree, packer: msgpack.Packer) -> None:
    children = _children(tree)
    if children is not None:
        file.write(packer.pack_map_header(len(children)))
        for key, child in children:
            file.write(packer.pack(str(key)))
            _write(file, child, packer)
    elif isinstance(tree, Array):
        _write_array(file, tree, packer)
    elif isinstance(tree, complex):
        content = packer.pack([tree.real, tree.imag])
        file.write(_extension(COMPLEX, len(content)) + content)
    else:
        file.write(packer.pack(tree))


def _children(tree: Tree) -> list[tuple[Key, Tree]] | None:
    """Return the keys and values of a container; None for a leaf."""
    if isinstance(tree, dict):
        return list(tree.items())
    return list(enumerate(tree)) if isinstance(tree, list | tuple) else None


def _write_array(file: BinaryIO, array: Array, packer: msgpack.Packer) -> None:
    """Write an array as Flax does: whole, or as a map of pieces of one axis."""
    elements = _Elements(array)
    if array.nbytes <= CHUNK_BYTES:
        _write_piece(file, elements, array.shape, packer)
        return
    most = max(1, CHUNK_BYTES // array.dtype.itemsize)
    sizes = [min(most, array.size - start) for start in range(0, array.size, most)]
    file.write(packer.pack_map_header(3) + packer.pack(CHUNKED) + packer.pack(True))
    file.write(packer.pack("shape") + packer.pack({str(axis): n for axis, n in enumerate(array.shape)}))
    file.write(packer.pack("chunks") + packer.pack_map_header(len(sizes)))
    for number, size in enumerate(sizes):
        file.write(packer.pack(str(number)))
        _write_piece(file, elements, (size,), packer)


def _write_piece(file: BinaryIO, elements: _Elements, shape: tuple[int, ...], packer: msgpack.Packer) -> None:
    """Write the next elements of an array as one extension."""
    dtype = elements.array.dtype
    length = math.prod(shape) * dtype.itemsize
    head = packer.pack_array_header(3) + packer.pack(list(shape)) + packer.pack(dtype.name) + _bytes_header(length)
    file.write(_extension(NDARRAY, len(head) + length) + head)
    elements.copy(file, length)


class _Elements:
    """The bytes of an array in C order, copied part by part."""

    def __init__(self, array: Array) -> None:
        self.array = array
        self._blocks = array.blocks()
        self._rest = memoryview(b"")

    def copy(self, file: BinaryIO, length: int) -> None:
        """Copy the next bytes, little-endian, into a file."""
        while length:
            if not self._rest:
                block = next(self._blocks)
                self._rest = memoryview(block.astype(block.dtype.newbyteorder("<"), copy=False).view("u1"))
            part = self._rest[: min(length, WRITE_BYTES)]
            file.write(part)
            length, self._rest = length - len(part), self._rest[len(part) :]


def _bytes_header(length: int) -> bytes:
    return _header(length, {1: 0xC4, 2: 0xC5, 4: 0xC6})


def _extension(code: int, length: int) -> bytes:
    fixed = {1 << power: 0xD4 + power for power in range(5)}
    head = bytes([fixed[length]]) if length in fixed else _header(length, {1: 0xC7, 2: 0xC8, 4: 0xC9})
    return head + bytes([code])


def _header(length: int, kinds: dict[int, int]) -> bytes:
    """Return the type byte for the shortest length that fits, and the length."""
    width = next(width for width in kinds if length < 1 << (8 * width))
    return bytes([kinds[width]]) + length.to_bytes(width, "big")


def _misfits(tree: Tree, keys: tuple[Key, ...]) -> Iterator[tuple[str, str]]:
    children = _children(tree)
    if children is None:
        why = _misfit(tree)
        if why:
            yield leaf_name(keys), why
        return
    if len(keys) >= MOST_DEPTH:
        yield leaf_name(keys)[:80], f"it is nested more than {MOST_DEPTH} deep"
        return
    names = [str(key) for key, _ in children]
    if len(set(names)) < len(names):
        yield leaf_name(keys), "two keys of it are one as text, and the format has no other keys"
    if CHUNKED in names:
        yield leaf_name((*keys, CHUNKED)), "Flax takes a map with this key for an array in chunks"
    for key, child in children:
        if not is_text(str(key)):
            yield leaf_name((*keys, key)), "its key is no UTF-8"
        yield from _misfits(child, (*keys, key))


def _misfit(leaf: Any) -> str:
    """Return why the format cannot hold a leaf, or nothing."""
    if isinstance(leaf, Opaque):
        return f"it is an {leaf}, which only code could rebuild"
    if isinstance(leaf, Array):
        return "" if dtype_named(leaf.dtype.name) else f"Flax has no {leaf.dtype}"
    if isinstance(leaf, bool | float | complex) or leaf is None:
        return ""
    if isinstance(leaf, int):
        return "" if -(1 << 63) <= leaf < 1 << 64 else "an integer of more than 64 bits"
    if isinstance(leaf, str):
        if leaf.startswith(ELSEWHERE):
            return f"Flax takes a text that starts with {ELSEWHERE} for an array of several processes"
        if not is_text(leaf):
            return "the text is no UTF-8"
    if isinstance(leaf, str | bytes):
        return "" if len(leaf) * (4 if isinstance(leaf, str) else 1) <= MOST_BYTES else "it is longer than 4 GiB"
    return f"Flax has no {type(leaf).__name__}"


FLAX_MSGPACK = Writer(
    format="flax-msgpack",
    directory=False,
    cannot_hold=lambda tree: list(_misfits(tree, ())),
    write=write_msgpack,
    read=lambda path: open_flax(path).tree,
)
"""The writer of one file."""
