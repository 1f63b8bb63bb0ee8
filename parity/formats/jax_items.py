"""What Orbax does not hold of a tree that this project's JAX side saved: its description has it.

An integer of more than 64 bits, an array without elements and an item without anything stand in `meta.json` alone; in
Orbax's files there is None in their places, or nothing.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from parity.errors import CheckpointError, explain
from parity.formats.array import MappedArray, dtype_named
from parity.formats.scalars import decode_scalar, is_spelled
from parity.formats.tree import Source, Tree
from parity.storage import read_json

__all__ = ["filled", "is_bare_tree", "open_bare_tree"]

META, TREE = "meta.json", "@tree"
SEAL = "seal.json"


def _described_by(path: Path) -> Mapping[str, Any] | None:
    """Return the description of a tree of ours; None where another tool saved it.

    Raises:
        CheckpointError: The file is there and is no JSON.
    """
    if not os.path.lexists(path / META):
        return None
    scalars = read_json(path / META).get("scalars")
    described = scalars.get(TREE) if isinstance(scalars, dict) else None
    return described if isinstance(described, dict) else None


def is_bare_tree(path: Path) -> bool:
    """Return whether a directory holds a tree of ours of which Orbax holds nothing: no file but its description."""
    try:
        return path.is_dir() and {*os.listdir(path)} - {SEAL} == {META} and _described_by(path) is not None
    except CheckpointError:
        return False


def open_bare_tree(path: Path) -> Source:
    """Open such a tree.

    Raises:
        CheckpointError: Its description is no tree.
    """
    return Source(path=path, format="orbax", tree=filled(path, None), detail="no arrays with elements")


def filled(path: Path, tree: Tree) -> Tree:
    """Return a tree as Orbax has it with what its description alone holds.

    Args:
        path: The checkpoint.
        tree: What was read of its files.

    Raises:
        CheckpointError: Its description is no tree.
    """
    if (described := _described_by(path)) is None:
        return tree
    try:
        return _filled(tree, described)
    except (KeyError, TypeError, ValueError, RecursionError) as error:
        raise CheckpointError(f"{path / META} describes no tree ({explain(error)})") from error


def _filled(tree: Any, node: Any) -> Any:
    if isinstance(tree, dict):
        made = dict(tree)
        for key, child in node["dict" if "dict" in node else "fields"]:
            name = str(key)
            made[name] = _filled(made[name], child) if name in made else _alone(child)
        return made
    if isinstance(tree, list | tuple):
        rows = node["list" if "list" in node else "tuple"]
        if len(rows) != len(tree):
            raise ValueError(f"{len(rows)} elements for {len(tree)}")
        return type(tree)(map(_filled, tree, rows))
    return _alone(node) if tree is None else tree


def _alone(node: Any) -> Any:
    """Return what a description says of a part of which the files have nothing."""
    for form in ("dict", "fields"):
        if form in node:
            return {str(key): _alone(child) for key, child in node[form]}
    for form in ("list", "tuple"):
        if form in node:
            return [_alone(child) for child in node[form]]
    if "array" in node:
        dtype, shape = dtype_named(node["array"]), node["shape"]
        if dtype is None or 0 not in shape or not all(type(n) is int and n >= 0 for n in shape):
            raise ValueError(f"an array {str(node)[:60]} is not in the files")
        return MappedArray(np.zeros(0, np.uint8), dtype, shape)
    return decode_scalar(node) if is_spelled(node) else node["value"]
