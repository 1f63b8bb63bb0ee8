"""Trees that this project's PyTorch side saved: `state.pt`, or a file for each item of a manager's step.

`meta.json` describes the tree; its description names the items, so a file that is beside them is none.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from parity.errors import CheckpointError
from parity.formats.torch_file import open_torch_file
from parity.formats.tree import Source
from parity.storage import read_bytes, read_json

__all__ = ["is_torch_items", "open_torch_items"]

META = "meta.json"
TREE, ITEMS = "@tree", "@items"
"""Names in its scalars, as `parity.checkpoints.trees` writes them."""

ALONE = "state.pt"
SEAL = "seal.json"


def is_torch_items(path: Path) -> bool:
    """Return whether a directory holds a tree that was saved by the PyTorch side."""
    if not os.path.lexists(path / META) or not set(os.listdir(path)) - {META, SEAL}:
        return False  # the description alone is of the JAX side: PyTorch's has a file of torch.save for nothing, too
    if any(entry.is_dir() for entry in path.iterdir()):
        return False  # Orbax has directories, or files of its own
    try:
        return TREE in _scalars(path) and not os.path.lexists(path / "_CHECKPOINT_METADATA")
    except CheckpointError:
        return False


def open_torch_items(path: Path) -> Source:
    """Open the items of a tree as the keys of one.

    Raises:
        CheckpointError: One is missing or cannot be read.
    """
    scalars = _scalars(path)
    if scalars.get(ITEMS) is not True:
        found = open_torch_file(path / ALONE)
        return _source(path, found.tree, {ALONE: found})
    files: dict[str, Source] = {}
    tree: dict[str, Any] = {}
    for name in _items(path, scalars[TREE]):
        if os.path.lexists(path / f"{name}.pt"):
            files[f"{name}.pt"] = found = open_torch_file(path / f"{name}.pt")
            tree[name] = found.tree
            continue
        try:
            tree[name] = json.loads(read_bytes(path / f"{name}.json").decode())
        except (UnicodeDecodeError, ValueError, RecursionError) as error:
            raise CheckpointError(f"{path / name}.json cannot be read: {error}") from error
    return _source(path, tree, files)


def _source(path: Path, tree: Any, files: dict[str, Source]) -> Source:
    def damaged() -> list[tuple[str, str]]:
        return [(f"{name}: {record}", why) for name, one in files.items() for record, why in one.faults()]

    checked = next((one.checked for one in files.values() if one.checked), "")
    unproven = next((one.unproven for one in files.values()), "")
    detail = f"{len(files)} files of torch.save" if len(files) != 1 else next(iter(files))
    return Source(
        path=path,
        format="torch.save",
        tree=tree,
        detail=detail,
        verify=damaged if checked else None,
        checked=checked,
        unproven=unproven,
    )


def _scalars(path: Path) -> dict[str, Any]:
    found = read_json(path / META).get("scalars")
    return found if isinstance(found, dict) else {}


def _items(path: Path, described: Any) -> list[str]:
    """Return the names of the items, which are those of files."""
    rows = described.get("dict") if isinstance(described, dict) else None
    names = [row[0] for row in rows if isinstance(row, list) and row] if isinstance(rows, list) else []
    if not names or any(type(name) is not str or Path(name).name != name or name.startswith(".") for name in names):
        raise CheckpointError(f"{path / META} describes no items")
    return names
