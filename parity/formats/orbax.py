"""Orbax checkpoints: single saves, items, and directories of steps, read from their descriptions.

Source: the files that Orbax 0.12.8 writes: `_METADATA`, `_strings.json`, `_CHECKPOINT_METADATA`, items in directories
of their own (v0 composites and the v1 layout), `metadata` of a JSON item.
"""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from parity.errors import CheckpointError, explain
from parity.formats.array import Array
from parity.formats.orbax_arrays import ItemArrays
from parity.formats.tree import Key, Opaque, Source, Tree
from parity.storage import read_bytes, read_json

__all__ = ["is_orbax", "is_orbax_manager", "open_orbax", "open_orbax_manager"]

TREE = "_METADATA"
CHECKPOINT = "_CHECKPOINT_METADATA"
EMPTY: Mapping[str, Any] = {"Dict": {}, "List": [], "Tuple": (), "NamedTuple": (), "None": None}
"""Types of values without content, as `_METADATA` names them. An empty named tuple, such as Optax's EmptyState, is
written as None or by one of these."""

ALONE = ("default", "state", "pytree")
"""Items that are all of a checkpoint, if there is no other: of `CheckpointManager.save(step, tree)` and of v1."""

MOST_LEAVES = 1_000_000
SEQUENCE = 1
_STEP = re.compile(r"(?:[A-Za-z][\w-]*_)?([0-9]{1,15})")
UNPROVEN = "whether the bytes are those that were saved: Orbax keeps no digest of an array"


def is_orbax(path: Path) -> bool:
    """Return whether a directory is a checkpoint of Orbax: an item, or one that holds items."""
    return (path / TREE).is_file() or (path / CHECKPOINT).is_file()


def is_orbax_manager(path: Path) -> bool:
    """Return whether a directory holds steps, each a checkpoint of Orbax."""
    return path.is_dir() and not is_orbax(path) and bool(_steps(path))


def open_orbax(path: Path) -> Source:
    """Open a checkpoint; the items of a composite are the keys of its tree.

    Raises:
        CheckpointError: It has no description, or one that does not fit its files.
    """
    if (path / TREE).is_file():
        return Source(path=path, format="orbax", tree=_item(path), detail=_layout(path), unproven=UNPROVEN)
    items = {
        entry.name: entry
        for entry in sorted(path.iterdir())
        if entry.is_dir() and not entry.name.startswith((".", "_")) and not entry.name.endswith("-tmp")
    }
    if not items:
        raise CheckpointError(f"{path} has {CHECKPOINT}, and neither {TREE} nor an item: it is not whole")
    named = read_json(path / CHECKPOINT).get("item_handlers") if (path / CHECKPOINT).is_file() else None
    if isinstance(named, dict) and (gone := [name for name in named if name not in items and name != "metrics"]):
        raise CheckpointError(f"{path}: {CHECKPOINT} names the item {gone[0]}, which is not there")
    tree = {name: _any_item(entry) for name, entry in items.items()}
    alone = len(tree) == 1 and next(iter(tree)) in ALONE
    first = next((entry for entry in items.values() if (entry / TREE).is_file()), None)
    detail = f"item{'s' * (len(items) > 1)} {', '.join(items)}" + (f"; {_layout(first)}" if first else "")
    return Source(
        path=path, format="orbax", tree=next(iter(tree.values())) if alone else tree, detail=detail, unproven=UNPROVEN
    )


def open_orbax_manager(path: Path) -> Source:
    """Open the newest step of a directory of steps.

    Raises:
        CheckpointError: It is damaged; another step may be given by its own directory.
    """
    steps = _steps(path)
    newest = max(steps)
    source = open_orbax(steps[newest])
    detail = f"step {newest}, the newest of {len(steps)}; {source.detail}"
    return Source(path=steps[newest], format="orbax", tree=source.tree, detail=detail, unproven=UNPROVEN)


def _steps(path: Path) -> dict[int, Path]:
    """Return the steps of a managed directory; drafts have other names."""
    found = {}
    with os.scandir(path) as entries:
        for entry in entries:
            match = _STEP.fullmatch(entry.name)
            if match and entry.is_dir(follow_symlinks=False) and is_orbax(Path(entry.path)):
                found[int(match[1])] = Path(entry.path)
    return found


def _layout(item: Path) -> str:
    value = read_json(item / TREE)
    return f"{'zarr 3' if value.get('use_zarr3') else 'zarr 2'}{', OCDBT' if _uses_ocdbt(item, value) else ''}"


def _uses_ocdbt(item: Path, value: Mapping[str, Any]) -> bool:
    return bool(value.get("use_ocdbt", (item / "manifest.ocdbt").is_file()))


