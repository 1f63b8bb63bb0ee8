"""What a run prints, kept line by line while it is passed on."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from parity.capture import Leaf
from parity.checks.running.lines import line_leaves

__all__ = ["keep_printed"]

MOST_CHARACTERS = 1 << 20
"""Characters of one run that are kept."""


class _Tee:
    """Stands for the standard output of a run."""

    def __init__(self, stream: Any) -> None:
        self._stream, self._parts, self._left = stream, [], MOST_CHARACTERS  # type: ignore[var-annotated]

    def write(self, text: str) -> int:
        """Keep a text and pass it on."""
        self._parts.append(text[: self._left])
        self._left = max(0, self._left - len(text))
        written: int = self._stream.write(text)
        return written

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def text(self) -> str:
        """Return what was written."""
        return "".join(self._parts)


@contextmanager
def keep_printed(into: dict[str, Leaf], hidden: Mapping[str, str]) -> Iterator[Callable[[], None]]:
    """Keep what is printed within, as leaves of lines; what it gives keeps what was printed so far.

    Args:
        into: Takes the leaves, also if an error ends the run.
        hidden: Texts that differ between equal runs, to what stands for them.
    """
    before, tee = sys.stdout, _Tee(sys.stdout)
    sys.stdout = tee

    def keep() -> None:
        into.update(line_leaves(tee.text(), dict(hidden)))

    try:
        yield keep
    finally:
        if sys.stdout is tee:
            sys.stdout = before
        keep()
