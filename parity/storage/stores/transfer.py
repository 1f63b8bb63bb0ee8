"""Files to objects and objects to files, by parallel parts in bounded memory; what arrives is digested on its way.

An object is read in ranges of `BLOCK` bytes, which is also the block of a digest: each thread reads one, digests it
and writes it to its place, so a file is verified when its last block has come, without being read again.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import xxhash

from parity.errors import StoreError
from parity.storage.atomic import named
from parity.storage.digests import BLOCK, FileDigest, join_blocks
from parity.storage.stores.objects import Objects
from parity.storage.stores.problems import translated

__all__ = ["MOST_BYTES_IN_MEMORY", "digest_objects", "download", "upload"]

READERS = 4
"""Ranges that are on their way at once."""
WRITERS = 4
"""Parts that are on their way at once; each file is sent in parts of `BLOCK`."""

MOST_BYTES_IN_MEMORY = 2 * max(READERS, WRITERS) * BLOCK
"""Bound of the bytes that a transfer holds: each part once, and once more where the client copies it."""


def upload(store: Objects, files: Mapping[str, Path], go_on: Callable[[], None]) -> None:
    """Write files as objects; one object has all of its file or does not exist.

    Args:
        store: Where to.
        files: Key to the file.
        go_on: Called before each file; what it raises ends the upload.

    Raises:
        StoreError: The store refused or was not reached, or an object has another size than its file.
        OSError: A file cannot be read.
    """
    import obstore

    for key, path in files.items():
        go_on()
        with named(path, "read"):
            size = path.stat().st_size
            with path.open("rb"):  # what cannot be read is the disk's fault, and not the store's
                pass
        with translated(store.url / key, "write"):
            obstore.put(
                store.raw,
                store.path(key),
                path,
                use_multipart=size > BLOCK,
                chunk_size=BLOCK,
                max_concurrency=WRITERS,
            )
        if (found := store.look(key).size) != size:
            raise StoreError(store.url / key, f"has {found} bytes after {size} were written", transient=True)


def download(store: Objects, sizes: Mapping[str, int], root: Path) -> dict[str, FileDigest]:
    """Read objects into new files below a directory, and return the digests of what arrived.

    Args:
        store: Where from.
        sizes: Key to the bytes that the object must have; it is also the path of the file.
        root: The directory, which exists.

    Raises:
        StoreMissingError: An object is not there.
        StoreError: One has fewer bytes, or its key is no path below the directory; or the store refused or was not
            reached.
        OSError: A file cannot be written.
    """
    handles: dict[str, int] = {}
    try:
        for key, size in sizes.items():
            if {"", ".", ".."} & set(key.split("/")) or not key.isprintable():
                raise StoreError(store.url, f"{key[:80]!a} is no name that a checkpoint's file has")
            path = root / key
            path.parent.mkdir(parents=True, exist_ok=True)
            with named(path, "write"):
                handles[key] = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
                os.truncate(handles[key], size)

        def keep(key: str, start: int, data: memoryview) -> None:
            with named(root / key, "write"):
                while data:
                    count = os.pwrite(handles[key], data, start)
                    data, start = data[count:], start + count

        return _read(store, sizes, keep)
    finally:
        for handle in handles.values():
            os.close(handle)


def digest_objects(store: Objects, sizes: Mapping[str, int]) -> dict[str, FileDigest]:
    """Return the digests of objects; every byte of them is read, and none is kept.

    Args:
        store: Where they are.
        sizes: Key to the bytes of the object.

    Raises:
        StoreMissingError: An object is not there.
        StoreError: One has fewer bytes, or the store refused or was not reached.
    """
    return _read(store, sizes, lambda key, start, data: None)


def _read(
    store: Objects, sizes: Mapping[str, int], keep: Callable[[str, int, memoryview], None]
) -> dict[str, FileDigest]:
    tasks = [(key, start) for key, size in sizes.items() for start in range(0, size, BLOCK)]

    def block(task: tuple[str, int]) -> bytes:
        key, start = task
        data = store.read_range(key, start, min(BLOCK, sizes[key] - start))
        keep(key, start, data)
        return xxhash.xxh3_128_digest(data)

    blocks: dict[str, list[bytes]] = {key: [] for key in sizes}
    with ThreadPoolExecutor(READERS) as pool:
        try:
            for (key, _), digest in zip(tasks, pool.map(block, tasks), strict=True):
                blocks[key].append(digest)
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise
    return {key: FileDigest(size, join_blocks(blocks[key])) for key, size in sizes.items()}
