"""Digests of files: XXH3-128 of XXH3-128s of blocks, so that several threads can share one file.

XXH3-128 finds every accident (a flipped bit, a torn write, a file of another step) at the speed of memory: 27 GB/s on
one core here, where BLAKE3 does 7 and would slow every save and verification down. It proves nothing against
somebody who rewrites the file and its digest together; no digest without a secret does.
"""

from __future__ import annotations

import os
import stat
import threading
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from io import UnsupportedOperation
from pathlib import Path
from typing import BinaryIO

import xxhash

from parity.errors import CheckpointError
from parity.storage.atomic import named
from parity.storage.parallel_read import THREADS, by_threads
from parity.storage.untrusted import open_regular
from parity.storage.write_back import WRITE_BYTES

__all__ = [
    "ALGORITHM",
    "BLOCK",
    "DigestWriter",
    "FileDigest",
    "digest_bytes",
    "digest_files",
    "digest_range",
    "join_blocks",
    "list_files",
]

ALGORITHM = "xxh3-128 of the xxh3-128 of every 8 MiB"
BLOCK = 8 << 20
_PIECE = 1 << 20
"""Bytes read at once: stays in the second-level cache between reading and digesting."""

SENT_BYTES = 32 << 20
"""Bytes after which the disk starts to write while more are digested."""

MAX_DEPTH = 16
MAX_FILES = 1_000_000
"""Limits of a directory: far above any real checkpoint, low enough that listing a hostile one ends."""


@dataclass(frozen=True)
class FileDigest:
    """Size in bytes and digest of a file; the digest is 32 hex digits."""

    size: int
    digest: str


def list_files(root: Path) -> dict[str, int]:
    """Return the regular files below a directory, relative POSIX path to size in bytes.

    Raises:
        CheckpointError: Something there is neither a regular file nor a directory (no link is followed), or
            the tree is deeper or larger than any checkpoint.
    """
    found: dict[str, int] = {}
    waiting = [("", 0)]
    while waiting:
        folder, depth = waiting.pop()
        try:
            entries = sorted(os.scandir(f"{root}/{folder}"), key=lambda e: e.name)
        except OSError as error:
            raise CheckpointError(f"{root / folder} cannot be listed: {error.strerror}") from error
        for entry in entries:
            name = f"{folder}{entry.name}"
            if not entry.name.isprintable():
                raise CheckpointError(f"{root}: {name!a} is no name that a checkpoint's file has")
            if entry.is_dir(follow_symlinks=False):
                if depth == MAX_DEPTH:
                    raise CheckpointError(f"{root}: {name} lies deeper than {MAX_DEPTH} folders")
                waiting.append((name + "/", depth + 1))
            elif entry.is_file(follow_symlinks=False):
                found[name] = entry.stat(follow_symlinks=False).st_size
            else:
                raise CheckpointError(f"{root}: {name} is a link or no regular file; a checkpoint holds neither")
        if len(found) > MAX_FILES:
            raise CheckpointError(f"{root} holds more than {MAX_FILES} files")
    return dict(sorted(found.items()))


def digest_files(root: Path, names: Iterable[str]) -> dict[str, FileDigest]:
    """Digest files below a directory, by as many threads as there are processors (at most 8).

    Args:
        root: The directory.
        names: Paths of the files, relative to it.

    Raises:
        OSError: A file cannot be read, or is a link.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as home:
        ...     _ = Path(home, "a.bin").write_bytes(b"0123")
        ...     print(digest_files(Path(home), ["a.bin"])["a.bin"].size)
        4
    """
    paths = {name: root / name for name in names}
    sizes = {name: _regular_size(path) for name, path in paths.items()}
    tasks = [(name, start) for name, size in sizes.items() for start in range(0, size, BLOCK)]
    buffers = threading.local()

    def block(task: tuple[str, int]) -> bytes:
        name, start = task
        if not hasattr(buffers, "piece"):
            buffers.piece = memoryview(bytearray(_PIECE))
        return _digest(paths[name], start, min(BLOCK, sizes[name] - start), buffers.piece)

    blocks = by_threads(block, tasks, 1 if sum(sizes.values()) < _PIECE else THREADS)
    joined: dict[str, list[bytes]] = {name: [] for name in sizes}
    for (name, _), digest in zip(tasks, blocks, strict=True):
        joined[name].append(digest)
    return {name: FileDigest(size, join_blocks(joined[name])) for name, size in sizes.items()}


