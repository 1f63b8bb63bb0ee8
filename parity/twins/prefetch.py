"""Prefetcher: reads and places the next chunk while the current one runs, and keeps the position true."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Generic, TypeVar

from parity.twins.data import BatchStream, Chunk, StreamPosition

__all__ = ["Prefetcher"]

PlacedChunk = TypeVar("PlacedChunk")


class Prefetcher(Generic[PlacedChunk]):
    """Holds at most one chunk ahead of the trainer.

    `position` is that of the *consumer*: what was fetched ahead but not trained on does not count, so a
    checkpoint taken at any time reproduces the next batch (a saved producer position would skip some).
    """

    def __init__(self, stream: BatchStream, place: Callable[[Chunk, int], PlacedChunk]) -> None:
        """Wrap a stream.

        Args:
            stream: Where chunks come from.
            place: Puts a chunk where it is computed on; also given the number of steps completed before it.
        """
        self._stream, self._place = stream, place
        self.position: StreamPosition = stream.position()
        self._ahead: tuple[int, int, Chunk, PlacedChunk] | None = None

    def take(self, n: int, step: int) -> tuple[Chunk, PlacedChunk]:
        """Return the chunk of the n steps after `step`, fetched ahead or now.

        Args:
            n: Steps of the chunk, at least 1.
            step: Completed steps.

        Returns:
            The chunk on the host, and what `place` made of it.
        """
        if self._ahead is not None and self._ahead[:2] != (n, step):
            self.seek(self.position)  # the plan changed (a save, a stop): drop what was fetched
        self.fetch(n, step)
        assert self._ahead is not None
        _, _, chunk, placed = self._ahead
        self._ahead = None
        self.position = chunk.after
        return chunk, placed

    def fetch(self, n: int, step: int) -> None:
        """Read and place the chunk of the n steps after `step`, unless one is waiting already.

        What the stream or `place` raises is passed on; what was read and not placed is then read again.

        Args:
            n: Steps of the chunk; for 0 nothing is read.
            step: Completed steps.
        """
        if self._ahead is None and n > 0:
            try:
                chunk = self._stream.take(n)
                self._ahead = (n, step, chunk, self._place(chunk, step))
            except BaseException:
                self._stream.seek(self.position)  # what was read and not placed is read again
                raise

    def seek(self, position: Mapping[str, Any]) -> None:
        """Move to a position and drop what was fetched ahead.

        Raises:
            StateError: The stream refuses the position; nothing was changed.
        """
        self._stream.seek(position)  # first: a position it refuses must change nothing
        self._ahead = None
        self.position = self._stream.position()
