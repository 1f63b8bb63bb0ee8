"""The tree of an OCDBT store, as Orbax writes one per item: where every value lies, and that it lies inside.

The whole tree is walked before anything is restored from it, by the walk of `parity.formats`.

Source: TensorStore 0.1.86, `tensorstore.ocdbt.dump`.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

import numpy as np
import tensorstore as ts

from jax_side.formats.zarr import NAMED, ZARR2
from parity.checkpoints import ByteRange
from parity.errors import CheckpointError
from parity.formats import StorePlace, files_of, place_of, stored_values
from parity.state import read_text
from parity.storage import digest_range

__all__ = ["MANIFEST", "Range", "locate", "places"]

MANIFEST = "manifest.ocdbt"
"""The file that makes a directory a store."""

MAX_METADATA = 64 << 10
"""Longest `.zarray` in bytes; a real one has about 170."""

TYPES = {ZARR2.get(name, name): np.dtype(name).itemsize for name in (*ZARR2, *NAMED)}
"""Types of arrays, by their names in zarr, to bytes per element."""


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
    path_of = lru_cache(256)(lambda item, file: root / item / file)  # the files are few, the ranges many
    found: dict[str, tuple[ByteRange, ...]] = {}
    for leaf, (item, name) in names.items():
        for r in stores.get(item, {}).get(name, ()):
            if (item, r) not in known:  # a node of the tree holds many leaves
                own = r.whole and r.size == _size(leaves[leaf])
                digest = None if own else digest_range(path_of(item, r.file), r.start, r.size)
                known[item, r] = ByteRange(f"{item}/{r.file}" if item else r.file, r.start, r.size, digest)
            found[leaf] = (*found.get(leaf, ()), known[item, r])
    return found


def _size(text: str) -> int:
    """Return the bytes of an array with this text; -1 for what is no array."""
    array = read_text(text)
    return -1 if array is None else math.prod(array.shape) * np.dtype(array.dtype).itemsize


def _walk(store: Path) -> dict[str, list[Range]]:
    base = ts.KvStore.open({"driver": "file", "path": f"{store.resolve()}/"}).result()
    files = files_of(store)
    manifest = ts.ocdbt.dump(base).result()
    for part in (*manifest["version_tree_nodes"], *(version["root"] for version in manifest["versions"])):
        if "location" in part:
            place_of(store, part["location"], files)  # older versions are not read; they may not point outside either
    found: dict[str, dict[Range, None]] = {}
    chunks: dict[str, list[int]] = {}
    metadata: dict[str, bytes] = {}
    apart: dict[str, StorePlace] = {}
    for one in stored_values(ts, store, files):
        name, _, part = one.key.rpartition("/")
        ranges = found.setdefault(name, {})
        ranges.update((Range(*node), None) for node in one.nodes)
        value = Range(*one.value) if isinstance(one.value, StorePlace) else None
        if part != ".zarray":
            chunks.setdefault(name, []).append(one.size)
            value = value and replace(value, whole=True)
        elif one.size > MAX_METADATA:
            raise CheckpointError(f"{store}: the description of {name!r} has {one.size} bytes")
        elif isinstance(one.value, bytes):
            metadata[name] = one.value
        else:
            apart[name] = one.value
        if value is not None:
            ranges[value] = None
    metadata |= _read(store, apart)
    made: dict[str, list[Range]] = {}
    for name, ranges in found.items():
        alone = _check_array(store, name, metadata.get(name), chunks.get(name, []))
        made[name] = [r if alone else replace(r, whole=False) for r in ranges]
    return made


def _read(store: Path, places: Mapping[str, StorePlace]) -> dict[str, bytes]:
    """Read values, each file of which is opened once."""
    with ExitStack() as stack:
        names = {place.file for place in places.values()}
        files = {name: stack.enter_context((store / name).open("rb")) for name in names}
        return {key: os.pread(files[at.file].fileno(), at.size, at.start) for key, at in places.items()}


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
        raise CheckpointError(f"{store}: the description of {name!r} is not ours ({error!r})") from error
    if not kept or min([*shape, 0]) < 0 or min([*chunk, 1]) < 1:
        raise CheckpointError(f"{store}: {name!r} is compressed, not in C order, or its chunks have other names")
    if set(chunks) - {item * math.prod(chunk)} or item * math.prod(shape) > sum(chunks):
        raise CheckpointError(f"{store}: {name!r} of shape {shape} does not have the bytes for it")
    return len(chunks) == 1 and shape == chunk
