"""Checkpoints of other tools as trees: files that no tree of ours was saved to, matched with a template all the same.

Their containers and arrays come from `parity.formats`, which executes nothing of them. A conversion of ours is one of
these too: it is sealed, and has no description of a tree.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from parity.checkpoints import FILE, Seal, describe, read_seal_beside, seal_beside, verify_file
from parity.checkpoints.trees.document import DTYPES, is_scalar
from parity.checkpoints.trees.fit import RestoreRequest
from parity.checkpoints.trees.form import TreeForm
from parity.checkpoints.trees.nodes import ArrayType, Branch, LeafNode, Node, Opened, Unheld, leaves, open_plain, walk
from parity.checkpoints.trees.reading import Pending, is_described, match_tree
from parity.errors import CheckpointError, DamagedError, UnsealedError
from parity.formats import Array as Stored
from parity.formats import Opaque, Source, Tree, leaf_name, recognise
from parity.formats import leaves as stored_leaves
from parity.storage import read_json

__all__ = ["open_foreign", "read_foreign", "seal_of_file"]

DOCUMENT = "torch"
"""First key of what a conversion from PyTorch leaves in a tree of JAX beside the state; see `parity.convert`."""

KEYS = "array_metadatas"
"""Directory of an item of Orbax whose files name the implementation of each typed key."""

UNPROVEN = "whether the bytes are those that were saved: there is no seal"


def seal_of_file(path: Path) -> Seal | None:
    """Return the seal beside a file, after every byte of the file was compared with it; None without one.

    Raises:
        DamagedError: The file is not what was sealed.
        CheckpointError: The seal is not valid.
    """
    if not os.path.lexists(seal_beside(path)):
        return None
    if faults := verify_file(path).faults:
        raise DamagedError(f"{path} is not what was sealed:", describe(faults))
    return read_seal_beside(path)


def open_foreign(path: Path) -> Source:
    """Open a file or a directory of another tool, without loading an array.

    Raises:
        UnsealedError: It is of no known format, and has no seal.
        CheckpointError: It is damaged.
    """
    if path.is_dir() and not any(path.iterdir()):
        raise UnsealedError(f"{path} is an empty directory: it has no seal, and no checkpoint of another tool either")
    if path.is_dir() and is_described(path):
        raise UnsealedError(f"{path} has no seal: {FILE} is missing, and nothing else proves that it is whole")
    try:
        known = recognise(path)
    except CheckpointError as error:
        if path.is_dir() and (path / "checkpoints").is_dir():
            raise CheckpointError(
                f"{path} holds checkpoints of several steps: give that of one, {path / 'checkpoints'}/STEP, or "
                "restore with a CheckpointManager"
            ) from error
        said = str(error).replace(f"{path}: ", f"{path}: there is no checkpoint; it is ", 1)
        raise CheckpointError(said) from error
    return known.open(path)


def read_foreign(
    form: TreeForm, source: Source, request: RestoreRequest, *, sealed: bool, as_saved: bool = False
) -> Pending:
    """Read what a template needs of a checkpoint of another tool.

    Args:
        form: The framework's part, which takes over the arrays.
        source: The opened checkpoint.
        request: The template, and what may differ from it; without a template, all of the tree is read.
        sealed: Whether every byte was compared with a seal; else that there is none is said of what was read.
        as_saved: Whether that seal was made as it was saved; else what the format itself can prove is checked.

    Returns:
        What was read, its `unproven` what nothing proves.

    Raises:
        DamagedError: A checksum of the format does not fit.
        CheckpointError: It cannot be read, does not fit the template, or holds an object that only code could rebuild
            where no template leaves it out; names each leaf.
    """
    if not as_saved and (faults := source.faults()):
        raise DamagedError(f"{source.path} is damaged:", faults)
    keys = _key_types(source.path)
    stored = _typed(walk(source.tree, _open), keys)
    found = {leaf_name(keys): leaf for keys, leaf in stored_leaves(source.tree)}

    def read(names: Iterable[str], likes: Mapping[str, Any]) -> dict[str, Any]:
        del likes  # each process reads whole arrays, and keeps its part
        return {name: form.adopt(found[name].load()) for name in names}

    no_state = [DOCUMENT] if _is_document(source.tree) else []
    pending = match_tree(form, stored, request, read, items=False, foreign=True, no_state=no_state)
    held = leaves(stored) if request.like is None else {}
    if lost := [(name, f"is {one.value}") for name, one in held.items() if isinstance(one.value, Unheld)]:
        raise CheckpointError("no tree holds it; a template without it and allow_extra=True leave it out:", lost)
    if sealed:
        return pending
    return replace(pending, unproven=f"{source.unproven or UNPROVEN}; {source.path.name} has no seal")


def _open(name: str, value: Tree) -> Opened | None:
    del name
    return open_plain(value) if isinstance(value, dict | list | tuple) else None


def _is_document(tree: Tree) -> bool:
    """Return whether a tree has the document of a conversion: what PyTorch needs to get its own state back."""
    held = tree.get(DOCUMENT) if isinstance(tree, dict) else None
    return isinstance(held, dict) and isinstance(held.get("state"), str)


def _key_types(path: Path) -> dict[str, str]:
    """Return the name of each typed key that Orbax wrote to its implementation, with and without that of its item."""
    found: dict[str, str] = {}
    for file in sorted([*path.glob(f"{KEYS}/process_*"), *path.glob(f"*/{KEYS}/process_*")]):
        item = file.parent.parent
        for row in _rows(read_json(file).get("array_metadatas")):
            name, kind = row.get("param_name"), (row.get("ext_metadata") or {}).get("random_key_impl")
            if isinstance(name, str) and isinstance(kind, str):
                found[name if item == path else f"{item.name}.{name}"] = kind
                found.setdefault(name, kind)
    return found


def _rows(value: Any) -> list[dict[str, Any]]:
    rows = [row.get("array_metadata") for row in value if isinstance(row, dict)] if isinstance(value, list) else []
    return [row for row in rows if isinstance(row, dict) and isinstance(row.get("ext_metadata"), dict | None)]


def _typed(node: Node, keys: Mapping[str, str]) -> Node:
    """Return a tree of the types of its arrays, of scalars, and of what no tree of ours holds."""
    if isinstance(node, Branch):
        return replace(node, children=tuple(_typed(child, keys) for child in node.children))
    assert isinstance(node, LeafNode)
    kind = _type(node.value)
    words = isinstance(kind, ArrayType) and kind.dtype == "uint32" and kind.shape and keys.get(node.name)
    return LeafNode(node.name, replace(kind, key=words) if words else kind)


def _type(value: Any) -> Any:
    if isinstance(value, Stored):
        name = value.dtype.name
        return ArrayType(name, value.shape) if name in DTYPES else Unheld(f"an array of {name}")
    if isinstance(value, Opaque):
        return Unheld(f"an {value}")
    return value if is_scalar(value) else Unheld(f"a {type(value).__name__}")
