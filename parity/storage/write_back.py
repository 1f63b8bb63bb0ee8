"""Writing in a thread, and on to the disk while more is written, so that the last fsync has little to wait for."""

from __future__ import annotations

import os
from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType
from typing import Any

__all__ = ["WRITE_BYTES", "WriteBack"]

WRITE_BYTES = 1 << 18
"""Bytes of one write, as those of `cp`: from 1 MiB on, Linux looks for pieces of memory that are as large, which it
may have given back to the host of a virtual machine, and 2 GB then take 2.5 s of processor time and not 0.5."""

SMALL = 1 << 14
"""Bytes up to which the caller writes by itself where nothing waits: to hand them over would take longer."""

EVERY = 16 << 20
"""Bytes after which a file is synchronized."""

SYNCHRONIZE = getattr(os, "fdatasync", os.fsync)
"""macOS has fsync alone."""

IN_FLIGHT = 3
"""Most buffers that wait to be written, and most requests to synchronize: a slow disk holds up the caller."""


class WriteBack:
    """Writes buffers in a thread, in the order in which they come, and synchronizes them in another.

    At the end of the block all is written. Whoever needs it to be durable still calls fsync.

    Example:
        >>> with open(os.devnull, "wb") as file, WriteBack() as back:
        ...     back.write(file.fileno(), b"bytes")
    """

    def __init__(self) -> None:
        self._writes, self._syncs = _Queue("write-back"), _Queue("synchronize")
        self._bytes = 0

    def __enter__(self) -> WriteBack:
        """Return itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Wait for what was asked for; raise what failed, unless the block did."""
        try:
            self._writes.close(wait=error is None)
        finally:
            self._syncs.close(wait=error is None)

    def write(self, handle: int, data: Any, at: int | None = None) -> None:
        """Have all of some bytes written to an open file, which may be closed at once.

        Args:
            handle: The file.
            data: A buffer of contiguous bytes; nobody may change it before the end of the block.
            at: Offset in the file; where the last write ended by default.

        Raises:
            OSError: The disk is full, or failed; under this write, or one before.
        """
        view = memoryview(data).cast("B")
        written: Future[None] | None = None
        if len(view) <= SMALL and self._writes.idle:
            _write(handle, view, at)
        else:
            written = self._writes.add(handle, lambda copy: _write(copy, view, at))
        self.written(handle, len(view), written)

    def written(self, handle: int, count: int, after: Future[None] | None = None) -> None:
        """Count bytes of an open file, and have it synchronized after each `EVERY` of them.

        Args:
            handle: The file.
            count: How many more bytes there are.
            after: What tells that they are written; None if they are.
        """
        self._bytes += count
        if self._bytes >= EVERY:
            self._bytes = 0
            self._syncs.add(handle, lambda copy: _synchronize(copy, after))


class _Queue:
    """A thread with a bounded queue of work on files, each with a handle of its own."""

    def __init__(self, name: str) -> None:
        self._pool = ThreadPoolExecutor(1, thread_name_prefix=name)
        self._pending: deque[tuple[Future[None], int]] = deque()

    @property
    def idle(self) -> bool:
        """Return whether all work is done, so that what comes now may be done by anybody and is still in order."""
        return not self._pending or self._pending[-1][0].done()

    def add(self, handle: int, work: Any) -> Future[None]:
        """Have work done on a file, once fewer than `IN_FLIGHT` wait; return what tells that it is done."""
        while len(self._pending) >= IN_FLIGHT:
            self._settle()
        copy = os.dup(handle)
        future = self._pool.submit(work, copy)
        self._pending.append((future, copy))
        return future

    def close(self, *, wait: bool) -> None:
        self._pool.shutdown(cancel_futures=not wait)
        failed: Exception | None = None
        while self._pending:
            try:
                self._settle()
            except Exception as error:
                failed = failed or error
        if failed is not None and wait:
            raise failed

    def _settle(self) -> None:
        """Wait for the oldest; raise what failed in it."""
        future, copy = self._pending.popleft()
        try:
            if not future.cancelled():
                future.result()
        finally:
            os.close(copy)


def _write(handle: int, view: memoryview, at: int | None) -> None:
    while view:
        piece = view[:WRITE_BYTES]
        written = os.write(handle, piece) if at is None else os.pwrite(handle, piece, at)
        view, at = view[written:], None if at is None else at + written


def _synchronize(handle: int, written: Future[None] | None) -> None:
    if written is None or written.exception() is None:  # else the writer raises it
        SYNCHRONIZE(handle)
