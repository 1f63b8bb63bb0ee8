"""Directories of torch.distributed.checkpoint (DCP): tensors in chunks, from one process or many, one metadata file.

`.metadata` is a pickle of what is where; each chunk of a tensor, and each other value, is an archive of `torch.save`
within a `.distcp` file. Keys of dictionaries are text: DCP turns the 0 of an optimizer's state into "0". Megatron's
`torch_dist` is such a directory with a `common.pt` beside, whose content joins the tree; its tensors have the
names and shapes with which it stores them.

Source: `torch/distributed/checkpoint/`: `metadata.py`, `filesystem.py`, `_traverse.py`, PyTorch 2.13;
`megatron/core/dist_checkpointing/`, megatron-core 0.16.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from parity.errors import CheckpointError
from parity.formats.array import Array, dtype_named
from parity.formats.dcp_items import Items
from parity.formats.dcp_metadata import METADATA, Record, read_metadata
from parity.formats.dcp_tree import described_tree
from parity.formats.document import TREE_ENTRY, read_description
from parity.formats.folder import inside
from parity.formats.nesting import nest
from parity.formats.pieces import Piece, PiecedArray
from parity.formats.symbolic import Global
from parity.formats.torch_file import open_torch_file
from parity.formats.tree import Opaque, Source, Tree

__all__ = ["open_dcp"]

COMMON = "common.pt"


def open_dcp(path: Path) -> Source:
    """Open a directory, reading its metadata and the values that are no tensors.

    Raises:
        CheckpointError: The metadata is damaged, or says what cannot be: chunks that overlap or leave holes, files
            that are missing or too short.
    """
    metadata = read_metadata(path)
    entries, planned = metadata["state_dict_metadata"], metadata.get("planner_data")
    items = Items(path, metadata["storage_data"])
    flat = {name: _entry(path, name, entry, items) for name, entry in entries.items()}
    paths = planned if isinstance(planned, dict) else {}
    tree = nest({name: (paths.get(name, (name,)), leaf) for name, leaf in flat.items()}, str(path / METADATA))
    detail = f"DCP {metadata.get('version') or 'before 1.0.0'}, {len(items.files)} files"
    if (path / COMMON).exists():
        common = open_torch_file(inside(path, COMMON)).tree
        tree = _join(tree, common, path, ())
        detail += f", with {COMMON} of Megatron"
    arrays = {name: leaf for name, leaf in flat.items() if isinstance(leaf, Array)}
    if (described := described_tree(path, arrays)) is not None:
        tree = described
    elif isinstance(text := flat.get(TREE_ENTRY), str):  # where a conversion put it before
        tree = read_description(text, arrays, path)
    return Source(path=path, format="dcp", tree=tree, detail=detail, verify=items.damaged, unproven=UNPROVEN)


UNPROVEN = "that it is what was saved: each item has its CRC-32, .metadata has no digest"


def _join(tree: Tree, more: Tree, path: Path, keys: tuple[Any, ...]) -> Tree:
    """Return a tree with the content of another, where both have dictionaries."""
    if not (isinstance(tree, dict) and isinstance(more, dict)):
        raise CheckpointError(f"{path}: {'.'.join(map(str, keys)) or 'the tree'} is in {COMMON} and in {METADATA}")
    joined = dict(tree)
    for key, child in more.items():
        joined[key] = _join(tree[key], child, path, (*keys, key)) if key in tree else child
    return joined


def _entry(path: Path, name: str, entry: Any, items: Items) -> Tree:
    """Return the leaf of one name: an array of chunks, or the tree of a value."""
    where = f"{path / METADATA}: {name}"
    kind = entry.kind if isinstance(entry, Record) else type(entry).__name__
    if kind == "BytesStorageMetadata":
        return items.find(where, name, None).archive().tree
    if kind != "TensorStorageMetadata":
        raise CheckpointError(f"{where} is described by a {kind}, which is unknown")
    properties = entry.fields.get("properties")
    named = properties.fields.get("dtype") if isinstance(properties, Record) else None
    shape, chunks = _numbers(where, entry.fields.get("size")), entry.fields.get("chunks")
    if not isinstance(named, Global) or not isinstance(chunks, list):
        raise CheckpointError(f"{where} has no dtype or no chunks")
    dtype = dtype_named(named.name.removeprefix("torch."))
    if dtype is None:
        return Opaque(named.name, list(shape), hidden=True)
    pieces = [_piece(where, name, chunk, items, dtype.itemsize) for chunk in chunks]
    try:
        return PiecedArray(shape, dtype, pieces)
    except CheckpointError as error:
        raise CheckpointError(f"{where}: {error}") from error


def _piece(where: str, name: str, chunk: Any, items: Items, itemsize: int) -> Piece:
    fields = chunk.fields if isinstance(chunk, Record) else {}
    start, shape = (_numbers(where, fields.get(field)) for field in ("offsets", "sizes"))
    item = items.find(where, name, start).archive()
    size = math.prod(shape) * itemsize
    if size > item.mapped.size:
        raise CheckpointError(
            f"{where}: the chunk at {list(start)} has {size:,} bytes, its place {item.mapped.size:,}"
        )
    return Piece(start, shape, item.array)


def _numbers(where: str, value: Any) -> tuple[int, ...]:
    if not isinstance(value, tuple) or not all(type(n) is int and 0 <= n < 1 << 62 for n in value) or len(value) > 64:
        raise CheckpointError(f"{where} has {value!r:.60} where extents should be")
    return value
