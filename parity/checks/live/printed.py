"""What a run prints: kept line by line while it is passed on, and compared with what an uninterrupted run prints.

A line that differs is listed, and is no loss by itself: a mean since the start of the process is another one after a
resume. Lines that two equal runs print differently say nothing.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from parity.capture import Leaf
from parity.checks.live.decoded import line_leaves
from parity.checks.live.evidence import Evidence

__all__ = ["judge_printed", "keep_printed"]

MOST_CHARACTERS = 1 << 20
"""Characters of one run that are kept."""
MOST = 3
"""Differences that are listed."""


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


def judge_printed(expected: Mapping[str, Leaf], again: Mapping[str, Leaf], got: Mapping[str, Leaf],
                  end: int) -> list[Evidence]:  # fmt: skip
    """Return numbers that a resumed run printed in a line that the uninterrupted run printed too, with others.

    Args:
        expected: What the uninterrupted run printed.
        again: What an equal run printed, as far as it came.
        got: What the resumed run printed.
        end: Completed steps at the end.
    """
    noise = {_form(path) for path, leaf in expected.items() if path in again and not again[path].same(leaf)}
    differ = [
        path
        for path, leaf in expected.items()
        if leaf.kind == "number" and path in got and not got[path].same(leaf) and _form(path) not in noise
    ]
    return [
        Evidence("printed", f"printed: {path}", end, expected[path].text, got[path].text, "in what is printed")
        for path in differ[:MOST]
    ]


def _form(path: str) -> str:
    """Return a line's path without its own number, as all lines of its kind have it."""
    return re.sub(r"\d+", "#", path)
