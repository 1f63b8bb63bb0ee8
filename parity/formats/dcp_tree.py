"""The description of a tree beside a DCP directory: what DCP cannot say, such as keys that are integers, and tuples.

It names the metadata that it was written with: PyTorch saves over a directory and leaves other files as they are, and
the description of the save before must not be taken for that of the new one.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

from parity.errors import CheckpointError
from parity.formats.array import Array
from parity.formats.dcp_metadata import METADATA
from parity.formats.document import TREE_ENTRY, read_description
from parity.formats.folder import inside
from parity.formats.tree import Tree
from parity.storage import parse_json, read_bytes

__all__ = ["DCP_TREE", "dcp_tree_text", "described_tree"]

DCP_TREE = f"{TREE_ENTRY}.json"
"""The file; PyTorch looks at `.metadata` and the files that it names alone."""

MOST_BYTES = 1 << 30


def dcp_tree_text(path: Path, described: Any) -> str:
    """Return the text of the file.

    Args:
        path: The directory, whose metadata is written.
        described: What `encode_tree` returned, its arrays by the names that they have in DCP.
    """
    return json.dumps({"metadata": _digest(path), "tree": described})


def described_tree(path: Path, arrays: dict[str, Array]) -> Tree | None:
    """Return the tree that the file describes; None where there is none, or where it is of an earlier save.

    Args:
        path: The directory.
        arrays: Name to array, of all that the directory holds.

    Raises:
        CheckpointError: It is of this save, and does not fit it.
    """
    if not (path / DCP_TREE).exists():
        return None
    file = inside(path, DCP_TREE)
    found = parse_json(read_bytes(file, MOST_BYTES), file)
    if found.get("metadata") != _digest(path):
        return None
    if "tree" not in found:
        raise CheckpointError(f"{file} describes no tree")
    return read_description(json.dumps(found["tree"]), arrays, file)


def _digest(path: Path) -> str:
    return hashlib.sha256(read_bytes(inside(path, METADATA), MOST_BYTES)).hexdigest()
