"""Large reads by several threads: one alone copies from the page cache at half of what memory can do."""

from __future__ import annotations

import io
import os
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from parity.storage.untrusted import open_regular

if TYPE_CHECKING:
    from typing_extensions import Buffer

__all__ = ["BLOCK", "ParallelReader", "read_ranges"]

BLOCK = 16 << 20
"""Bytes that one thread reads at once."""

THREADS = 8
"""Most that read; memory has no more to give."""


def read_ranges(ranges: Mapping[Path, Iterable[tuple[int, memoryview]]]) -> None:
    """Fill buffers from regular files, never links.

    Args:
        ranges: File to first bytes, each with the buffer of bytes to fill from there.

    Raises:
        EOFError: A file ends before a buffer is full.
        OSError: A file cannot be read.
    """
    with ExitStack() as stack:
        parts = []
        for path, wanted in ranges.items():
            handle = open_regular(path)
            stack.callback(os.close, handle)
            parts += [_Part(path, handle, start, target) for start, target in wanted]
        _read(parts)


class _Part(NamedTuple):
    path: Path
    handle: int
    start: int
    target: memoryview


def _read(parts: Iterable[_Part]) -> None:
    blocks = [
        _Part(path, handle, start + i, target[i : i + BLOCK])
        for path, handle, start, target in parts
        for i in range(0, len(target), BLOCK)
    ]
    threads = min(THREADS, os.cpu_count() or 1, len(blocks))
    if threads <= 1:
        for block in blocks:
            _fill(block)
        return
    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(_fill, blocks))


def _fill(block: _Part) -> None:
    path, handle, start, target = block
    while target:
        count = os.preadv(handle, [target], start)
        if count == 0:
            raise EOFError(f"{path} ends at {start} bytes; it was longer a moment ago")
        target, start = target[count:], start + count


class ParallelReader(io.RawIOBase):
    """A regular file, never a link, whose large reads are shared by several threads."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self._path, self._handle, self._position = path, open_regular(path), 0

    def readable(self) -> bool:
        """Return True."""
        return True

    def seekable(self) -> bool:
        """Return True."""
        return True

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """Go to a position, counted from the start, the present one or the end, and return it from the start."""
        base = {os.SEEK_SET: 0, os.SEEK_CUR: self._position, os.SEEK_END: self._size()}[whence]
        if base + offset < 0:
            raise ValueError(f"{base + offset} lies before the start")
        self._position = base + offset
        return self._position

    def tell(self) -> int:
        """Return the position."""
        return self._position

    def readinto(self, buffer: Buffer) -> int:
        """Fill a buffer, as far as the file goes, and return how many bytes that were."""
        target = memoryview(buffer).cast("B")
        target = target[: max(0, self._size() - self._position)]
        _read([_Part(self._path, self._handle, self._position, target)])
        self._position += len(target)
        return len(target)

    def close(self) -> None:
        """Close the file."""
        if not self.closed:
            os.close(self._handle)
        super().close()

    def _size(self) -> int:
        return os.fstat(self._handle).st_size