def digest_bytes(data: bytes) -> FileDigest:
    """Return size and digest of what a file would have that holds these bytes."""
    blocks = [xxhash.xxh3_128_digest(data[start : start + BLOCK]) for start in range(0, len(data), BLOCK)]
    return FileDigest(len(data), join_blocks(blocks))


def digest_range(path: Path, start: int, size: int) -> str:
    """Return the XXH3-128 of a byte range, of what is there of it.

    Args:
        path: The file.
        start: Offset of the first byte.
        size: Bytes of the range; it may reach beyond the end of the file.

    Raises:
        OSError: The file cannot be read, or is a link.
    """
    return _digest(path, start, size, memoryview(bytearray(min(size, _PIECE)))).hex()


def _regular_size(path: Path) -> int:
    with named(path, "read"):
        status = os.lstat(path)
    if not stat.S_ISREG(status.st_mode):
        raise OSError(f"{path} is not a regular file")
    return status.st_size


class DigestWriter:
    """A binary file that digests what is written to it, in order, and is on its way to the disk before its fsync."""

    def __init__(self, file: BinaryIO) -> None:
        self._file, self._size, self._sent = file, 0, 0
        self._blocks: list[bytes] = []
        self._block = xxhash.xxh3_128()
        self.failure: OSError | None = None
        """What stopped a write; PyTorch's own error for it is `unexpected pos` and hides this one."""

    def write(self, data: bytes | memoryview) -> int:
        """Write all of the data and digest it, piece by piece: what was just written is still in the cache."""
        view = memoryview(data).cast("B")
        while view:
            room = min(_PIECE, BLOCK - self._size % BLOCK)
            part, view = view[:room], view[room:]
            self._write_all(part)
            self._block.update(part)
            self._size += len(part)
            if self._size - self._sent >= SENT_BYTES:
                self._send()
            if self._size % BLOCK == 0:
                self._blocks.append(self._block.digest())
                self._block = xxhash.xxh3_128()
        return len(data)

    def _write_all(self, part: memoryview) -> None:
        try:
            while part:
                part = part[self._file.write(part[:WRITE_BYTES]) :]
        except OSError as error:
            self.failure = self.failure or error
            raise

    def _send(self) -> None:
        """Start the disk on what was written so far, where the system takes such advice: the fsync waits less."""
        if hasattr(os, "posix_fadvise"):
            with suppress(OSError, UnsupportedOperation):  # advice only: a write reports what is wrong
                handle, count = self._file.fileno(), self._size - self._sent
                os.posix_fadvise(handle, self._sent, count, os.POSIX_FADV_DONTNEED)  # Linux: dirty pages are written
        self._sent = self._size

    def flush(self) -> None:
        """Pass everything on to the system."""
        self._file.flush()

    def result(self) -> FileDigest:
        """Return size and digest of what was written so far."""
        tail = [self._block.digest()] if self._size % BLOCK else []
        return FileDigest(self._size, join_blocks([*self._blocks, *tail]))


def _digest(path: Path, start: int, size: int, piece: memoryview) -> bytes:
    """Return the XXH3-128 of a byte range of a file, of what is there of it, read through a buffer."""
    state = xxhash.xxh3_128()
    end = start + size
    with named(path, "read"):
        handle = open_regular(path)
        try:
            while start < end:
                count = os.preadv(handle, [piece[: min(_PIECE, end - start)]], start)
                if count == 0:
                    break  # shorter than it was: its size differs too
                state.update(piece[:count])
                start += count
        finally:
            os.close(handle)
    return bytes(state.digest())


def join_blocks(blocks: list[bytes]) -> str:
    """Return the digest of a file from those of its blocks, in their order."""
    return str(xxhash.xxh3_128_hexdigest(b"".join(blocks)))
