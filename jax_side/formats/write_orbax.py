"""The writer of Orbax checkpoints: a tree as one item that plain Orbax restores, written chunk by chunk.

Arrays are described as NumPy's, so that a restore without a template needs no device of the machine that wrote them;
with a template, Orbax puts them where the template says. Each chunk is a file of plain bytes (`use_ocdbt=False` of
Orbax), so that it is written straight from where it lies: through TensorStore and OCDBT it would be copied twice in
memory, and take more than twice as long as a copy of the file.

Source: the files that `PyTreeCheckpointHandler` of Orbax 0.12.8 writes and reads.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from jax_side.formats.description import ARRAY, DESCRIPTION, describe, kind_of_empty, row
from jax_side.formats.zarr import NAMED, ZARR2, describe_array
from parity.formats import (
    BLOCK_BYTES,
    EMPTY_ARRAYS,
    Array,
    InMemory,
    Key,
    Opaque,
    Tree,
    Writer,
    boxes,
    chunk_name,
    extents,
    leaf_name,
    leaves,
    open_orbax,
)
from parity.storage import WriteBack

__all__ = ["ORBAX", "write_orbax"]

LONGEST_NAME = 255
"""Bytes of the name of a directory."""

_FILES = (DESCRIPTION, "_CHECKPOINT_METADATA", "_strings.json", "_sharding", "array_metadatas", "seal.json")


def write_orbax(tree: Tree, path: Path) -> None:
    """Write a tree as a directory that `PyTreeCheckpointer().restore(path)` reads.

    Orbax has no arrays without elements: a restore by itself gives None in their places, and their types are in the
    description, where our reader finds them.

    Args:
        tree: A dict; its tuples come back as lists, as from Orbax itself.
        path: A directory that does not exist.

    Raises:
        OSError: The disk is full, or failed.
    """
    path.mkdir()
    rows: list[tuple[str, dict[str, Any]]] = []
    texts: dict[str, str] = {}
    empty: dict[str, dict[str, Any]] = {}
    values: list[tuple[str, Array | bool | int | float]] = []
    for keys, leaf in _walk(tree, ()):
        name = leaf_name(tuple(key for key, _ in keys))
        rows.append(row(keys, _kind(leaf)))
        if isinstance(leaf, str):
            texts[name] = leaf
        elif isinstance(leaf, Array) and not leaf.size:
            empty[name] = {"dtype": leaf.dtype.name, "shape": list(leaf.shape)}
        elif isinstance(leaf, Array | bool | int | float):
            values.append((name, leaf))
    with WriteBack() as back:
        for name, value in values:
            _write_array(path / name, value, back)
    if texts:
        (path / "_strings.json").write_text(json.dumps(texts), encoding="utf-8")
    _write_json(path / DESCRIPTION, describe(rows, use_ocdbt=False, label={EMPTY_ARRAYS: empty} if empty else None))
    handler = "orbax.checkpoint._src.handlers.pytree_checkpoint_handler.PyTreeCheckpointHandler"
    _write_json(
        path / "_CHECKPOINT_METADATA",
        {
            "item_handlers": handler,
            "metrics": {},
            "performance_metrics": {},
            "init_timestamp_nsecs": None,
            "commit_timestamp_nsecs": None,
            "custom_metadata": {},
        },
    )


def _walk(tree: Tree, path: tuple[tuple[Key, bool], ...]) -> Iterator[tuple[tuple[tuple[Key, bool], ...], Any]]:
    """Yield the keys, each with whether it is a position, and the value of each leaf; an empty container is one."""
    if isinstance(tree, dict) and tree:
        for key, child in tree.items():
            yield from _walk(child, (*path, (key, False)))
    elif isinstance(tree, list | tuple) and tree:
        for at, child in enumerate(tree):
            yield from _walk(child, (*path, (at, True)))
    else:
        yield path, tree


def _kind(leaf: Any) -> str:
    """Return the type of a leaf as Orbax names it."""
    if isinstance(leaf, Array):
        return ARRAY if leaf.size else "None"
    if isinstance(leaf, str):
        return "string"
    return "scalar" if isinstance(leaf, bool | int | float) else kind_of_empty(leaf)


def _write_array(folder: Path, value: Array | bool | int | float, back: WriteBack) -> None:
    """Write an array, or a scalar, as files of plain chunks: what is read is written as it lies there."""
    array = value if isinstance(value, Array) else InMemory(np.array(value))
    shape, dtype = array.shape, array.dtype
    chunk = _chunk(shape, dtype.itemsize)
    folder.mkdir()
    (folder / ".zarray").write_text(describe_array(shape, chunk, dtype.name), encoding="utf-8")
    size = math.prod(chunk) * dtype.itemsize
    for box in boxes(shape, math.prod(chunk)):
        index = [low // side for (low, _), side in zip(box, chunk, strict=True)]
        with (folder / chunk_name(index)).open("xb", buffering=0) as file:
            back.write(file.fileno(), np.ascontiguousarray(array.read(box)).reshape(-1).view("u1"))
            file.truncate(size)


def _chunk(shape: tuple[int, ...], item: int) -> tuple[int, ...]:
    """Return the shape of the chunks: boxes of consecutive elements, as equal as they can be, to have little padding.

    Example:
        >>> _chunk((9, 1 << 20), 8), _chunk((3,), 4), _chunk((), 4)
        ((2, 1048576), (3,), ())
    """
    first = next(boxes(shape, max(1, BLOCK_BYTES // item)), None)
    if first is None:
        return tuple(max(n, 1) for n in shape)
    sides = []
    for n, side in zip(shape, extents(first), strict=True):
        count = -(-n // side)
        sides.append(-(-n // count))
    return tuple(sides)


def _write_json(path: Path, value: Any) -> None:
    path.write_text(json.dumps(value), encoding="utf-8")


def _misfits(tree: Tree) -> Iterator[tuple[str, str]]:
    if not isinstance(tree, dict) or not tree:
        yield "the tree", "Orbax holds a dict with at least one leaf"
        return
    names: set[str] = set()
    for keys, leaf in leaves(tree):
        name = leaf_name(keys)
        if name in names:
            yield name, "two leaves have this name once their keys are joined by dots"
        names.add(name)
        if len(name.encode()) > LONGEST_NAME or name in _FILES:
            yield name, f"it names a directory: at most {LONGEST_NAME} bytes, and none of Orbax's own names"
        if any("/" in str(key) or str(key) in ("", ".", "..") for key in keys):
            yield name, "a key is empty, or has a slash"
        if isinstance(leaf, Opaque):
            yield name, f"it is an {leaf}, which only code could rebuild"
        elif isinstance(leaf, Array) and leaf.dtype.name not in (*ZARR2, *NAMED):
            yield name, f"zarr 2 has no {leaf.dtype.name}"
        elif isinstance(leaf, bytes | complex):
            yield name, f"Orbax has no {type(leaf).__name__}"
        elif type(leaf) is int and not -(1 << 63) <= leaf < 1 << 63:
            yield name, "an integer of more than 64 bits"


ORBAX = Writer(
    format="orbax",
    directory=True,
    cannot_hold=lambda tree: list(_misfits(tree)),
    write=write_orbax,
    read=lambda path: open_orbax(path).tree,
)
"""The writer of a single save."""
