"""Orbax's handler of trees, which digests what is written while it is written.

A single process writes by itself what it has copied to the host. Of several, Orbax writes; each digests its files.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import jax
import orbax.checkpoint as ocp

from jax_side.formats.host_tree import is_on_host, write_tree
from jax_side.formats.needed import check_orbax
from jax_side.formats.ocdbt import MANIFEST
from parity.errors import CheckpointError
from parity.storage import FileDigest, digest_files, list_files, read_json

__all__ = ["PROCESS_FILES", "DigestingHandler", "gather"]

PROCESS_FILES = "ocdbt.process_{}"
"""Folder in an item in which Orbax lets each process write."""

SHARDS = "digests.process_{}.json"
"""File in the draft of an item: the digests that a process made of its own files. Process 0 removes it again."""


check_orbax()  # all that saves or restores through Orbax imports this module


class DigestingHandler(ocp.PyTreeCheckpointHandler):
    """Orbax's handler, but for trees that are on the host.

    It is registered with no class of arguments: Orbax allows one handler of a name, and this one has Orbax's own.
    """

    @classmethod
    def typestr(cls) -> str:
        """Return the name of Orbax's own handler, which a checkpoint records: so Orbax alone can restore it."""
        return str(ocp.PyTreeCheckpointHandler.typestr())

    async def async_save(self, directory: Any, *args: Any, **kwargs: Any) -> Any:
        """Save as Orbax does, and digest in the background; what is on the host is written when it is waited for."""
        if jax.process_count() == 1 and is_on_host(kwargs["args"].item):
            return [_OwnFiles(Path(directory), kwargs["args"])]
        futures = await super().async_save(directory, *args, **kwargs)
        return futures if jax.process_count() == 1 else [*(futures or []), _OwnDigests(futures or [], directory)]

    def finalize(self, directory: Any) -> None:
        """Merge what Orbax wrote for each process; what is on the host is written whole."""
        if not (Path(directory) / MANIFEST).is_file():
            super().finalize(directory)


class _OwnFiles:
    """A future that writes a tree when it is waited for, which Orbax does after it made the directory."""

    def __init__(self, item: Path, args: ocp.args.PyTreeSave) -> None:
        self._item, self._args = item, args

    def result(self, timeout: float | None = None) -> None:
        """Write, and leave the digests beside what was written."""
        del timeout
        _leave(self._item, 0, write_tree(self._item, self._args.item, self._args.custom_metadata))


class _OwnDigests:
    """A future that is done when the digests of this process's files are on disk."""

    def __init__(self, writing: Iterable[Any], directory: Any) -> None:
        self._writing, self._directory = list(writing), directory

    def result(self, timeout: float | None = None) -> None:
        """Wait for the writes, then digest; what other processes may still write is not looked at."""
        for future in self._writing:
            future.result(timeout=timeout)
        item = Path(getattr(self._directory, "path", self._directory))
        index = jax.process_index()
        own = PROCESS_FILES.format(index)
        names = list_files(item / own) if (item / own).is_dir() else {}
        _leave(item, index, digest_files(item, [f"{own}/{name}" for name in names]))


def _leave(item: Path, index: int, digests: Mapping[str, FileDigest]) -> None:
    text = json.dumps({name: [d.size, d.digest] for name, d in digests.items()})
    (item / SHARDS.format(index)).write_text(text, encoding="utf-8")


def gather(root: Path, items: Iterable[str]) -> dict[str, FileDigest]:
    """Return the digests that were left in a draft, and remove them from it.

    Args:
        root: The draft.
        items: Names of items; one that is not in the draft is passed over.

    Returns:
        Path in the draft to digest; nothing of an item whose files nobody digested.

    Raises:
        CheckpointError: One of several processes left none.
    """
    found: dict[str, FileDigest] = {}
    for item in items:
        if not (root / item).is_dir():
            continue
        for index in range(jax.process_count()):
            path = root / item / SHARDS.format(index)
            if path.exists():
                found |= {f"{item}/{name}": FileDigest(*value) for name, value in read_json(path).items()}
                path.unlink()
            elif jax.process_count() > 1:
                raise CheckpointError(f"process {index} left no digests of {item}")
    return found
