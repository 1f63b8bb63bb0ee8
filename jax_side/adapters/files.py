"""Checkpoints of JAX trainers, read to compare what two runs saved: directories of Orbax, files of Flax.

Neither package is imported unless there is such a file; without the package the bytes of the files are compared.
"""

from __future__ import annotations

import importlib.util
import logging
import re
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

__all__ = ["read_msgpack", "read_orbax"]

_DESCRIPTION = "_METADATA"
_ROUND = frozenset((_DESCRIPTION, "_CHECKPOINT_METADATA", "_sharding", "manifest.ocdbt", "commit_success.txt"))
"""Files that Orbax puts around its arrays: times, random names and placement; what they hold is read as one tree."""
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
        return {} if path.name in _ROUND or _inside_item(path) else None
    if not description.is_file() or importlib.util.find_spec("orbax") is None:
        return None
    import jax
    import orbax.checkpoint as ocp

    with _quietly():
        handler = ocp.PyTreeCheckpointHandler()
        item = description.parent.resolve()
        described = handler.metadata(item).tree
        as_numpy = jax.tree.map(lambda _: ocp.RestoreArgs(restore_type=np.ndarray), described)
        found = handler.restore(item, args=ocp.args.PyTreeRestore(restore_args=as_numpy))
    return _plain(found)


def _inside_item(path: Path) -> bool:
    """Return whether a file lies in a store below a description: in `d`, `ocdbt.process_0/d`, `array_metadatas`."""
    return any((parent / _DESCRIPTION).is_file() for parent in list(path.parents)[:4])


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
