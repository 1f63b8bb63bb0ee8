"""Descriptions of an item: its JSON documents and the types of its leaves, checked before Orbax restores it."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import orbax.checkpoint as ocp

from jax_side.formats.description import DESCRIPTION
from parity.errors import CheckpointError
from parity.storage import read_json

__all__ = ["check_documents", "check_types", "key_of", "leaf_name", "read_label"]


def check_documents(item: Path) -> None:
    """Read what Orbax is about to read of an item, within bounds, so that an error names the file.

    Raises:
        CheckpointError: A document is missing, too large, or no JSON object.
    """
    read_json(item / DESCRIPTION)
    for path in (item / "_sharding", *sorted(item.glob("array_metadatas/*"))):
        if os.path.lexists(path):
            read_json(path)


def read_label(item: Path) -> dict[str, Any]:
    """Return the label of an item: the custom metadata that Orbax keeps in its description; empty without one.

    Raises:
        CheckpointError: The description is missing, too large, or no JSON object.
    """
    found = read_json(item / DESCRIPTION).get("custom_metadata")
    return found if isinstance(found, dict) else {}


def check_types(item: Path, expected: Any) -> None:
    """Refuse a leaf of another dtype or shape: Orbax would cast it silently (int32 to float32, for example).

    Args:
        item: Directory of the item.
        expected: Tree of what it should hold: arrays, or their shapes and dtypes.

    Raises:
        CheckpointError: A leaf is missing, unexpected, or of another type; or the description cannot be read.
    """
    try:
        found = _named_types(ocp.PyTreeCheckpointHandler().metadata(item.resolve()).tree)
    except Exception as error:  # Orbax and TensorStore have no common error for a damaged file
        raise CheckpointError(f"{item / DESCRIPTION} cannot be read: {error}") from error
    types = _named_types(expected)
    for name in sorted({*types, *found}):
        if types.get(name) != found.get(name):
            raise CheckpointError(
                f"checkpoint of step {item.parent.name}, {item.name}.{name}: "
                f"expected {types.get(name)}, found {found.get(name)}"
            )


def key_of(entry: Any) -> Any:
    """Return the key, the name or the position that an entry of a key path of JAX stands for."""
    return getattr(entry, "key", getattr(entry, "name", getattr(entry, "idx", str(entry))))


def leaf_name(path: Iterable[Any]) -> str:
    """Return the name that Orbax gives the leaf at a key path of a tree."""
    return ".".join(str(key_of(entry)) for entry in path)


def _named_types(tree: Any) -> dict[str, str]:
    """Return leaf name to `dtype[shape]`, the same for every container (Orbax describes NNX states as dicts)."""
    leaves, _ = jax.tree_util.tree_flatten_with_path(tree)
    out = {}
    for path, leaf in leaves:
        if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):  # Orbax writes a typed key as its words
            leaf = jax.eval_shape(jax.random.key_data, leaf)
        out[leaf_name(path)] = f"{leaf.dtype}{list(leaf.shape)}"
    return out
