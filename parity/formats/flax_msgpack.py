"""Files of `flax.serialization` and `flax.training.checkpoints` in MessagePack, their arrays left in the file.

The format keeps keys and arrays, not the kind of a container: a list or a tuple is a map with the keys "0", "1", and
a named tuple or a dataclass a map of its fields.

Source: `flax/serialization.py` and `flax/training/checkpoints.py`, Flax 0.12.8.
"""

from __future__ import annotations

import codecs
import math
import os
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from parity.errors import CheckpointError
from parity.formats.array import Array, MappedArray, dtype_named
from parity.formats.folder import inside
from parity.formats.mapping import map_file, read_head
from parity.formats.msgpack_headers import MsgpackReader, Span
from parity.formats.orbax_arrays import ItemArrays
from parity.formats.pieces import FlatArray, Segment
from parity.formats.tree import Key, Source, Tree, leaf_name, leaves, map_leaves

__all__ = ["is_flax", "is_flax_directory", "open_flax", "open_flax_directory", "steps_of_flax"]

NDARRAY, COMPLEX, SCALAR = 1, 2, 3
"""Codes of Flax's extensions: an array, a complex number of Python, a scalar of NumPy."""

CHUNKED = "__msgpack_chunked_array__"
"""Key of a map that stands for one array in chunks: those above 1 GiB."""

ELSEWHERE = "//GDAPlaceholder:"
"""Start of a text that stands for an array of several processes, which lies in a directory beside the file."""

MOST_AXES = 64
MOST_BYTES = 1 << 60
HEAD_BYTES = 512
"""Bytes of a file that are looked at to recognise it."""

UNPROVEN = "whether the bytes are those that were saved: the format has no digest of any"
_DTYPE = re.compile(r"bool|u?int[0-9]{1,2}|b?(?:float|complex)[0-9]{1,3}(?:_[a-z0-9]{1,12})?")
_STEP = re.compile(r"checkpoint_([-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)")


def is_flax(path: Path) -> bool:
    """Return whether a file begins as Flax's do: a map whose first key is text, or one array that fills the file."""
    head = read_head(path, HEAD_BYTES)
    if not head:
        return False
    size = os.stat(path).st_size
    reader = MsgpackReader(memoryview(head), str(path))
    reader.stop = max(size, len(head))  # payloads may reach beyond the head, headers do not
    try:
        kind, found = reader.header()
        if kind == "ext":
            code, span = found
            return code in (NDARRAY, SCALAR) and span.stop == size and head[span.start : span.start + 1] == b"\x93"
        if kind != "map" or not found:
            return kind == "map" and size == 1
        kind, key = reader.header()
        return kind == "text" and _is_text(head[key.start : key.stop])
    except CheckpointError:
        return False


def _is_text(data: bytes) -> bool:
    """Return whether bytes are text without control characters; the last character may be cut."""
    try:
        return codecs.getincrementaldecoder("utf-8")().decode(data).isprintable()
    except UnicodeDecodeError:
        return False


def is_flax_directory(path: Path) -> bool:
    """Return whether the newest `checkpoint_N` of a directory is a file of Flax."""
    steps = _steps(path) if path.is_dir() else []
    return bool(steps) and is_flax(path / steps[-1])


def open_flax(path: Path) -> Source:
    """Open a file without reading an array.

    Raises:
        CheckpointError: It is truncated or damaged, or holds what Flax does not write; names the byte.
    """
    mapped = map_file(path)
    reader = MsgpackReader(memoryview(mapped), str(path), lambda *found: _extension(mapped, *found))
    tree = reader.value()
    if reader.at != mapped.size:
        raise reader.fail(f"its value ends, and {mapped.size - reader.at:,} bytes follow")
    tree = _with_chunks(tree, str(path), ())
    return Source(path=path, format="flax-msgpack", tree=_with_elsewhere(tree, path), unproven=UNPROVEN)


def open_flax_directory(path: Path) -> Source:
    """Open the newest `checkpoint_N` of a directory, by number, as Flax picks it.

    Raises:
        CheckpointError: It is damaged, or a link out of the directory; another one may be given by its own path.
    """
    steps = _steps(path)
    newest = inside(path, steps[-1])
    source = open_flax(newest)
    return replace(source, detail=f"{newest.name}, the newest of {len(steps)}")


def steps_of_flax(path: Path) -> list[Path]:
    """Return the files `checkpoint_N` of a directory by number."""
    return [path / name for name in _steps(path)]


def _steps(path: Path) -> list[str]:
    """Return the names of checkpoints in a directory, the newest last; those of drafts do not match."""
    found = ((float(match[1]), name) for name in os.listdir(path) if (match := _STEP.fullmatch(name)))
    return [name for _, name in sorted(found)]


