"""The items of a checkpoint, by Orbax: how they are written, and read after everything about them was checked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np
import orbax.checkpoint as ocp

from jax_side.formats.described import check_documents, check_types
from jax_side.formats.ocdbt import Range, locate
from jax_side.formats.orbax_handler import DigestingHandler
from jax_side.formats.whole import read_whole
from parity.errors import CheckpointError

__all__ = ["ITEMS", "handler", "read_items", "tree_handler"]

ITEMS = {
    "params": "params",
    "model_state": "buffers",
    "optimizer": "optimizer",
    "scaler": "scaler",
    "rng": "rngs",
}
"""Orbax item to the field of the device state that it holds; an item without leaves is not written."""


def read_items(path: Path, abstract: Mapping[str, Any], *, sealed: bool) -> dict[str, Any]:
    """Restore items of a checkpoint; none is restored before all are checked.

    Args:
        path: Directory of the checkpoint.
        abstract: Item to the tree it should hold: shapes, dtypes and shardings.
        sealed: Whether what is read will be compared with a seal, leaf by leaf; if not, Orbax reads all.

    Raises:
        CheckpointError: A file is missing or points outside of the item, or a leaf is missing, unexpected, of
            another dtype or shape.
    """
    stored = {}
    for item, tree in abstract.items():
        check_documents(path / item)
        stored[item] = locate(path / item)
        check_types(path / item, tree)
    return {item: _load(path / item, tree, stored[item] if sealed else {}) for item, tree in abstract.items()}


def handler() -> DigestingHandler:
    """Return Orbax's handler of trees: arrays as they are in memory, and a snapshot's not copied once more."""
    return DigestingHandler(use_compression=False, type_handler_registry=_types())


def tree_handler() -> ocp.PyTreeCheckpointHandler:
    """Return Orbax's handler for any tree: arrays likewise, and Python's scalars as Orbax has them."""
    return ocp.PyTreeCheckpointHandler(use_compression=False, type_handler_registry=_types((int, float, str)))


def _types(scalars: tuple[type, ...] = ()) -> Any:
    """Return the types of leaves that are written and read: no others."""
    arrays = ocp.type_handlers.get_type_handler(jax.Array)
    snapshots = ocp.type_handlers.NumpyHandler(deepcopy_host_arrays=False)
    others = [(kind, ocp.type_handlers.get_type_handler(kind)) for kind in scalars]
    return ocp.type_handlers.create_type_handler_registry((np.ndarray, snapshots), (jax.Array, arrays), *others)


def _load(path: Path, tree: Any, stored: Mapping[str, Sequence[Range]]) -> Any:
    """Restore one item: what lies whole in its store straight from the files, the rest by Orbax."""
    try:
        whole = read_whole(path, tree, stored)
        leaves, structure = jax.tree.flatten(tree)
        if len(whole) < len(leaves):
            rest = [ocp.PLACEHOLDER if i in whole else leaf for i, leaf in enumerate(leaves)]
            leaves = jax.tree.leaves(_load_by_orbax(path, jax.tree.unflatten(structure, rest)))
        return jax.tree.unflatten(structure, [whole.get(i, leaf) for i, leaf in enumerate(leaves)])
    except CheckpointError:
        raise
    except Exception as error:  # Orbax and TensorStore have no common error for a damaged file
        raise CheckpointError(f"{path} cannot be restored: {error}") from error


def _load_by_orbax(path: Path, tree: Any) -> Any:
    """Restore all of an item but placeholders, without a manager: that would read all other checkpoints' too."""
    args = ocp.args.PyTreeRestore(item=tree, restore_args=ocp.checkpoint_utils.construct_restore_args(tree))
    with ocp.Checkpointer(ocp.PyTreeCheckpointHandler(type_handler_registry=_types())) as checkpointer:
        return checkpointer.restore(path.resolve(), args=args)
