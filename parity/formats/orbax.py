"""Orbax checkpoints: single saves, items, and directories of steps, read from their descriptions.

Source: the files that Orbax 0.12.8 writes: `_METADATA`, `_strings.json`, `_CHECKPOINT_METADATA`, items in directories
of their own (v0 composites and the v1 layout), `metadata` of a JSON item.
"""

from __future__ import annotations

import base64
import json
import math
import os
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from parity.errors import CheckpointError, explain
from parity.formats.array import Array, MappedArray, dtype_named
from parity.formats.jax_items import filled
from parity.formats.orbax_arrays import ItemArrays
from parity.formats.pointers import text_at
from parity.formats.tree import Opaque, Source, Tree, leaf_name, leaves
from parity.storage import read_bytes, read_json

__all__ = ["EMPTY_ARRAYS", "is_orbax", "is_orbax_manager", "open_orbax", "open_orbax_manager", "steps_of_orbax"]

TREE = "_METADATA"
CHECKPOINT = "_CHECKPOINT_METADATA"
EMPTY: Mapping[str, Any] = {"Dict": {}, "List": [], "Tuple": (), "NamedTuple": (), "None": None}
"""Types of values without content, as `_METADATA` names them. An empty named tuple, such as Optax's EmptyState, is
written as None or by one of these."""

ALONE = ("default", "state", "pytree")
"""Items that are all of a checkpoint, if there is no other: of `CheckpointManager.save(step, tree)` and of v1."""

OF_TREES = ("PyTreeCheckpointHandler", "StandardCheckpointHandler")
"""Last words of the handlers whose items have a description."""

SHARDING = "_sharding"
"""File that says on which devices the arrays were."""

STORED = ("manifest.ocdbt", "array_metadatas", SHARDING)
"""Files and directories of an item with arrays."""

EMPTY_ARRAYS = "parity.empty_arrays"
"""Key of the custom metadata: name of an array without elements, which Orbax has not, to its dtype and shape."""

MOST_LEAVES = 1_000_000
MOST_SHOWN = 4
DEEPEST = 2
"""Items within items that are looked into; Orbax has one level, of a random key and how it was saved."""

SEQUENCE = 1
_STEP = re.compile(r"(?:[A-Za-z][\w-]*_)?([0-9]{1,15})")
UNPROVEN = "whether the bytes are those that were saved: Orbax keeps no digest of an array"


KindedKeys = tuple[tuple[str, int], ...]
"""The way to a leaf: names, each with its kind."""


class _ItemNotes:
    """What is known of the items of a checkpoint beside their trees."""

    def __init__(self) -> None:
        self.items: list[Path] = []
        self.holes = 0
        """Chunks that are not there and read as zeros."""
        self.layouts: list[str] = []
        self.keys: dict[str, list[str]] = {}
        """Kind of random keys to the names of the arrays that are their data."""

    def note_keys(self, item: Path) -> None:
        """Note which arrays of an item are random keys, and of which kind."""
        for kind, names in self.keys_of(item).items():
            known = self.keys.setdefault(kind, [])
            known += [name for name in names if name not in known]

    @staticmethod
    def keys_of(item: Path) -> dict[str, list[str]]:
        """Return the kinds of random keys of an item, each with its arrays: it is beside the arrays, if anywhere."""
        found: dict[str, list[str]] = {}
        for file in sorted((item / "array_metadatas").glob("process_*")):
            rows = read_json(file).get("array_metadatas")
            for row in rows if isinstance(rows, list) else []:
                try:
                    name, more = row["array_metadata"]["param_name"], row["array_metadata"]["ext_metadata"]
                except (KeyError, TypeError) as error:
                    raise CheckpointError(f"{file} has a row that is not Orbax's ({explain(error)})") from error
                if isinstance(more, dict) and (kind := more.get("random_key_impl")):
                    names = found.setdefault(str(kind), [])
                    names += [str(name)] * (str(name) not in names)
        return found


class _Building(dict[str, Any]):
    """A container that is being built."""

    counted = False
    """Whether a name in it is the index of a list."""


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
    found = _ItemNotes()
    if (path / TREE).is_file():
        return _source(path, filled(path, _item(path, found)), found.layouts[0], found)
    handlers = read_json(path / CHECKPOINT).get("item_handlers")
    if isinstance(handlers, str) or _holds_arrays(path):
        raise _no_description(path)
    items = {
        entry.name: entry
        for entry in sorted(path.iterdir())
        if entry.is_dir() and not entry.name.startswith((".", "_")) and not entry.name.endswith("-tmp")
    }
    if not items:
        raise CheckpointError(f"{path} has {CHECKPOINT}, and neither {TREE} nor an item: it is not whole")
    named = handlers if isinstance(handlers, dict) else {}
    if gone := [name for name in named if name not in items and name != "metrics"]:
        raise CheckpointError(f"{path}: {CHECKPOINT} names the item {gone[0]}, which is not there")
    for name, handler in named.items():
        if str(handler).endswith(OF_TREES) and not (items[name] / TREE).is_file():
            raise _no_description(items[name])
    tree = filled(path, {name: _any_item(entry, found) for name, entry in items.items()})
    alone = len(tree) == 1 and next(iter(tree)) in ALONE
    detail = "; ".join([f"item{'s' * (len(items) > 1)} {', '.join(items)}", *found.layouts[:1]])
    return _source(path, next(iter(tree.values())) if alone else tree, detail, found)


