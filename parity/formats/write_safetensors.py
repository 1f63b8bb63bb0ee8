"""The writer of safetensors: one file of arrays by name, and its tree in the metadata."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from parity.formats.array import Array
from parity.formats.document import TREE_ENTRY, encode_tree
from parity.formats.safetensors_file import DTYPES, open_safetensors
from parity.formats.tree import Key, Tree, TreeLeaf, leaf_name, leaves
from parity.formats.writer import Writer, is_text, misfits
from parity.storage import WriteBack

__all__ = ["SAFETENSORS", "write_safetensors"]

NAMES = {dtype: name for name, dtype in DTYPES.items()}
ALIGNMENT = 8


def write_safetensors(tree: Tree, path: Path) -> None:
    """Write a tree as one file, block by block.

    A flat dict of arrays by text is written as it is. Of any other tree, the arrays have their keys joined by dots as
    names, and the tree itself is a JSON text in the metadata, which the format's readers pass over.

    Args:
        tree: What is written.
        path: A file that does not exist.

    Raises:
        OSError: The disk is full, or failed.
    """
    names = _names(tree)
    header: dict[str, Any] = {}
    metadata = {"format": "pt"}
    plain = isinstance(tree, dict) and all(isinstance(child, Array) for child in tree.values())
    if not plain or any(keys != (name,) for name, keys, _ in names):  # such as of the keys 1 and "1"
        by_id = {keys: name for name, keys, _ in names}
        metadata[TREE_ENTRY] = json.dumps(encode_tree(tree, lambda keys, _: {"array": by_id[keys]}))
    header["__metadata__"] = metadata
    order = sorted(names, key=lambda one: (-one[2].dtype.itemsize, one[0]))  # as the format's own writer has it
    end = 0
    for name, _, array in order:
        header[name] = {
            "dtype": NAMES[array.dtype.name],
            "shape": list(array.shape),
            "data_offsets": [end, end + array.nbytes],
        }
        end += array.nbytes
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % ALIGNMENT)
    with path.open("xb", buffering=0) as file, WriteBack() as back:
        back.write(file.fileno(), len(text).to_bytes(8, "little") + text)
        for _, _, array in order:
            for block in array.blocks():
                back.write(file.fileno(), block.view("u1"))


def _names(tree: Tree) -> list[tuple[str, tuple[Key, ...], Array]]:
    """Return name, keys and array of each array; where two would have one name, a number is added."""
    found: list[tuple[str, tuple[Key, ...], Array]] = []
    taken = {"__metadata__"}
    for keys, leaf in leaves(tree):
        if isinstance(leaf, Array):
            name = stem = leaf_name(keys)
            count = 1
            while name in taken:
                count += 1
                name = f"{stem}#{count}"
            taken.add(name)
            found.append((name, keys, leaf))
    return found


def _misfits(tree: Tree) -> list[tuple[str, str]]:
    """Return what the format cannot hold: types that it lacks, and names that no JSON text in UTF-8 has."""
    names = [name for name, _, _ in _names(tree) if not is_text(name)]
    why = "its name is no text in UTF-8, and a header of safetensors holds no other"
    return [*misfits(tree, _misfit), *((name, why) for name in names)]


def _misfit(leaf: TreeLeaf) -> str:
    return f"the format has no {leaf.dtype.name}" if isinstance(leaf, Array) and leaf.dtype.name not in NAMES else ""


SAFETENSORS = Writer(
    format="safetensors",
    directory=False,
    cannot_hold=_misfits,
    write=write_safetensors,
    read=lambda path: open_safetensors(path).tree,
)
"""The writer of one file."""
