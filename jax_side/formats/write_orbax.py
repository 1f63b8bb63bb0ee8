"""The writer of Orbax checkpoints: a tree as one item that plain Orbax restores, written chunk by chunk.

Arrays are described as NumPy's, so that a restore without a template needs no device of the machine that wrote them;
with a template, Orbax puts them where the template says. Where arrays are large, each chunk is a file of plain bytes
(`use_ocdbt=False` of Orbax), written straight from where it lies: through OCDBT it would be copied twice in memory.
Small arrays share the files of an OCDBT store: two files for each of 20,000, every one synchronized, take minutes. A
store has keys, not paths, so it also holds the names that no directory can have.

Source: the files that `PyTreeCheckpointHandler` of Orbax 0.12.8 writes and reads.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from jax_side.formats.description import (
    ARRAY,
    CHECKPOINT,
    DESCRIPTION,
    TREE_HANDLER,
    describe,
    describe_handlers,
    kind_of_empty,
    row,
)
from jax_side.formats.write_chunks import chunk_of, write_chunks
from jax_side.formats.write_store import StoredArray, write_store
from jax_side.formats.zarr import NAMED, ZARR2
from parity.formats import (
    EMPTY_ARRAYS,
    Array,
    InMemory,
    Key,
    Tree,
    TreeLeaf,
    Writer,
    is_text,
    leaf_name,
    leaves,
    misfits,
    not_pointed,
    open_orbax,
    put_text,
)
from parity.storage import WriteBack

__all__ = ["ORBAX", "write_orbax"]

LONGEST_NAME = 255
"""Bytes of the name of a directory."""

SMALL = 4 << 20
"""Mean bytes of an array below which all share files. A file for each array, synchronized, costs some milliseconds,
and the copies of an OCDBT store about a second for each GB: both cost the same at arrays of about this size."""

_FILES = (DESCRIPTION, CHECKPOINT, "_strings.json", "_sharding", "array_metadatas", "seal.json")


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
    texts: dict[str, Any] = {}
    empty: dict[str, dict[str, Any]] = {}
    values: dict[str, Array] = {}
    for keys, leaf in _walk(tree, ()):
        name = leaf_name(tuple(key for key, _ in keys))
        rows.append(row(keys, _kind(leaf)))
        if isinstance(leaf, str):
            put_text(texts, name, leaf)
        elif isinstance(leaf, Array) and not leaf.size:
            empty[name] = {"dtype": leaf.dtype.name, "shape": list(leaf.shape)}
        elif isinstance(leaf, Array | bool | int | float):
            values[name] = leaf if isinstance(leaf, Array) else InMemory(np.array(leaf))
    shared = _share_files(values)
    if shared:
        write_store(path, _cut(values))
    else:
        with WriteBack() as back:
            for name, array in values.items():
                write_chunks(path / name, array, back)
    _write_keys(path, values)
    if texts:
        (path / "_strings.json").write_text(json.dumps(texts), encoding="utf-8")
    _write_json(path / DESCRIPTION, describe(rows, use_ocdbt=shared, label={EMPTY_ARRAYS: empty} if empty else None))
    _write_json(path / CHECKPOINT, describe_handlers(TREE_HANDLER))


def _write_keys(path: Path, values: Mapping[str, Array]) -> None:
    """Note which arrays are random keys: with a template, Orbax makes typed keys of them."""
    rows = [
        {
            "param_name": name,
            "write_shape": list(array.shape),
            "chunk_shape": list(chunk_of(array.shape, array.dtype.itemsize)),
            "ext_metadata": {"random_key_impl": array.random_key},
        }
        for name, array in values.items()
        if array.random_key
    ]
    if rows:
        (path / "array_metadatas").mkdir()
        _write_json(
            path / "array_metadatas" / "process_0", {"array_metadatas": [{"array_metadata": one} for one in rows]}
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


def _share_files(values: Mapping[str, Array]) -> bool:
    """Return whether arrays share the files of one store: small ones, and those whose names no directory can have."""
    size = sum(array.nbytes for array in values.values())
    return bool(values) and (size < SMALL * len(values) or not all(map(_names_a_directory, values)))


def _names_a_directory(name: str) -> bool:
    odd = {"/", "\\", "\0"} & set(name)
    return not odd and name not in ("", ".", "..", *_FILES) and len(name.encode()) <= LONGEST_NAME


def _cut(values: Mapping[str, Array]) -> Iterator[StoredArray]:
    for name, array in sorted(values.items()):
        yield StoredArray(name, array, chunk_of(array.shape, array.dtype.itemsize))


def _write_json(path: Path, value: Any) -> None:
    path.write_text(json.dumps(value), encoding="utf-8")


def _misfits(tree: Tree) -> list[tuple[str, str]]:
    """Return what Orbax cannot hold: values and types that it lacks, and names that no path or store has."""
    odd = [leaf_name(keys) for keys, _ in leaves(tree) if not is_text(leaf_name(keys))]
    texts = [leaf_name(keys) for keys, leaf in leaves(tree) if isinstance(leaf, str)]
    return [
        *misfits(tree, _misfit, flat="Orbax"),
        *((name, "its name is no text in UTF-8") for name in odd),
        *not_pointed(texts),
    ]


def _misfit(leaf: TreeLeaf) -> str:
    if isinstance(leaf, Array) and leaf.dtype.name not in (*ZARR2, *NAMED):
        return f"zarr 2 has no {leaf.dtype.name}"
    if isinstance(leaf, bytes | complex):
        return f"Orbax has no {type(leaf).__name__}"
    wide = type(leaf) is int and not -(1 << 63) <= leaf < 1 << 63
    return "an integer of more than 64 bits" if wide else ""


ORBAX = Writer(
    format="orbax",
    directory=True,
    cannot_hold=_misfits,
    write=write_orbax,
    read=lambda path: open_orbax(path).tree,
)
"""The writer of a single save."""