def _holds_arrays(path: Path) -> bool:
    """Return whether the files of a directory are those of arrays, which a description must name."""
    with os.scandir(path) as entries:
        names = {entry.name for entry in entries}
    stored = any(name in STORED or name.startswith("ocdbt.process_") for name in names)
    return stored or any((path / name / file).is_file() for name in names for file in (".zarray", "zarr.json"))


def _no_description(path: Path) -> CheckpointError:
    return CheckpointError(
        f"{path} has no {TREE}, which names its arrays: it is not whole, and nothing of it can be read; copy it "
        "anew, or take another step"
    )


def _source(path: Path, tree: Tree, detail: str, found: _ItemNotes) -> Source:
    """Return what was opened; it is said where chunks are read as zeros, and a check reads every chunk."""
    for kind, names in found.keys.items():
        shown = ", ".join(names[:MOST_SHOWN]) + (", ..." if len(names) > MOST_SHOWN else "")
        detail += f"; data of random keys of {kind}: {shown}"
    if found.holes:
        detail += (
            f"; {found.holes:,} chunks are not there and read as zeros, as its version of Orbax leaves those out"
        )

    def verify() -> list[tuple[str, str]]:
        faults = ((leaf_name(keys), _fault(leaf)) for keys, leaf in leaves(tree) if isinstance(leaf, Array))
        return [
            *((name, what) for name, what in faults if what),
            *(((item / SHARDING).name, what) for item in found.items if (what := _sharding_fault(item / SHARDING))),
        ]

    return Source(
        path=path,
        format="orbax",
        tree=tree,
        detail=detail,
        verify=verify,
        checked="the form of every chunk",
        found_by_reading=True,
        unproven=UNPROVEN,
    )


def _sharding_fault(file: Path) -> str:
    """Return why a file of the devices of arrays cannot be read; empty if it can, or there is none, as of NumPy's."""
    if not os.path.lexists(file):
        return ""
    try:
        for name, text in read_json(file).items():
            base64.b64decode(name, validate=True).decode()
            if not isinstance(json.loads(text), dict):
                raise ValueError(f"{name:.40} is no object")
    except (CheckpointError, OSError, TypeError, ValueError, RecursionError) as error:
        return f"cannot be read, and Orbax needs it to restore without a target: {error}"
    return ""


def _fault(array: Array) -> str:
    """Return why an array cannot be read, reading all of it; empty if it can."""
    try:
        for _ in array.blocks():
            pass
    except CheckpointError as error:
        return str(error)
    return ""


def open_orbax_manager(path: Path) -> Source:
    """Open the newest step of a directory of steps.

    Raises:
        CheckpointError: It is damaged; another step may be given by its own directory.
    """
    steps = _steps(path)
    newest = max(steps)
    source = open_orbax(steps[newest])
    return replace(source, detail=f"step {newest}, the newest of {len(steps)}; {source.detail}")


def steps_of_orbax(path: Path) -> list[Path]:
    """Return the steps of a managed directory by number, those that lost their description among them."""
    steps = _steps(path, lost=True)
    return [steps[number] for number in sorted(steps)]


def _steps(path: Path, *, lost: bool = False) -> dict[int, Path]:
    """Return the steps of a managed directory, those without a description on request; drafts have other names."""
    found = {}
    with os.scandir(path) as entries:
        for entry in entries:
            match = _STEP.fullmatch(entry.name)
            if match and entry.is_dir(follow_symlinks=False) and (lost or is_orbax(Path(entry.path))):
                found[int(match[1])] = Path(entry.path)
    return found


def _layout(item: Path, value: Mapping[str, Any]) -> str:
    return f"{'zarr 3' if value.get('use_zarr3') else 'zarr 2'}{', OCDBT' if _uses_ocdbt(item, value) else ''}"


def _uses_ocdbt(item: Path, value: Mapping[str, Any]) -> bool:
    return bool(value.get("use_ocdbt", (item / "manifest.ocdbt").is_file()))


def _any_item(path: Path, found: _ItemNotes, depth: int = 0) -> Tree:
    """Return the content of an item: a tree, JSON, items of its own, or something that only its own handler reads."""
    if (path / TREE).is_file():
        return _item(path, found)
    for name in ("metadata", "metrics"):
        if (path / name).is_file():
            try:
                return json.loads(read_bytes(path / name).decode())
            except (UnicodeDecodeError, ValueError, RecursionError) as error:
                raise CheckpointError(f"{path / name} cannot be read: {error}") from error
    below = {entry.name: entry for entry in sorted(path.iterdir()) if entry.is_dir() and not entry.is_symlink()}
    if depth < DEEPEST and any((entry / TREE).is_file() for entry in below.values()):
        known = len(found.layouts)
        inner = {name: _any_item(entry, found, depth + 1) for name, entry in below.items()}  # such as a random key
        del found.layouts[known:]  # that of the checkpoint is told
        return inner
    if _holds_arrays(path):
        raise _no_description(path)
    return Opaque("orbax.item", [entry.name for entry in sorted(path.iterdir())[:8]], hidden=True)


