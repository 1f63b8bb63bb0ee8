"""The digests of arrays while a writer reads them: each block is digested in a thread beside the writing."""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from numpy.typing import NDArray

from parity.formats import BLOCK_BYTES, Array, Box, Key, boxes, contiguous, leaf_name
from parity.state import LeafDigest

__all__ = ["Digests", "digest_of"]

SMALL = 1 << 16
"""Bytes of an array up to which the caller digests it: to hand over 128 bytes takes ten times as long."""

IN_FLIGHT = 2
"""Most blocks that are kept for the thread."""


class Digests:
    """The digests of the arrays of a tree; a context, at whose end the thread is gone."""

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="digests")
        self._pending: deque[Future[None]] = deque()
        self._watched: dict[tuple[Key, ...], _DigestedArray] = {}
        self.failure: Exception | None = None
        """Why the source could not be read, if it could not: libraries wrap it as if their writing had failed."""

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
        watched = self._watched[keys] = _DigestedArray(leaf, self)
        return watched

    def add(self, work: Callable[[], None]) -> None:
        """Have a block digested."""
        while len(self._pending) >= IN_FLIGHT:
            self._pending.popleft().result()
        self._pending.append(self._pool.submit(work))

    def text(self, keys: tuple[Key, ...]) -> str:
        """Return the text of the digest of one array."""
        while self._pending:
            self._pending.popleft().result()
        return self._watched[keys].text()

    def texts(self) -> dict[str, str]:
        """Return the text of each digest by the name of its leaf."""
        return {leaf_name(keys): self.text(keys) for keys in self._watched}


def digest_of(array: Array) -> str:
    """Return the text of the digest of an array, which is read by blocks."""
    digest = LeafDigest(array.shape, array.dtype.name)
    for box in boxes(array.shape, max(1, BLOCK_BYTES // array.dtype.itemsize)):
        digest.add([low for low, _ in box], array.read(box))
    return digest.text()


class _DigestedArray(Array):
    """An array that is digested while a writer reads it."""

    def __init__(self, source: Array, digests: Digests) -> None:
        self.source, self.shape, self.dtype = source, source.shape, source.dtype
        self.chunk_bytes, self.shared, self.random_key = source.chunk_bytes, source.shared, source.random_key
        self._digests = digests
        self._digest: LeafDigest | None = LeafDigest(source.shape, source.dtype.name)
        self._text: str | None = None

    def read(self, box: Box) -> NDArray[Any]:
        """Return a box in C order, and have it digested; nobody may change it."""
        try:
            found = contiguous(self.source.read(box))
        except Exception as error:
            self._digests.failure = error
            raise
        if found.size and self.nbytes <= SMALL:
            self._add(box, found)
        elif found.size:
            self._digests.add(lambda: self._add(box, found))
        return found

    def text(self) -> str:
        """Return the text of its digest; of an array that was not read once and whole, all is read again."""
        if self._text is None and self._digest is not None:
            with contextlib.suppress(ValueError):
                self._text = self._digest.text()
        if self._text is None:
            self._text = digest_of(self.source)
        return self._text

    def _add(self, box: Box, found: NDArray[Any]) -> None:
        if self._digest is not None:
            try:
                self._digest.add([low for low, _ in box], found)
            except ValueError:  # a writer that reads an element twice
                self._digest = None
