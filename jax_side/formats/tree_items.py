"""The files of any tree: Orbax writes them, and their arrays are read back without a cast."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import orbax.checkpoint as ocp
import tensorstore as ts

from jax_side.formats.items import tree_handler
from jax_side.formats.ocdbt import locate, places
from jax_side.formats.whole import read_buffers
from parity.checkpoints.trees import ArrayType, Branch, LeafNode, Node, SavedPart, Written, leaves, sealed_name
from parity.errors import CheckpointError

__all__ = ["content_of", "is_nothing", "opened", "read_parts", "stored_names", "write_parts"]

INT64 = 1 << 63

ReadSplit = Callable[[Path, Mapping[str, str], Mapping[str, ArrayType]], Mapping[str, Any]]


def write_parts(draft: Path, parts: list[SavedPart], values: Mapping[str, Any], texts: Mapping[str, str]) -> Written:
    """Write parts with Orbax: one without a name as a tree by itself, others as items of a checkpoint.

    Orbax holds no array without elements, no integer of more than 64 bits, and no tree without anything: these stand
    in the description of the tree alone, and None in their place keeps the positions in a list.

    Args:
        draft: The new directory.
        parts: What is written.
        values: Name of each leaf to what is written.
        texts: Name of each array in the seal to its digest.
    """
    contents = [(part, content_of(part.node, values)) for part in parts]
    kept = [(part, tree) for part, tree in contents if part.is_json or not is_nothing(tree)]
    if not kept:
        draft.mkdir()
    elif not kept[0][0].item:
        with ocp.Checkpointer(tree_handler()) as checkpointer:
            checkpointer.save(draft.resolve(), args=ocp.args.PyTreeSave(kept[0][1]))
    else:
        registry = ocp.handlers.DefaultCheckpointHandlerRegistry()
        args: dict[str, Any] = {}
        for part, tree in kept:
            save = ocp.args.JsonSave if part.is_json else ocp.args.PyTreeSave
            registry.add(part.item, save, ocp.JsonCheckpointHandler() if part.is_json else tree_handler())
            args[part.item] = save(tree)
        directories_first = ocp.AsyncOptions(
            create_directories_asynchronously=False
        )  # else threads wait for those that fail
        options = ocp.CompositeOptions(async_options=directories_first)
        handler = ocp.CompositeCheckpointHandler(handler_registry=registry, composite_options=options)
        with ocp.Checkpointer(handler) as checkpointer:
            checkpointer.save(draft.resolve(), args=ocp.args.Composite(**args))
    return {}, places(draft, [part.item for part in parts], stored_names(parts), texts)


def stored_names(parts: Iterable[SavedPart]) -> dict[str, tuple[str, str]]:
    """Return the name of each array in the seal to its item, and its name in the store of that."""
    return {sealed_name(name): (part.item, array) for part in parts for name, array in _arrays(part).items()}


def read_parts(
    path: Path,
    parts: Iterable[SavedPart],
    names: set[str],
    split: Collection[str] = (),
    read_split: ReadSplit | None = None,
) -> dict[str, Any]:
    """Return arrays of a checkpoint as NumPy's, by name.

    Args:
        path: The checkpoint.
        parts: What it holds, by its description.
        names: The arrays that are needed; others are not read.
        split: Those of which this process needs a part.
        read_split: Returns what it needs of them, given the store, their names in it, and their types.

    Raises:
        CheckpointError: Its files do not hold arrays of the types that its description says.
        EOFError: A file is shorter than it was.
        OSError: A file cannot be read, or is a link.
    """
    found: dict[str, Any] = {}
    for part in parts:
        kinds = {name: leaf.value for name, leaf in leaves(part.node).items() if name in names}
        found |= {name: np.zeros(kind.shape, kind.dtype) for name, kind in kinds.items() if _is_empty(kind)}
        wanted = {name: array for name, array in _arrays(part).items() if name in kinds}
        if not wanted:
            continue
        store = path / part.item
        stored = locate(store)
        if parted := {name: wanted.pop(name) for name in [*wanted] if name in split}:
            assert read_split is not None
            found |= read_split(store, parted, kinds)
        sizes = {name: (array, _bytes(kinds[name])) for name, array in wanted.items()}
        for name, buffer in read_buffers(store, sizes, stored).items():
            found[name] = buffer.view(kinds[name].dtype).reshape(kinds[name].shape)
        found |= _read_small(store, {name: array for name, array in wanted.items() if name not in found}, kinds)
    return found


def _read_small(store: Path, wanted: Mapping[str, str], kinds: Mapping[str, ArrayType]) -> dict[str, Any]:
    """Read arrays through TensorStore, all at once; it makes no array of another type than it finds."""
    reads = {name: array.read() for name, array in opened(store, wanted, kinds).items()}
    return {name: np.asarray(future.result()) for name, future in reads.items()}


def opened(store: Path, wanted: Mapping[str, str], kinds: Mapping[str, ArrayType]) -> dict[str, ts.TensorStore]:
    """Open arrays of a store, all at once, and check their types.

    Args:
        store: Directory of an item.
        wanted: Name of an array to its name in the store.
        kinds: Name of an array to its type.

    Raises:
        CheckpointError: An array is of another type.
    """
    base = {"driver": "file", "path": f"{store.resolve()}/"}
    context = ts.Context({"cache_pool": {"total_bytes_limit": 1 << 24}})
    futures = {}
    for name, array in wanted.items():
        kvstore = {"driver": "ocdbt", "base": base, "path": f"{array}/" if array else ""}
        futures[name] = ts.open({"driver": "zarr", "kvstore": kvstore}, open=True, read=True, context=context)
    arrays = {}
    for name, future in futures.items():
        found, kind = future.result(), kinds[name]
        if (found.dtype.name, tuple(found.shape)) != (kind.dtype, kind.shape):
            raise CheckpointError(
                f"{store}: {name} is {found.dtype.name}{list(found.shape)}, and was saved as {kind}"
            )
        arrays[name] = found
    return arrays


def content_of(node: Node, values: Mapping[str, Any]) -> Any:
    """Return what Orbax is given of a tree: plain containers, keys of text, and None for what it does not hold."""
    if isinstance(node, Branch):
        made = [content_of(child, values) for child in node.children]
        if node.form in ("list", "tuple"):
            return made if node.form == "list" else tuple(made)
        return {str(key): one for key, one in zip(node.keys, made, strict=True)}
    value = None if _is_left_out(node) else values[node.name]
    return np.asarray(value) if isinstance(value, complex) else value


def is_nothing(tree: Any) -> bool:
    """Return whether Orbax would refuse a tree as empty."""
    return tree is None or (isinstance(tree, dict | list | tuple) and not tree)


def _is_left_out(node: Node) -> bool:
    value = node.value if isinstance(node, LeafNode) else None
    big = type(value) is int and not -INT64 <= value < INT64
    return big or (isinstance(value, ArrayType) and _is_empty(value))


def _arrays(part: SavedPart) -> dict[str, str]:
    """Return the name of each array of a part that has elements to its name in the store of the part."""
    found = {}
    start = len(part.item) + 1 if part.item else 0
    for name, leaf in leaves(part.node).items():
        if isinstance(leaf.value, ArrayType) and not _is_empty(leaf.value):
            found[name] = name[start:]
    return found


def _is_empty(kind: ArrayType) -> bool:
    return 0 in kind.shape


def _bytes(kind: ArrayType) -> int:
    return int(np.prod(kind.shape, dtype=np.int64)) * np.dtype(kind.dtype).itemsize
