"""The tree of an OCDBT store, as Orbax writes one per item: where every value lies, and that it lies inside.

A node or a value is named by a data file's path. TensorStore 0.1.86 refuses one that leads outside by its text, and
follows one that does by a link; neither is left to it: the whole tree is walked before anything is restored from it.

Source: TensorStore 0.1.86, `tensorstore.ocdbt.dump`.
"""

from __future__ import annotations

import json
import math
import re
import urllib.parse
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath

import numpy as np
import tensorstore as ts

from jax_side.formats.zarr import NAMED, ZARR2
from parity.checkpoints import ByteRange
from parity.contract import read_text
from parity.errors import CheckpointError
from parity.storage import digest_range

__all__ = ["MANIFEST", "Range", "locate", "places"]

MANIFEST = "manifest.ocdbt"
"""The file that makes a directory a store."""

MAX_METADATA = 64 << 10
"""Longest `.zarray` in bytes; a real one has about 170."""

TYPES = {ZARR2.get(name, name): np.dtype(name).itemsize for name in (*ZARR2, *NAMED)}
"""Types of arrays, by their names in zarr, to bytes per element."""

MAX_NODES = 100_000
"""Nodes walked at most; one holds thousands of arrays."""

_LOCATION = re.compile(r"(btreenode|value|versionnode):([^:]*):([^:]*):([0-9]{1,18}):([0-9]{1,18})")


@dataclass(frozen=True)
class Range:
    """Bytes of a file below the store."""

    file: str
    start: int
    size: int
    whole: bool = False
    """It holds the bytes of one array as they are in memory, all of them and nothing else."""


def locate(store: Path) -> dict[str, list[Range]]:
    """Return, for every array of a store, what must be read to restore it, and check its size.

    Args:
        store: Directory of an item, with `manifest.ocdbt`.

    Returns:
        Array name (`layers.0.kernel.value`) to the ranges of its values, and of the nodes that name or hold them.

    Raises:
        CheckpointError: It is no store, is damaged, points to a file outside of itself, or has an array that is
            compressed, in another order, or of more elements than it has bytes for.
    """
    if not (store / MANIFEST).is_file():
        raise CheckpointError(f"{store} holds no {MANIFEST}; only OCDBT stores are read")
    try:
        return _walk(store)
    except CheckpointError:
        raise
    except Exception as error:  # TensorStore raises ValueError, KeyError and OSError alike for a damaged store
        raise CheckpointError(f"{store} is no readable OCDBT store: {error}") from error


def places(
    root: Path, items: Iterable[str], names: Mapping[str, tuple[str, str]], leaves: Mapping[str, str]
) -> dict[str, tuple[ByteRange, ...]]:
    """Return where the bytes of each leaf lie in the store of its item, for the seal.

    An array that is one value of the store lies there as it is in memory, so the leaf's digest decides on its range;
    but for a counter, which has another type there than its leaf.

    Args:
        root: The checkpoint, or its draft.
        items: Items that are stores; the empty name stands for the checkpoint itself.
        names: Neutral leaf to item and array name.
        leaves: Neutral leaf to `type digest`, in the order the arrays have in memory.
    """
    stores = {item: locate(root / item) for item in items if (root / item / MANIFEST).exists()}
    known: dict[tuple[str, Range], ByteRange] = {}
    found: dict[str, tuple[ByteRange, ...]] = {}
    for leaf, (item, name) in names.items():
        for r in stores.get(item, {}).get(name, ()):
            if (item, r) not in known:  # a node of the tree holds many leaves
                own = r.whole and r.size == _size(leaves[leaf])
                digest = None if own else digest_range(root / item / r.file, r.start, r.size)
                known[item, r] = ByteRange(f"{item}/{r.file}" if item else r.file, r.start, r.size, digest)
            found[leaf] = (*found.get(leaf, ()), known[item, r])
    return found


def _size(text: str) -> int:
    """Return the bytes of an array with this text; -1 for what is no array."""
    array = read_text(text)
    return -1 if array is None else math.prod(array.shape) * np.dtype(array.dtype).itemsize


