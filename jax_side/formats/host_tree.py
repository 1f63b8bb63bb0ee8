"""A tree of NumPy arrays as one item of an Orbax checkpoint, in one transaction of TensorStore.

Orbax opens a store for each array in a directory of each process, synchronizes every one by itself, and merges the
directories afterwards. What a single process has copied to the host needs none of that. What lies there is what Orbax
reads: its description of the tree, and a store of its arrays.

Source: the files that `PyTreeCheckpointHandler` of Orbax 0.12.8 writes and reads.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jax
import numpy as np
import orbax.checkpoint as ocp

from jax_side.formats.described import leaf_name
from jax_side.formats.description import ARRAY, DESCRIPTION, describe, kind_of_empty, row
from jax_side.formats.write_store import StoredArray, write_store
from parity.formats import InMemory
from parity.storage import FileDigest, digest_files, list_files

__all__ = ["is_on_host", "write_tree"]


def is_on_host(tree: Any) -> bool:
    """Return whether a tree has leaves, and all of them are NumPy's arrays with elements."""
    leaves = jax.tree.leaves(tree)
    return bool(leaves) and all(isinstance(leaf, np.ndarray) and leaf.size for leaf in leaves)


def write_tree(item: Path, tree: Any, label: Any = None) -> dict[str, FileDigest]:
    """Write a tree into a directory; it is not synchronized with the disk.

    Args:
        item: The directory, which exists and is empty.
        tree: NumPy's arrays in containers of JAX; nobody may change them before this returns.
        label: JSON that the description carries, Orbax's custom metadata.

    Returns:
        Digests of the files of the arrays, by their paths below the directory.

    Raises:
        OSError: The disk is full, or failed.
    """
    leaves, _ = jax.tree_util.tree_flatten_with_path(tree, is_leaf=ocp.utils.is_empty_or_leaf)
    arrays = {leaf_name(path): leaf for path, leaf in leaves if isinstance(leaf, np.ndarray)}
    stored = [StoredArray(name, InMemory(array), array.shape) for name, array in sorted(arrays.items())]
    write_store(item, stored, inline=0)
    rows = [row(_keys(path), ARRAY if isinstance(leaf, np.ndarray) else kind_of_empty(leaf)) for path, leaf in leaves]
    (item / DESCRIPTION).write_text(json.dumps(describe(rows, use_ocdbt=True, label=label)), encoding="utf-8")
    return digest_files(item, [name for name in list_files(item) if name.startswith("d/")])


def _keys(path: tuple[Any, ...]) -> list[tuple[str, bool]]:
    """Return the keys of a path of JAX, each with whether it is a position in a sequence."""
    return [(leaf_name([key]), hasattr(key, "idx")) for key in path]
