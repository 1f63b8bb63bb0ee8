"""Who hears of a verdict as it is reached: pytest's plugin reports what a test asks for without the fixture, too."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

__all__ = ["announce", "hearing"]

Found = TypeVar("Found")

_listeners: list[Callable[[Any], None]] = []


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
