"""What a watcher hears of a check: its steps while it runs, and its verdict. Whoever shows them lies above."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

__all__ = ["OnStep", "announce", "hearing", "ignore_step", "last_step", "tell"]

OnStep = Callable[[str, int, int], None]
"""Takes what is running (a side, or a run), the steps or cases that it has completed, and how many there are."""

TAIL = 4096
"""Bytes at the end of a file of records that hold its last line."""


def ignore_step(what: str, step: int, of: int) -> None:
    """Do nothing: no one watches."""
    del what, step, of


def tell(text: str = "") -> None:
    """Show a line that the next one replaces, where standard error is a terminal; an empty one takes it away."""
    if sys.stderr is not None and sys.stderr.isatty():
        sys.stderr.write(f"\r\x1b[K{text}")
        sys.stderr.flush()


def last_step(file: Path) -> int:
    """Return the step of the last complete record in a file; 0 if there is none, or none that can be read."""
    try:
        with file.open("rb") as records:
            size = records.seek(0, os.SEEK_END)
            records.seek(max(0, size - TAIL))
            lines = records.read().split(b"\n")[:-1]
        return int(json.loads(lines[-1])["step"]) if lines else 0
    except (OSError, ValueError, KeyError, TypeError):
        return 0


Found = TypeVar("Found")

_listeners: list[Callable[[Any], None]] = []  # pytest's plugin reports what a test asks for without the fixture


def announce(found: Found) -> Found:
    """Return a verdict, a `Resumption` or a `Crossing`, after all who listen have heard of it."""
    for listen in _listeners:
        listen(found)
    return found


@contextmanager
def hearing(listen: Callable[[Any], None]) -> Iterator[None]:
    """Call a function with each verdict that is reached meanwhile in this process.

    Example:
        >>> heard = []
        >>> with hearing(heard.append):
        ...     announce("holds")
        'holds'
        >>> heard
        ['holds']
    """
    _listeners.append(listen)
    try:
        yield
    finally:
        _listeners.remove(listen)