def _extension(mapped: NDArray[np.uint8], reader: MsgpackReader, code: int, span: Span) -> Array | complex:
    """Return the value of an extension; an array stays where it is."""
    inner = reader.within(span)
    if code == COMPLEX:
        parts = inner.value()
        if inner.at != span.stop or not isinstance(parts, list) or [type(part) for part in parts] != [float, float]:
            raise reader.fail("a complex number is not two floats", span.start)
        return complex(*parts)
    if code not in (NDARRAY, SCALAR):
        raise reader.fail(f"an extension has the code {code}; Flax writes 1, 2 and 3", span.start)
    shape, name, content = _description(inner, span)
    dtype = dtype_named(name) if _DTYPE.fullmatch(name) else None
    if dtype is None:
        raise reader.fail(f"an array has the dtype {name!r}, which is unknown", span.start)
    size = math.prod(max(n, 1) for n in shape) * dtype.itemsize  # NumPy counts as if no axis were empty
    if size > MOST_BYTES or content.stop - content.start != math.prod(shape) * dtype.itemsize:
        given = f"{content.stop - content.start:,} bytes"
        raise reader.fail(f"an array of {dtype.name} and the shape {shape} has {given}", span.start)
    return MappedArray(mapped[content.start : content.stop], dtype, shape)


def _description(inner: MsgpackReader, span: Span) -> tuple[list[int], str, Span]:
    """Return shape, name of the dtype and place of the elements: the three values that stand for an array."""
    if inner.header() == ("array", 3):
        kind, axes = inner.header()
        if kind == "array" and axes <= MOST_AXES:
            extents = [inner.header() for _ in range(axes)]
            named, name = inner.header()
            held, content = inner.header()
            if (
                all(kind == "value" and type(n) is int and n >= 0 for kind, n in extents)
                and (named, held) == ("text", "bytes")
                and content.stop == span.stop
            ):
                return [n for _, n in extents], inner.content(name).decode("latin1"), content
    raise inner.fail("an array is not described by a shape, a dtype and bytes", span.start)


def _with_chunks(tree: Tree, where: str, keys: tuple[Key, ...]) -> Tree:
    """Return a tree with one array for each map of chunks."""
    if isinstance(tree, list):
        return [_with_chunks(child, where, (*keys, at)) for at, child in enumerate(tree)]
    if not isinstance(tree, dict):
        return tree
    if CHUNKED not in tree:
        return {key: _with_chunks(child, where, (*keys, key)) for key, child in tree.items()}
    shape, pieces = _counted(tree.get("shape")), _counted(tree.get("chunks"))
    try:
        if shape is None or len(shape) > MOST_AXES or not all(type(n) is int and n >= 0 for n in shape):
            raise CheckpointError("its shape is not one")
        if not pieces or not all(isinstance(piece, Array) for piece in pieces):
            raise CheckpointError("its chunks are not counted arrays")
        return FlatArray(shape, [Segment(piece, 0, piece.size) for piece in pieces])
    except CheckpointError as error:
        raise CheckpointError(f"{where}: {leaf_name(keys)} is no array in chunks: {error}") from error


def _counted(value: Any) -> list[Any] | None:
    """Return the values of a map with the keys "0", "1" and so on, as Flax writes a tuple; None for another value."""
    if not isinstance(value, dict) or set(value) != {str(n) for n in range(len(value))}:
        return None
    return [value[str(n)] for n in range(len(value))]


def _with_elsewhere(tree: Tree, path: Path) -> Tree:
    """Return a tree with the arrays that several processes wrote beside the file."""
    names = {leaf for _, leaf in leaves(tree) if isinstance(leaf, str) and leaf.startswith(ELSEWHERE)}
    if not names:
        return tree
    beside = path.with_name(f"{path.name}_gda")
    if not beside.is_dir() or beside.is_symlink():
        raise CheckpointError(f"{path} has arrays of several processes, and the directory {beside.name} is missing")
    for name in names:
        parts = name.removeprefix(ELSEWHERE).split("/")
        if any(part in ("", ".", "..") for part in parts) or not os.path.isfile(beside.joinpath(*parts, ".zarray")):
            raise CheckpointError(f"{path} names the array {name!r}, which is not in {beside.name}")
    arrays = ItemArrays(beside, ocdbt=False, zarr3=False, complete=True)  # JAX writes every chunk of them
    found = arrays.open_all(sorted(name.removeprefix(ELSEWHERE) for name in names))
    return map_leaves(
        tree, lambda _, leaf: found[leaf.removeprefix(ELSEWHERE)] if isinstance(leaf, str) and leaf in names else leaf
    )
