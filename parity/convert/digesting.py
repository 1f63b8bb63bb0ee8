"""The digests of arrays while a writer reads them: each block is digested in a thread beside the writing."""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from numpy.typing import NDArray

from parity.contract import LeafDigest
from parity.formats import BLOCK_BYTES, Array, Box, Key, boxes, contiguous, leaf_name

__all__ = ["Digests"]

IN_FLIGHT = 2
"""Most blocks that are kept for the thread."""


class Digests:
    """The digests of the arrays of a tree; a context, at whose end the thread is gone."""

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="digests")
        self._pending: deque[Future[None]] = deque()
        self._watched: dict[str, _Watched] = {}

    def __enter__(self) -> Digests:
        """Return itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Let the thread end."""
        self._pool.shutdown(cancel_futures=True)

    def watch(self, keys: tuple[Key, ...], leaf: Any) -> Any:
        """Return an array whose digest is taken as it is read; anything else as it is."""
        if not isinstance(leaf, Array):
            return leaf
        watched = self._watched[leaf_name(keys)] = _Watched(leaf, self)
        return watched

    def add(self, work: Callable[[], None]) -> None:
        """Have a block digested."""
        while len(self._pending) >= IN_FLIGHT:
            self._pending.popleft().result()
        self._pending.append(self._pool.submit(work))

    def texts(self) -> dict[str, str]:
        """Return the text of each digest."""
        while self._pending:
            self._pending.popleft().result()
        return {name: watched.text() for name, watched in self._watched.items()}


class _Watched(Array):
    """An array that is digested while a writer reads it."""

    def __init__(self, source: Array, digests: Digests) -> None:
        self.source, self.shape, self.dtype = source, source.shape, source.dtype
        self.chunk_bytes, self.shared = source.chunk_bytes, source.shared
        self._digests = digests
        self._digest: LeafDigest | None = LeafDigest(source.shape, source.dtype.name)

    def read(self, box: Box) -> NDArray[Any]:
        """Return a box in C order, and have it digested; nobody may change it."""
        found = contiguous(self.source.read(box))
        if found.size:
            self._digests.add(lambda: self._add(box, found))
        return found

    def text(self) -> str:
        """Return the text of its digest; of an array that was not read once and whole, all is read again."""
        if self._digest is not None:
            with contextlib.suppress(ValueError):
                return self._digest.text()
        digest = LeafDigest(self.shape, self.dtype.name)
        for box in boxes(self.shape, max(1, BLOCK_BYTES // self.dtype.itemsize)):
            digest.add([low for low, _ in box], self.source.read(box))
        return digest.text()

    def _add(self, box: Box, found: NDArray[Any]) -> None:
        if self._digest is not None:
            try:
                self._digest.add([low for low, _ in box], found)
            except ValueError:  # a writer that reads an element twice
                self._digest = None
