"""Orbax's handler of trees, which digests what each of several processes writes."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import jax
import orbax.checkpoint as ocp

from jax_side.formats.ocdbt import MANIFEST
from jax_side.formats.transaction import is_on_host, write_tree
from parity import storage
from parity.errors import CheckpointError
from parity.storage import FileDigest, digest_files, list_files, read_json

__all__ = ["DigestingHandler", "gather"]

SHARDS = "digests.process_{}.json"
"""File in the draft of an item: the digests that a process made of its own files. Process 0 removes it again."""


class DigestingHandler(ocp.PyTreeCheckpointHandler):
    """Orbax's handler; of several processes, each digests the files it wrote, right after writing them.

    It is registered with no class of arguments: Orbax allows one handler of a name, and this one has Orbax's own.
    """

    @classmethod
    def typestr(cls) -> str:
        """Return the name of Orbax's own handler, which a checkpoint records: so Orbax alone can restore it."""
        return str(ocp.PyTreeCheckpointHandler.typestr())

    async def async_save(self, directory: Any, *args: Any, **kwargs: Any) -> Any:
        """Save as Orbax does, and digest in the background; arrays on the host in one transaction."""
        if jax.process_count() == 1 and is_on_host(kwargs["args"].item):
            return [_OneTransaction(Path(directory), kwargs["args"])]
        futures = await super().async_save(directory, *args, **kwargs)
        return futures if jax.process_count() == 1 else [*(futures or []), _OwnDigests(futures or [], directory)]

    def finalize(self, directory: Any) -> None:
        """Merge what the processes wrote, where they did: a transaction leaves nothing to merge."""
        if not (Path(directory) / MANIFEST).is_file():
            super().finalize(directory)


class _OneTransaction:
    """A future that writes the arrays of an item when it is waited for: Orbax does so in the background."""

    def __init__(self, directory: Path, args: ocp.args.PyTreeSave) -> None:
        self._directory, self._args = directory, args

    def result(self, timeout: float | None = None) -> None:
        """Write, after the futures before this one: they make the directory."""
        del timeout
        write_tree(self._directory, self._args.item, self._args.custom_metadata)


class _OwnDigests:
    """A future that is done when the digests of this process's files are on disk."""

    def __init__(self, writing: Iterable[Any], directory: Any) -> None:
        self._writing, self._directory = list(writing), directory

    def result(self, timeout: float | None = None) -> None:
        """Wait for the writes, then digest."""
        for future in self._writing:
            future.result(timeout=timeout)
        item = Path(getattr(self._directory, "path", self._directory))
        index = jax.process_index()
        own = [name for name in list_files(item) if name.startswith(f"ocdbt.process_{index}/")]
        found = {name: [d.size, d.digest] for name, d in digest_files(item, own).items()}
        storage.write_file(item / SHARDS.format(index), json.dumps(found))


def gather(root: Path, items: Iterable[str]) -> dict[str, FileDigest]:
    """Return the digests that the processes left in a draft, and remove them from it; none of a single process.

    Raises:
        CheckpointError: A process left none.
    """
    found: dict[str, FileDigest] = {}
    if jax.process_count() == 1:
        return found
    for item in items:
        if not (root / item).is_dir():
            continue
        for index in range(jax.process_count()):
            path = root / item / SHARDS.format(index)
            if not path.exists():
                raise CheckpointError(f"process {index} left no digests of {item}")
            found |= {f"{item}/{name}": FileDigest(*value) for name, value in read_json(path).items()}
            path.unlink()
    return found
