"""The tree of an OCDBT store: every key, where its value lies, and the nodes that lead there; no value is read.

A node or a value is named by a data file's path. TensorStore refuses one that leads outside by its text, and follows
one that does by a link; neither is left to it: each place is looked up among the files of the store.

Source: TensorStore 0.1.86, `tensorstore.ocdbt.dump`: the keys of a node lack the prefix that all keys below it have
(`subtree_common_prefix` of the entry that names it).
"""

from __future__ import annotations

import os
import re
import urllib.parse
from collections.abc import Iterator, Mapping
from functools import lru_cache
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

from parity.errors import CheckpointError

__all__ = ["StorePlace", "StoredValue", "files_of", "place_of", "stored_values"]

MOST_NODES = 1_000_000
_LOCATION = re.compile(r"(?:btreenode|value|versionnode):([^:]*):([^:]*):([0-9]{1,18}):([0-9]{1,18})")


class StorePlace(NamedTuple):
    """Bytes of a file of a store."""

    file: str
    """Its path below the store."""
    start: int
    size: int


class StoredValue(NamedTuple):
    """A key of a store."""

    key: str
    value: StorePlace | bytes
    """Where its value lies; the value itself, if its node holds it."""
    nodes: tuple[StorePlace, ...]
    """The nodes that lead to it, from the root on."""

    @property
    def size(self) -> int:
        """Return the bytes of its value."""
        return self.value.size if isinstance(self.value, StorePlace) else len(self.value)


def files_of(root: Path) -> dict[str, int]:
    """Return the files below a directory, by their paths in it, with their sizes.

    Raises:
        CheckpointError: There is a link: TensorStore would follow one to a file outside of it.
    """
    found: dict[str, int] = {}
    waiting = [("", os.fspath(root))]
    while waiting:
        prefix, folder = waiting.pop()
        with os.scandir(folder) as entries:
            for entry in entries:
                if entry.is_symlink():
                    raise CheckpointError(f"{entry.path} is a link; a checkpoint of Orbax holds none")
                if entry.is_dir():
                    waiting.append((f"{prefix}{entry.name}/", entry.path))
                else:
                    found[prefix + entry.name] = entry.stat(follow_symlinks=False).st_size
    return found


def stored_values(tensorstore: Any, root: Path, files: Mapping[str, int]) -> Iterator[StoredValue]:
    """Yield every key of the newest version of a store; TensorStore's own errors come through.

    Args:
        tensorstore: The module.
        root: Directory of the store.
        files: What `files_of` returned for it.

    Raises:
        CheckpointError: A node or a value lies in a file that is missing, too short, or outside.
    """
    base = tensorstore.KvStore.open({"driver": "file", "path": f"{root.resolve()}/"}).result()
    top = tensorstore.ocdbt.dump(base).result()["versions"][-1]["root"].get("location")
    waiting: list[tuple[str, str, tuple[StorePlace, ...]]] = [("", top, ())] if top else []
    seen = {top}
    while waiting:
        prefix, location, above = waiting.pop()
        nodes = (*above, place_of(root, location, files))
        for entry in tensorstore.ocdbt.dump(base, location).result()["entries"]:
            if "location" in entry:
                if entry["location"] in seen or len(seen) >= MOST_NODES:
                    raise CheckpointError(f"{root}: its tree has a cycle, or more than {MOST_NODES:,} nodes")
                seen.add(entry["location"])
                shared = entry.get("subtree_common_prefix", b"")
                waiting.append((prefix + shared.decode(), entry["location"], nodes))
                continue
            apart = entry.get("indirect_value")
            value = entry["inline_value"] if apart is None else place_of(root, apart, files)
            yield StoredValue(prefix + entry["key"].decode(), value, nodes)


def place_of(root: Path, location: str, files: Mapping[str, int]) -> StorePlace:
    """Return the bytes of a location, `<type>:<folder>:<file>:<offset>:<length>`.

    Args:
        root: Directory of the store.
        location: As a manifest or a node has it.
        files: What `files_of` returned for the store.

    Raises:
        CheckpointError: It is no location, or those bytes do not lie within a file of the store.
    """
    match = _LOCATION.fullmatch(location)
    if match is None:
        raise CheckpointError(f"{root}: {location!r:.80} is no location")
    folder, name, start, size = match.groups()
    file = _unquoted(folder) + _unquoted(name)
    held = files.get(file)
    if held is None:
        path = PurePosixPath(file)
        if path.is_absolute() or ".." in path.parts or "\0" in file or "\\" in file:
            raise CheckpointError(f"{root}: points to {file!r:.200}, outside of itself")
        raise CheckpointError(f"{root}: the file {file!r:.200} is missing, in which chunks lie")
    if int(start) + int(size) > held:
        raise CheckpointError(
            f"{root / file} is truncated: it has {held:,} bytes, and a value ends at {start}+{size}"
        )
    return StorePlace(file, int(start), int(size))


_unquoted = lru_cache(256)(urllib.parse.unquote)
"""The names of files, which are few, as text."""