def _walk(store: Path) -> dict[str, list[Range]]:
    base = ts.KvStore.open({"driver": "file", "path": f"{store.resolve()}/"}).result()
    manifest = ts.ocdbt.dump(base).result()
    for part in (*manifest["version_tree_nodes"], *(version["root"] for version in manifest["versions"])):
        if "location" in part:
            _range(store, part["location"])  # older versions are not read; they may not point outside either
    found: dict[str, list[Range]] = {}
    chunks: dict[str, list[int]] = {}
    metadata: dict[str, bytes] = {}
    root = manifest["versions"][-1]["root"].get("location")
    waiting, seen = [root] if root else [], {root}
    while waiting:
        location = waiting.pop()
        node = _range(store, location)
        for entry in ts.ocdbt.dump(base, location).result()["entries"]:
            if "location" in entry:
                if entry["location"] in seen or len(seen) >= MAX_NODES:
                    raise CheckpointError(f"{store}: its tree has a cycle, or more than {MAX_NODES} nodes")
                seen.add(entry["location"])
                waiting.append(entry["location"])
                continue
            name, _, part = entry["key"].decode("utf-8").rpartition("/")
            ranges = found.setdefault(name, [])
            if node not in ranges:
                ranges.append(node)
            value = _range(store, entry["indirect_value"]) if "indirect_value" in entry else None
            size = len(entry["inline_value"]) if value is None else value.size
            if part != ".zarray":
                chunks.setdefault(name, []).append(size)
                value = value and replace(value, whole=True)
            elif size > MAX_METADATA:
                raise CheckpointError(f"{store}: the description of {name!r} has {size} bytes")
            elif value is None:
                metadata[name] = entry["inline_value"]
            else:
                metadata[name] = bytes(ts.ocdbt.dump(base, entry["indirect_value"]).result())
            if value is not None:
                ranges.append(value)
    for name in found:
        if not _check_array(store, name, metadata.get(name), chunks.get(name, [])):
            found[name] = [replace(r, whole=False) for r in found[name]]
    return found


def _check_array(store: Path, name: str, metadata: bytes | None, chunks: list[int]) -> bool:
    """Return whether an array is one chunk.

    Raises:
        CheckpointError: It is compressed or in another order, so its size in memory cannot be bounded in advance; or
            it does not have the bytes for its shape.
    """
    array = json.loads(metadata or b"null")
    try:
        kept = (array["compressor"], array["filters"], array["order"]) == (None, None, "C")
        kept &= array.get("dimension_separator", ".") == "."
        shape, chunk = [[int(n) for n in array[key]] for key in ("shape", "chunks")]
        item = TYPES[array["dtype"]]
    except (KeyError, TypeError, ValueError) as error:
        raise CheckpointError(f"{store}: the description of {name!r} is none of ours ({error!r})") from error
    if not kept or min([*shape, 0]) < 0 or min([*chunk, 1]) < 1:
        raise CheckpointError(f"{store}: {name!r} is compressed, not in C order, or its chunks have other names")
    if set(chunks) - {item * math.prod(chunk)} or item * math.prod(shape) > sum(chunks):
        raise CheckpointError(f"{store}: {name!r} of shape {shape} does not have the bytes for it")
    return len(chunks) == 1 and shape == chunk


def _range(store: Path, location: str) -> Range:
    """Parse `<type>:<folder>:<file>:<offset>:<length>` and refuse a file outside the store, or a link to one."""
    match = _LOCATION.fullmatch(location)
    if match is None:
        raise CheckpointError(f"{store}: {location!r} is no location")
    _, folder, file, start, size = match.groups()
    name = urllib.parse.unquote(folder) + urllib.parse.unquote(file)
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts or "\0" in name or "\\" in name:
        raise CheckpointError(f"{store}: points to {name!r}, outside of itself")
    target = store / path
    if not target.is_file() or not target.resolve().is_relative_to(store.resolve()):
        raise CheckpointError(f"{store}: points to {name!r}, which is no file inside of it")
    return Range(str(path), int(start), int(size))
