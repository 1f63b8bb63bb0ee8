"""The writer of Orbax checkpoints: a tree as one item that plain Orbax restores, written chunk by chunk.

Arrays are described as NumPy's, so that a restore without a template needs no device of the machine that wrote them;
with a template, Orbax puts them where the template says.

Source: the files that `PyTreeCheckpointHandler` of Orbax 0.12.8 writes and reads.
"""

from __future__ import annotations

import json
import math
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import tensorstore as ts

from parity.formats import BLOCK_BYTES, Array, Key, Opaque, Tree, Writer, boxes, extents, leaf_name, leaves

__all__ = ["ORBAX", "write_orbax"]

GROUP_BYTES = 2 * BLOCK_BYTES
"""Bytes of chunks that one transaction takes: what is in memory until it is committed."""

IN_FLIGHT = 2
"""Transactions that are written at once."""

EMPTY = {dict: "Dict", list: "List", tuple: "Tuple", type(None): "None"}
SEQUENCE, DICT = 1, 2

ZARR2 = {
    **{"float64": "<f8", "float32": "<f4", "float16": "<f2", "complex64": "<c8", "complex128": "<c16", "bool": "|b1"},
    **{"int64": "<i8", "int32": "<i4", "int16": "<i2", "int8": "|i1"},
    **{"uint64": "<u8", "uint32": "<u4", "uint16": "<u2", "uint8": "|u1"},
}
NAMED = ("bfloat16", "float8_e4m3fn", "float8_e4m3fnuz", "float8_e4m3b11fnuz", "float8_e5m2", "float8_e5m2fnuz")
"""Types that zarr 2 of TensorStore names as they are."""


def write_orbax(tree: Tree, path: Path) -> None:
    """Write a tree as a directory that `PyTreeCheckpointer().restore(path)` reads.

    Args:
        tree: A dict; its tuples come back as lists, as from Orbax itself.
        path: A directory that does not exist.

    Raises:
        OSError: The disk is full, or failed.
    """
    path.mkdir()
    rows: dict[str, Any] = {}
    texts: dict[str, str] = {}
    values: list[tuple[str, Array | bool | int | float]] = []
    for keys, kinds, leaf in _walk(tree, (), ()):
        name = leaf_name(keys)
        kind = _kind(leaf)
        rows[str(tuple(map(str, keys)))] = {
            "key_metadata": [{"key": str(key), "key_type": one} for key, one in zip(keys, kinds, strict=True)],
            "value_metadata": {"value_type": kind, "skip_deserialize": kind in EMPTY.values()},
        }
        if kind == "string":
            texts[name] = leaf
        elif kind not in EMPTY.values():
            values.append((name, leaf))
    _write_arrays(path, values)
    if texts:
        (path / "_strings.json").write_text(json.dumps(texts), encoding="utf-8")
    _write_json(
        path / "_METADATA",
        {
            "tree_metadata": rows,
            "use_ocdbt": True,
            "use_zarr3": False,
            "store_array_data_equal_to_fill_value": True,
            "custom_metadata": None,
        },
    )
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


def _walk(
    tree: Tree, keys: tuple[Key, ...], kinds: tuple[int, ...]
) -> Iterator[tuple[tuple[Key, ...], tuple[int, ...], Any]]:
    """Yield keys, kind of each key, and value of each leaf; an empty container is one."""
    if isinstance(tree, dict) and tree:
        for key, child in tree.items():
            yield from _walk(child, (*keys, key), (*kinds, DICT))
    elif isinstance(tree, list | tuple) and tree:
        for at, child in enumerate(tree):
            yield from _walk(child, (*keys, at), (*kinds, SEQUENCE))
    else:
        yield keys, kinds, tree


def _kind(leaf: Any) -> str:
    """Return the type of a leaf as Orbax names it."""
    if isinstance(leaf, Array):
        return "np.ndarray"
    if isinstance(leaf, str):
        return "string"
    return "scalar" if isinstance(leaf, bool | int | float) else EMPTY[type(leaf)]


def _write_arrays(path: Path, values: list[tuple[str, Array | bool | int | float]]) -> None:
    """Write arrays and scalars into one OCDBT store, in transactions of a bounded size."""
    kvstore = {"driver": "ocdbt", "base": {"driver": "file", "path": f"{path.resolve()}/"}, "config": _CONFIG}
    context = ts.Context({"cache_pool": {"total_bytes_limit": 0}, "file_io_concurrency": {"limit": 4}})
    ts.KvStore.open(kvstore, context=context).result()
    pending: deque[Any] = deque()
    group, size = ts.Transaction(), 0
    for name, value in values:
        shape, dtype = (value.shape, value.dtype) if isinstance(value, Array) else ((), np.array(value).dtype)
        chunk = _chunk(shape, dtype.itemsize)
        spec = {
            "driver": "zarr",
            "kvstore": {**kvstore, "path": f"{name}/"},
            "metadata": {
                "shape": list(shape),
                "chunks": list(chunk),
                "dtype": ZARR2.get(dtype.name, dtype.name),
                "compressor": None,
                "fill_value": None,
                "order": "C",
                "dimension_separator": ".",
            },
            "store_data_equal_to_fill_value": True,
        }
        for box in boxes(shape, max(1, BLOCK_BYTES // dtype.itemsize)):
            # opened for each transaction: TensorStore ties a handle to the one that it was opened with
            store = ts.open(spec, create=True, open=True, transaction=group, context=context).result()
            data = value.read(box) if isinstance(value, Array) else np.array(value)
            piece = np.ascontiguousarray(data).reshape(extents(box))
            store[tuple(slice(*pair) for pair in box)].write(piece).result()
            size += math.prod(extents(box)) * dtype.itemsize + 1024
            if size >= GROUP_BYTES:
                pending.append(group.commit_async())
                group, size = ts.Transaction(), 0
                while len(pending) >= IN_FLIGHT:
                    pending.popleft().result()
    pending.append(group.commit_async())
    while pending:
        pending.popleft().result()


_CONFIG = {"max_inline_value_bytes": 1024, "compression": None}


def _chunk(shape: tuple[int, ...], item: int) -> tuple[int, ...]:
    """Return the shape of the chunks: the boxes in which an array is read and written."""
    first = next(boxes(shape, max(1, BLOCK_BYTES // item)), None)
    return tuple(max(n, 1) for n in (shape if first is None else extents(first)))


def _write_json(path: Path, value: Any) -> None:
    path.write_text(json.dumps(value), encoding="utf-8")


def _cannot_hold(tree: Tree) -> list[tuple[str, str]]:
    return list(_misfits(tree))


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
        if any("/" in str(key) or str(key) in ("", ".", "..") for key in keys):
            yield name, "a key is empty, or has a slash"
        if isinstance(leaf, Opaque):
            yield name, f"it is an {leaf}, which only code could rebuild"
        elif isinstance(leaf, Array) and not leaf.size:
            yield name, "Orbax refuses arrays without elements"
        elif isinstance(leaf, Array) and leaf.dtype.name not in (*ZARR2, *NAMED):
            yield name, f"zarr 2 has no {leaf.dtype.name}"
        elif isinstance(leaf, bytes | complex):
            yield name, f"Orbax has no {type(leaf).__name__}"
        elif type(leaf) is int and not -(1 << 63) <= leaf < 1 << 63:
            yield name, "an integer of more than 64 bits"


ORBAX = Writer(format="orbax", directory=True, cannot_hold=_cannot_hold, write=write_orbax)
"""The writer of a single save."""
