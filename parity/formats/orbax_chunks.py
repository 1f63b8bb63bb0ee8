"""What a store of an Orbax item holds, and whether every chunk of an array is there: looked up, not read.

TensorStore takes a chunk that is not there for one full of zeros. Orbax writes every chunk, and says so in its
description, so that there a chunk without bytes is a loss, and the array must not be read.

Source: the zarr specifications, versions 2 and 3 (chunk keys); TensorStore 0.1.86, `tensorstore.ocdbt.dump`.
"""

from __future__ import annotations

import math
import os
import re
import urllib.parse
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

from parity.errors import CheckpointError
from parity.formats.raw_chunks import chunk_name

__all__ = ["Grid", "check_chunks", "files_of", "values_of"]

MOST_NODES = 1_000_000
_LOCATION = re.compile(r"(?:btreenode|value|versionnode):([^:]*):([^:]*):([0-9]{1,18}):([0-9]{1,18})")

MOST_HOLES = 1_000_000
"""Most chunks that may be left out of an array, where chunks of zeros are."""

MOST_RATIO = 1 << 16
"""Bytes that one byte of a compressed chunk can become: zstd writes 128 KiB of one value in 4 bytes."""


@dataclass(frozen=True)
class Grid:
    """The chunks of an array."""

    shape: Sequence[int]
    chunk: Sequence[int]
    """Shape of what has a key of its own: a chunk, or a shard of chunks."""
    key: Callable[[Sequence[int]], str] = chunk_name
    """Takes a place in the grid, and returns the key of the chunk."""
    itemsize: int = 1
    plain: bool = False
    """Whether a chunk is the bytes of its elements, not compressed."""

    @property
    def count(self) -> int:
        """Return the number of chunks."""
        return math.prod(-(-n // c) for n, c in zip(self.shape, self.chunk, strict=True))

    @property
    def nbytes(self) -> int:
        """Return the bytes of the elements of one chunk."""
        return math.prod(self.chunk) * self.itemsize

    def __iter__(self) -> Iterator[str]:
        """Yield the key of each chunk."""
        yield from map(self.key, product(*(range(-(-n // c)) for n, c in zip(self.shape, self.chunk, strict=True))))


def check_chunks(where: str, name: str, grid: Grid, stored: Mapping[str, int], *, complete: bool) -> int:
    """Check the chunks of one array against what is stored; return how many are not.

    Args:
        where: The item, for messages.
        name: The array.
        grid: Its chunks.
        stored: Key to bytes of all that the store holds.
        complete: Whether every chunk was written.

    Raises:
        CheckpointError: A chunk is missing and was written, or has not the bytes for its elements.
    """
    if not math.prod(grid.shape):
        return 0
    if not complete and grid.count > len(stored) + MOST_HOLES:
        raise CheckpointError(f"{where}: {name} has {grid.count:,} chunks, and {len(stored):,} values are stored")
    missing = 0
    for key in grid:
        size = stored.get(f"{name}/{key}")
        if size is not None:
            _check_size(where, f"{name}/{key}", grid, size)
        elif complete:
            raise CheckpointError(f"{where}: {name}/{key} is missing: a chunk of the array {name}")
        else:
            missing += 1
    return missing


def _check_size(where: str, key: str, grid: Grid, size: int) -> None:
    if grid.plain and size != grid.nbytes:
        raise CheckpointError(f"{where}: {key} has {size:,} bytes, expected {grid.nbytes:,}")
    if grid.nbytes > (size + 1) * MOST_RATIO:
        raise CheckpointError(
            f"{where}: {key} has {size:,} bytes, and its chunk would be {grid.nbytes:,}: no compression does that"
        )


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


def values_of(tensorstore: Any, root: Path, files: Mapping[str, int]) -> dict[str, int]:
    """Return the keys of an OCDBT store with the sizes of their values; no value is read.

    Args:
        tensorstore: The module.
        root: Directory of the store.
        files: What `files_of` returned for it.

    Raises:
        CheckpointError: A node or a value lies in a file that is missing, too short, or outside.
    """
    base = tensorstore.KvStore.open({"driver": "file", "path": f"{root.resolve()}/"}).result()
    top = tensorstore.ocdbt.dump(base).result()["versions"][-1]["root"].get("location")
    found: dict[str, int] = {}
    waiting, seen = [("", top)] if top else [], {top}
    while waiting:
        prefix, location = waiting.pop()
        _check_place(root, location, files)
        for entry in tensorstore.ocdbt.dump(base, location).result()["entries"]:
            key = entry["key"].decode()
            if "location" in entry:
                if entry["location"] in seen or len(seen) >= MOST_NODES:
                    raise CheckpointError(f"{root}: its tree has a cycle, or more than {MOST_NODES:,} nodes")
                seen.add(entry["location"])
                shared = entry.get("subtree_common_prefix", b"")  # keys below begin behind it
                waiting.append((prefix + shared.decode(), entry["location"]))
            elif "indirect_value" in entry:
                found[prefix + key] = _check_place(root, entry["indirect_value"], files)
            else:
                found[prefix + key] = len(entry["inline_value"])
    return found


def _check_place(root: Path, location: str, files: Mapping[str, int]) -> int:
    """Return the bytes of a location, which lie within a file of the store."""
    match = _LOCATION.fullmatch(location)
    if match is None:
        raise CheckpointError(f"{root}: {location!r:.80} is no location")
    folder, name, start, size = match.groups()
    file = urllib.parse.unquote(folder) + urllib.parse.unquote(name)
    held = files.get(file)
    if held is None:
        raise CheckpointError(f"{root}: the file {file!r:.200} is missing, in which chunks lie")
    if int(start) + int(size) > held:
        raise CheckpointError(
            f"{root / file} is truncated: it has {held:,} bytes, and a value ends at {start}+{size}"
        )
    return int(size)