def _item(path: Path, found: _ItemNotes) -> Tree:
    """Return the tree of one item; what else was found of it is noted."""
    value = read_json(path / TREE)
    found.layouts.append(_layout(path, value))
    found.note_keys(path)
    found.items.append(path)
    described = value.get("tree_metadata")
    if not isinstance(described, dict) or len(described) > MOST_LEAVES:
        raise CheckpointError(f"{path / TREE} has no tree_metadata")
    rows = [_row(path, row) for row in described.values()]
    stored = [name for name, _, kind in rows if kind not in EMPTY and kind != "string"]
    texts = read_json(path / "_strings.json") if any(kind == "string" for _, _, kind in rows) else {}
    opened: Mapping[str, Array] = {}
    if stored:
        arrays = ItemArrays(
            path,
            ocdbt=_uses_ocdbt(path, value),
            zarr3=bool(value.get("use_zarr3")),
            complete=value.get("store_array_data_equal_to_fill_value") is True,
        )
        opened = arrays.open_all(stored)
        found.holes += arrays.holes
        for kind, names in found.keys_of(path).items():
            for name in names:
                if name in opened:
                    opened[name].random_key = kind
    tree, empty = _Building(), _empty_arrays(path, value)
    for name, keys, kind in rows:
        if kind == "string":
            leaf: Any = text_at(texts, name)
            if not isinstance(leaf, str):
                raise CheckpointError(f"{path}: the text {name} is named by {TREE} and is not in _strings.json")
        elif name in empty and kind == "None":
            leaf = empty[name]
        elif kind in EMPTY:
            leaf = EMPTY[kind].copy() if isinstance(EMPTY[kind], dict | list) else EMPTY[kind]
        else:
            leaf = _scalar(opened[name]) if kind == "scalar" else opened[name]
        if not keys:
            return leaf
        _put(path, tree, keys, leaf)
    return _build(tree, (), path)


def _empty_arrays(path: Path, value: Mapping[str, Any]) -> dict[str, Array]:
    """Return the arrays without elements that a conversion described."""
    label = value.get("custom_metadata")
    rows = label.get(EMPTY_ARRAYS, {}) if isinstance(label, dict) else {}
    found: dict[str, Array] = {}
    try:
        for name, row in rows.items():
            dtype, shape = dtype_named(row["dtype"]), row["shape"]
            if dtype is None or math.prod(shape) or not all(type(n) is int for n in shape):
                raise ValueError(f"{name} is {row!r:.60}")
            found[name] = MappedArray(np.zeros(0, np.uint8), dtype, shape)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise CheckpointError(f"{path / TREE}: its empty arrays are not valid ({explain(error)})") from error
    return found


def _name(keys: KindedKeys) -> str:
    return ".".join([key for key, _ in keys])


def _row(path: Path, row: Any) -> tuple[str, KindedKeys, str]:
    """Return the name of a leaf, its keys, and the type of its value."""
    try:
        keys = tuple([(str(one["key"]), int(one["key_type"])) for one in row["key_metadata"]])
        return _name(keys), keys, str(row["value_metadata"]["value_type"])
    except (KeyError, TypeError, ValueError) as error:
        raise CheckpointError(f"{path / TREE} has a row that is not Orbax's ({explain(error)})") from error


def _put(path: Path, tree: _Building, keys: KindedKeys, leaf: Any) -> None:
    """Put a leaf below its branches, which are made on the way."""
    if len(keys) > 100:
        raise CheckpointError(f"{path / TREE}: {_name(keys)[:80]} is nested more than 100 deep")
    branch: Any = tree
    for depth, (name, kind) in enumerate(keys, 1):
        branch.counted |= kind == SEQUENCE
        is_leaf = depth == len(keys)
        if name in branch and (is_leaf or not isinstance(branch[name], _Building)):
            raise CheckpointError(f"{path / TREE} names {_name(keys[:depth])} twice, or something below it")
        branch = branch.setdefault(name, leaf if is_leaf else _Building())


def _build(branch: Any, names: tuple[str, ...], path: Path) -> Tree:
    if not isinstance(branch, _Building):
        return branch
    made = {key: _build(child, (*names, key), path) for key, child in branch.items()}
    if not branch.counted:
        return made
    if sorted(made, key=lambda key: (len(key), key)) != [str(at) for at in range(len(made))]:
        raise CheckpointError(f"{path / TREE}: the list {'.'.join(names)} has the places {', '.join(made)[:80]}")
    return [made[str(at)] for at in range(len(made))]


def _scalar(array: Array) -> Any:
    """Return the value of a scalar, which Orbax keeps as an array; a small one is read."""
    return array.load().reshape(()).item() if math.prod(array.shape) == 1 else array