def _any_item(path: Path) -> Tree:
    """Return the content of an item: a tree, JSON, or something that only its own handler reads."""
    if (path / TREE).is_file():
        return _item(path)
    for name in ("metadata", "metrics"):
        if (path / name).is_file():
            try:
                return json.loads(read_bytes(path / name).decode())
            except (UnicodeDecodeError, ValueError, RecursionError) as error:
                raise CheckpointError(f"{path / name} cannot be read: {error}") from error
    return Opaque("orbax.item", [entry.name for entry in sorted(path.iterdir())[:8]])


def _item(path: Path) -> Tree:
    """Return the tree of one item."""
    value = read_json(path / TREE)
    described = value.get("tree_metadata")
    if not isinstance(described, dict) or len(described) > MOST_LEAVES:
        raise CheckpointError(f"{path / TREE} has no tree_metadata")
    rows = [_row(path, row) for row in described.values()]
    stored = [".".join(str(key) for key, _ in keys) for keys, kind in rows if kind not in EMPTY and kind != "string"]
    texts = read_json(path / "_strings.json") if any(kind == "string" for _, kind in rows) else {}
    found: Mapping[str, Array] = {}
    if stored:
        arrays = ItemArrays(
            path,
            ocdbt=_uses_ocdbt(path, value),
            zarr3=bool(value.get("use_zarr3")),
            complete=value.get("store_array_data_equal_to_fill_value") is True,
        )
        found = arrays.open_all(stored)
    branches: dict[tuple[str, ...], dict[Key, Any]] = {(): {}}
    lists: set[tuple[str, ...]] = set()
    for keys, kind in rows:
        name = ".".join(str(key) for key, _ in keys)
        if kind == "string":
            if not isinstance(texts.get(name), str):
                raise CheckpointError(f"{path}: the text {name} is named by {TREE} and is not in _strings.json")
            leaf: Any = texts[name]
        elif kind in EMPTY:
            leaf = EMPTY[kind].copy() if isinstance(EMPTY[kind], dict | list) else EMPTY[kind]
        else:
            leaf = _scalar(found[name]) if kind == "scalar" else found[name]
        if not keys:
            return leaf
        _put(path, branches, lists, keys, leaf)
    return _build(branches[()], (), lists, path)


def _row(path: Path, row: Any) -> tuple[tuple[tuple[str, int], ...], str]:
    try:
        keys = tuple((str(one["key"]), int(one["key_type"])) for one in row["key_metadata"])
        return keys, str(row["value_metadata"]["value_type"])
    except (KeyError, TypeError, ValueError) as error:
        raise CheckpointError(f"{path / TREE} has a row that is none of Orbax ({explain(error)})") from error


def _put(
    path: Path,
    branches: dict[tuple[str, ...], dict[Key, Any]],
    lists: set[tuple[str, ...]],
    keys: tuple[tuple[str, int], ...],
    leaf: Any,
) -> None:
    """Put a leaf below its branches; a branch whose keys are counted is a list."""
    names = tuple(name for name, _ in keys)
    if len(names) > 100:
        raise CheckpointError(f"{path / TREE}: {'.'.join(names)[:80]} is nested more than 100 deep")
    branch = branches[()]
    for depth, (name, kind) in enumerate(keys):
        if kind == SEQUENCE:
            lists.add(names[:depth])
        if depth == len(keys) - 1:
            if name in branch:
                raise CheckpointError(f"{path / TREE} names {'.'.join(names)} twice, or something below it")
            branch[name] = leaf
            return
        below = branch.setdefault(name, {})
        if branches.setdefault(names[: depth + 1], below) is not below or not isinstance(below, dict):
            raise CheckpointError(f"{path / TREE} names {'.'.join(names[: depth + 1])} twice, or something below it")
        branch = below


def _build(branch: Any, names: tuple[str, ...], lists: set[tuple[str, ...]], path: Path) -> Tree:
    if not isinstance(branch, dict):
        return branch
    made = {key: _build(child, (*names, str(key)), lists, path) for key, child in branch.items()}
    if names not in lists or not made:
        return made
    if sorted(made, key=lambda key: (len(str(key)), str(key))) != [str(at) for at in range(len(made))]:
        raise CheckpointError(
            f"{path / TREE}: the list {'.'.join(names)} has the places {', '.join(map(str, made))[:80]}"
        )
    return [made[str(at)] for at in range(len(made))]


def _scalar(array: Array) -> Any:
    """Return the value of a scalar, which Orbax keeps as an array; a small one is read."""
    return array.load().reshape(()).item() if math.prod(array.shape) == 1 else array
