"""Reads of large files by several threads, because one alone copies from the page cache at half speed."""

from __future__ import annotations

import io
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from parity.storage.untrusted import open_regular

if TYPE_CHECKING:
    from typing_extensions import Buffer

__all__ = ["BLOCK", "THREADS", "ParallelReader", "by_threads", "read_ranges"]

BLOCK = 16 << 20
"""Bytes that one thread reads in one piece."""

THREADS = 8
"""Largest number of reading threads; more do not read faster."""

ReadBlock = TypeVar("ReadBlock")
Result = TypeVar("Result")


def read_ranges(ranges: Mapping[Path, Iterable[tuple[int, memoryview]]]) -> None:
    """Fill buffers with ranges of regular files, by several threads; links are refused.

    Args:
        ranges: File to the pairs (offset in bytes, buffer); a buffer is a writable memoryview of format `B`, and its
            length is how many bytes are read.

    Raises:
        EOFError: A file ends before a buffer is full.
        OSError: A file cannot be opened or read.
    """
    with ExitStack() as stack:
        parts = []
        for path, wanted in ranges.items():
            handle = open_regular(path)
            stack.callback(os.close, handle)
            parts += [_ReadPart(path, handle, start, target) for start, target in wanted]
        _read(parts)


class _ReadPart(NamedTuple):
    path: Path
    handle: int
    start: int
    target: memoryview


def _read(parts: Iterable[_ReadPart]) -> None:
    blocks = [
        _ReadPart(path, handle, start + i, target[i : i + BLOCK])
        for path, handle, start, target in parts
        for i in range(0, len(target), BLOCK)
    ]
    by_threads(_fill, blocks)


def by_threads(work: Callable[[ReadBlock], Result], blocks: Sequence[ReadBlock], most: int = THREADS) -> list[Result]:
    """Return what a function returns for each block, called by as many threads as there are processors.

    Args:
        work: The function.
        blocks: The blocks, in the order of the results.
        most: Most threads; with one, the function is called in the thread of the caller.
    """
    threads = min(most, os.cpu_count() or 1, len(blocks))
    if threads <= 1:
        return list(map(work, blocks))
    with ThreadPoolExecutor(threads) as pool:
        return list(pool.map(work, blocks))


def _fill(block: _ReadPart) -> None:
    path, handle, start, target = block
    while target:
        count = os.preadv(handle, [target], start)
        if count == 0:
            raise EOFError(f"{path} ends at {start} bytes; it was longer a moment ago")
        target, start = target[count:], start + count


class ParallelReader(io.RawIOBase):
    """A binary, read-only file object whose large reads are shared by several threads.

    Args:
        path: A regular file; a link is refused.

    Raises:
        OSError: The file cannot be opened.
    """

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
        """Move to a position in bytes, and return it.

        Args:
            offset: Bytes relative to the start, the present position or the end.
            whence: Which of these, by the constants of `os`.

        Raises:
            ValueError: The position is before the start.
        """
        base = {os.SEEK_SET: 0, os.SEEK_CUR: self._position, os.SEEK_END: self._size()}[whence]
        if base + offset < 0:
            raise ValueError(f"position {base + offset} is before the start of the file")
        self._position = base + offset
        return self._position

    def tell(self) -> int:
        """Return the position, in bytes from the start."""
        return self._position

    def readinto(self, buffer: Buffer) -> int:
        """Fill a buffer up to the end of the file, and return how many bytes were read."""
        target = memoryview(buffer).cast("B")
        target = target[: max(0, self._size() - self._position)]
        _read([_ReadPart(self._path, self._handle, self._position, target)])
        self._position += len(target)
        return len(target)

    def close(self) -> None:
        """Close the file."""
        if not self.closed:
            os.close(self._handle)
        super().close()

    def _size(self) -> int:
        return os.fstat(self._handle).st_size
