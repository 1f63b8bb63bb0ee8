"""A tree of NumPy arrays as one item of an Orbax checkpoint, written in one transaction of TensorStore.

Orbax opens a store for each array in a directory of each process, writes every one to the disk by itself, and merges
the directories afterwards. What a single process has copied to the host needs none of that: one transaction writes
all arrays of an item into one or two files, at the speed of a copy in memory, and what follows a save makes them
durable. What lies there is what Orbax reads: its description of the tree, and an OCDBT store of zarr arrays.

Source: `PyTreeCheckpointHandler` of Orbax 0.12.8.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jax
import numpy as np
import tensorstore as ts
from orbax.checkpoint import utils

from jax_side.formats.described import leaf_name
from jax_side.formats.description import ARRAY, DESCRIPTION, describe, kind_of_empty, row

__all__ = ["is_on_host", "write_tree"]

CONFIG = {"max_inline_value_bytes": 1024, "max_decoded_node_bytes": 100_000_000}
"""Of a store, as Orbax has it."""


def is_on_host(tree: Any) -> bool:
    """Return whether a tree has leaves, and all of them are NumPy's arrays with elements."""
    leaves = jax.tree.leaves(tree)
    return bool(leaves) and all(isinstance(leaf, np.ndarray) and leaf.size for leaf in leaves)


def write_tree(item: Path, tree: Any, label: Any = None) -> None:
    """Write a tree into a directory; it is not synchronized with the disk.

    Args:
        item: The directory, which exists and is empty.
        tree: NumPy's arrays in containers of JAX; nobody may change them before this returns.
        label: JSON that the description carries, Orbax's custom metadata.

    Raises:
        ValueError: TensorStore could not write; it has no error of its own for that.
        OSError: The disk is full, or failed.
    """
    leaves, _ = jax.tree_util.tree_flatten_with_path(tree, is_leaf=utils.is_empty_or_leaf)
    arrays = {leaf_name(path): leaf for path, leaf in leaves if isinstance(leaf, np.ndarray)}
    place = {"driver": "file", "path": f"{item.resolve()}/", "file_io_locking": {"mode": "non_atomic"}}
    context = ts.Context({"file_io_sync": False, "cache_pool": {"total_bytes_limit": 0}})
    transaction = ts.Transaction()
    opened = [
        ts.open(_spec(place, name, array), create=True, open=True, context=context, transaction=transaction)
        for name, array in arrays.items()
    ]
    writes = [
        store.result().write(array, can_reference_source_data_indefinitely=True)
        for store, array in zip(opened, arrays.values(), strict=True)
    ]
    for write in writes:
        write.copy.result()
    transaction.commit_sync()
    rows = [row(_keys(path), ARRAY if isinstance(leaf, np.ndarray) else kind_of_empty(leaf)) for path, leaf in leaves]
    (item / DESCRIPTION).write_text(json.dumps(describe(rows, use_ocdbt=True, label=label)), encoding="utf-8")


def _spec(place: dict[str, Any], name: str, array: np.ndarray[Any, Any]) -> dict[str, Any]:
    """Return TensorStore's description of an array: one chunk of plain bytes."""
    return {
        "driver": "zarr",
        "kvstore": {"driver": "ocdbt", "base": place, "path": f"{name}/", "config": CONFIG},
        "dtype": array.dtype.name,
        "metadata": {"shape": array.shape, "chunks": array.shape, "compressor": None},
        "store_data_equal_to_fill_value": True,
    }


def _keys(path: tuple[Any, ...]) -> list[tuple[str, bool]]:
    """Return the keys of a path of JAX, each with whether it is a position in a sequence."""
    return [(leaf_name([key]), hasattr(key, "idx")) for key in path]
