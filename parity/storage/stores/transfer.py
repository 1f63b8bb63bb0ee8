"""Files to objects and objects to files, by parallel parts in bounded memory; what arrives is digested on its way.

An object is read in ranges of `BLOCK` bytes, which is also the block of a digest: each thread reads one, digests it
and writes it to its place, so a file is verified when its last block has come, without being read again. A file may
lie there in several objects, its pieces, cut between two blocks: what several processes have sent of it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import xxhash

from parity.errors import StoreError
from parity.storage.atomic import named
from parity.storage.digests import BLOCK, FileDigest, join_blocks
from parity.storage.stores.objects import Objects
from parity.storage.stores.problems import translated
from parity.storage.untrusted import open_regular

__all__ = ["MOST_BYTES_IN_MEMORY", "Pieces", "digest_objects", "download", "part_size", "upload", "upload_range"]

READERS = 4
"""Ranges that are on their way at once."""
WRITERS = 4
"""Parts that are on their way at once; each file is sent in parts of `BLOCK`."""
MOST_PARTS = 10_000
"""Parts that S3 takes of one object: beyond 80 GB they are larger than a block, and memory grows with them."""

Pieces = Mapping[str, Sequence[tuple[str, int]]]
"""Key to the objects that hold its bytes, in order, and the bytes of each: whole blocks, but for the last."""

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
                chunk_size=part_size(size),
                max_concurrency=WRITERS,
            )
        _require_size(store, key, size)


def upload_range(store: Objects, key: str, path: Path, start: int, size: int) -> list[bytes]:
    """Write a range of a file as an object, which has all of it or does not exist.

    Args:
        store: Where to.
        key: The object.
        path: The file.
        start: First byte, the beginning of a block.
        size: Bytes of the range.

    Returns:
        The digest of each block, of the bytes that were sent.

    Raises:
        StoreError: The store refused or was not reached, or the object has another size.
        OSError: The file cannot be read, or ends before.
    """
    import obstore

    digests: list[bytes] = []
    with named(path, "read"):
        handle = open_regular(path)
        try:
            if os.fstat(handle).st_size < start + size:
                raise OSError(f"{path} ends before byte {start + size}")

            def blocks() -> Iterator[bytes]:
                for at in range(start, start + size, BLOCK):
                    data = os.pread(handle, min(BLOCK, start + size - at), at)
                    digests.append(xxhash.xxh3_128_digest(data))
                    yield data

            with translated(store.url / key, "write"):
                if size <= BLOCK:
                    obstore.put(store.raw, store.path(key), b"".join(blocks()), use_multipart=False)
                else:
                    obstore.put(
                        store.raw,
                        store.path(key),
                        blocks(),
                        use_multipart=True,
                        chunk_size=part_size(size),
                        max_concurrency=WRITERS,
                    )
        finally:
            os.close(handle)
    _require_size(store, key, size)
    return digests


def part_size(size: int) -> int:
    """Return the bytes of each part of an object: a block, or what a store needs that takes so many parts at most.

    Example:
        >>> part_size(1 << 30) == BLOCK, part_size(100_000_000_000) >> 20
        (True, 10)
    """
    return max(BLOCK, -(-size // (MOST_PARTS << 20)) << 20)


def _require_size(store: Objects, key: str, size: int) -> None:
    if (found := store.look(key).size) != size:
        raise StoreError(store.url / key, f"has {found} bytes after {size} were written", transient=True)


def download(
    store: Objects, sizes: Mapping[str, int], root: Path, pieces: Pieces | None = None
) -> dict[str, FileDigest]:
    """Read objects into new files below a directory, and return the digests of what arrived.

    Args:
        store: Where from.
        sizes: Key to the bytes that the object must have; it is also the path of the file.
        root: The directory, which exists.
        pieces: Of those keys whose bytes lie in other objects.

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

        return _read(store, sizes, keep, pieces or {})
    finally:
        for handle in handles.values():
            os.close(handle)


def digest_objects(store: Objects, sizes: Mapping[str, int], pieces: Pieces | None = None) -> dict[str, FileDigest]:
    """Return the digests of objects; every byte of them is read, and none is kept.

    Args:
        store: Where they are.
        sizes: Key to the bytes of the object.
        pieces: Of those keys whose bytes lie in other objects.

    Raises:
        StoreMissingError: An object is not there.
        StoreError: One has fewer bytes, or the store refused or was not reached.
    """
    return _read(store, sizes, lambda key, start, data: None, pieces or {})


def _read(
    store: Objects, sizes: Mapping[str, int], keep: Callable[[str, int, memoryview], None], pieces: Pieces
) -> dict[str, FileDigest]:
    tasks = [(key, start) for key, size in sizes.items() for start in range(0, size, BLOCK)]
    cut: dict[str, dict[int, tuple[str, int]]] = {key: {} for key in pieces}
    for key, held in pieces.items():
        begin = 0
        for name, size in held:
            cut[key] |= {at: (name, at - begin) for at in range(begin, begin + size, BLOCK)}
            begin += size

    def block(task: tuple[str, int]) -> bytes:
        key, start = task
        name, at = cut[key][start] if key in cut else (key, start)
        data = store.read_range(name, at, min(BLOCK, sizes[key] - start))
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
