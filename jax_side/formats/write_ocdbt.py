"""An OCDBT store that is written at once: the arrays as they lie in memory, and one node that names them.

TensorStore writes stores too, in threads of its own, which keep the priority of the first save of a process, and each
array of a tree by itself. What a process has copied to the host is written here by the calling thread, at its
priority, and digested on the way, as PyTorch's archives are. TensorStore reads the result, and writes its manifest.

Source: the storage format of OCDBT as TensorStore 0.1.86 reads it: a manifest, which names the root of a B-tree, and
data files, which hold the nodes and the values.
"""

from __future__ import annotations

import os
import secrets
import struct
import time
from collections.abc import Iterable, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import tensorstore as ts
from crc32c import crc32c
from numpy.typing import NDArray

from jax_side.formats.ocdbt import MANIFEST
from jax_side.formats.zarr import describe_array
from parity.storage import DigestWriter, FileDigest, named

__all__ = ["write_store"]

CONFIG = {"compression": None, "max_decoded_node_bytes": 100_000_000, "max_inline_value_bytes": 1024}
"""Of a store, as Orbax has it; nodes are not compressed."""

NODE = 0x0CDB20DE
"""The first four bytes of a node."""


def write_store(store: Path, arrays: Mapping[str, NDArray[Any]]) -> dict[str, FileDigest]:
    """Write arrays as a store; it is on its way to the disk, and not synchronized.

    Args:
        store: A directory that exists and holds no store.
        arrays: Name to array, each of at least one element; nobody may change them before this returns.

    Returns:
        The digest of the data file, by its path below the directory. The manifest is too small to digest on the way.

    Raises:
        OSError: The disk is full, or failed.
    """
    name = f"d/{secrets.token_hex(16)}"
    places: dict[bytes, tuple[int, int]] = {}
    (store / "d").mkdir()
    with named(store / name), (store / name).open("xb", buffering=0) as raw:
        file, at = DigestWriter(raw), 0
        for key, array in arrays.items():
            chunk = ".".join("0" for _ in array.shape) or "0"
            size = file.write(memoryview(np.ascontiguousarray(array).reshape(-1).view("u1")))
            places[f"{key}/{chunk}".encode()] = at, size
            at += size
        texts = {key: describe_array(array.shape, array.shape, array.dtype.name) for key, array in arrays.items()}
        described = {f"{key}/.zarray".encode(): text.encode() for key, text in texts.items()}
        node = _leaf_node(name.encode(), places, described)
        file.write(node)
    statistics = {"num_indirect_value_bytes": at, "num_keys": 2 * len(arrays), "num_tree_bytes": len(node)}
    (store / MANIFEST).write_bytes(_manifest(f"btreenode::{name}:{at}:{len(node)}", statistics))
    return {name: file.result()}


def _leaf_node(file: bytes, places: Mapping[bytes, tuple[int, int]], inline: Mapping[bytes, bytes]) -> bytes:
    """Return the only node of a tree: sorted keys, and of each its value, or where that lies in a file.

    Args:
        file: Name of the data file.
        places: Key to offset and size of its value.
        inline: Key to the value itself.
    """
    keys = sorted([*places, *inline])
    shared = [0, *(len(os.path.commonprefix([one, other])) for one, other in pairwise(keys))]  # noqa: RUF071 (bytes, not paths)
    suffixes = [key[n:] for key, n in zip(keys, shared, strict=True)]
    apart = [places[key] for key in keys if key in places]
    body = b"".join(
        [
            _numbers([0, 0]),  # version; no compression
            _numbers([0, 1, len(file), 0]),  # height; one file, the length of its name, none of it a base path
            file,
            _numbers([len(keys), *shared[1:], *map(len, suffixes)]),
            *suffixes,
            _numbers(places[key][1] if key in places else len(inline[key]) for key in keys),
            _numbers(int(key in places) for key in keys),
            _numbers(0 for _ in apart),  # number of the file
            _numbers(start for start, _ in apart),
            *(inline[key] for key in keys if key in inline),
        ]
    )
    head = struct.pack(">I", NODE) + struct.pack("<Q", len(body) + 16)
    return head + body + struct.pack("<I", crc32c(head + body))


def _numbers(values: Iterable[int]) -> bytes:
    """Return numbers as the format has them: seven bits to a byte, the lowest first.

    Example:
        >>> _numbers([5, 300]).hex(" ")
        '05 ac 02'
    """
    out = bytearray()
    for value in values:
        while value > 127:
            out.append(value & 127 | 128)
            value >>= 7
        out.append(value)
    return bytes(out)


def _manifest(root: str, statistics: Mapping[str, int]) -> bytes:
    """Return the manifest of a store of one version."""
    version = {
        "generation_number": 1,
        "commit_time": time.time_ns(),
        "root": {"location": root, "statistics": statistics},
        "root_height": 0,
    }
    config = {**CONFIG, "uuid": secrets.token_hex(16), "version_tree_arity_log2": 4}
    manifest: bytes = ts.ocdbt.undump_manifest({"config": config, "versions": [version], "version_tree_nodes": []})
    return manifest
