"""Checkpoints of JAX trainers, read to compare what two runs saved: directories of Orbax, files of Flax.

Neither package is imported unless there is such a file; without the package the bytes of the files are compared.
"""

from __future__ import annotations

import functools
import importlib.util
import logging
import re
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

__all__ = ["is_part", "read_msgpack", "read_orbax"]

_DESCRIPTION = "_METADATA"
_ROUND = frozenset((_DESCRIPTION, "_CHECKPOINT_METADATA", "_sharding", "manifest.ocdbt", "commit_success.txt"))
"""Files that Orbax puts around its arrays: times, random names and placement; what they hold is read as one tree."""
_BESIDE = frozenset(("checkpoint", "_strings.json", "_ROOT_METADATA"))
"""Files of other versions of Orbax in the directory of an item: arrays and texts of the tree, again."""
_STORES = re.compile(r"ocdbt\.process_[^/]*/|d/[0-9a-f]{32}$|array_metadatas/|descriptor/")
"""Where the stores of an item lie in its directory, and descriptions of the arrays."""
_ZARR = (".zarray", "zarr.json")
"""What describes an array that has a directory of its own."""
_LEGACY = re.compile(r"checkpoint_?\d+(\.\d+)?$")
"""Names that `flax.training.checkpoints` gives."""


def read_msgpack(path: Path) -> Any:
    """Return what `flax.serialization` wrote, as nested dicts of NumPy arrays; None for another kind of file."""
    if path.suffix not in (".msgpack", ".flax") and not _LEGACY.search(path.name):
        return None
    if not path.is_file() or importlib.util.find_spec("flax") is None:
        return None
    from flax import serialization

    return _plain(serialization.msgpack_restore(path.read_bytes()))


def read_orbax(path: Path) -> Any:
    """Return the tree of the Orbax item that a file describes, as NumPy arrays; None for another kind of file.

    Args:
        path: Its directory, or one of its files: the description stands for the whole, the others for nothing.
    """
    description = path / _DESCRIPTION if path.is_dir() else path
    if description.name != _DESCRIPTION:
        item = next((parent for parent in list(path.parents)[:4] if (parent / _DESCRIPTION).is_file()), None)
        if item is None or not is_part(item, path):
            return {} if path.name in _ROUND else None
        return {} if _is_readable(item, (item / _DESCRIPTION).stat().st_mtime_ns) else None
    if not description.is_file() or importlib.util.find_spec("orbax") is None:
        return None
    return _read_item(description.parent.resolve())


def _read_item(item: Path) -> Any:
    import jax
    import orbax.checkpoint as ocp

    def asked(leaf: Any) -> Any:
        text = type(leaf).__name__ == "StringMetadata"
        return ocp.RestoreArgs(restore_type=str if text else np.ndarray)

    with _quietly():
        handler = ocp.PyTreeCheckpointHandler()
        described = handler.metadata(item).tree
        found = handler.restore(item, args=ocp.args.PyTreeRestore(restore_args=jax.tree.map(asked, described)))
    return _plain(found)


@functools.lru_cache(maxsize=64)
def _is_readable(item: Path, when: int) -> bool:
    """Return whether the tree of an item, written at a time, is read: if not, the bytes of its files are compared."""
    try:
        _read_item(item.resolve())
    except Exception:  # as where a reader fails: whatever it is, nothing was read
        return False
    return True


def is_part(folder: Path, path: Path) -> bool:
    """Tell whether a file below the directory of an item of Orbax is one that Orbax put there.

    Args:
        folder: The directory.
        path: The file: of anything else that a trainer keeps beside the arrays nothing was read.
    """
    name = path.relative_to(folder).as_posix()
    if name in _ROUND | _BESIDE or _STORES.match(name):
        return True
    between = list(path.parents)[: len(path.relative_to(folder).parents) - 1]
    return any((parent / one).is_file() for parent in between for one in _ZARR)


def _plain(value: Any) -> Any:
    """Return nested containers with arrays as NumPy has them: an array of a library is not looked into."""
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return np.asarray(value) if hasattr(value, "__array__") else value


@contextmanager
def _quietly() -> Iterator[None]:
    """Keep Orbax from warning that it restores without a target: there is none."""
    logger = logging.getLogger("absl")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings(action="ignore"):
            yield
    finally:
        logger.setLevel(level)
