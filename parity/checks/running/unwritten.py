"""Memory that nobody has written: `numpy.empty` and its like give zeros in runs that ask for it.

A buffer that is filled row by row holds in its other rows what was in memory before. No code reads them, and two
equal runs differ in them. Filled with one value, they are equal wherever nothing was written.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import numpy as np

from parity import sides

__all__ = ["filled"]


@contextmanager
def filled(wanted: bool) -> Iterator[None]:
    """Have new arrays and tensors without values hold zeros until the context ends.

    Args:
        wanted: Whether to; else nothing is done.
    """
    with ExitStack() as stack:
        if wanted:
            for name in ("empty", "empty_like"):  # `numpy.ma.masked_all` calls them
                stack.callback(_replaced(np, name, _clear))
            for adapter in sides.adapters().values():
                for owner, name in adapter.unwritten:
                    stack.callback(_replaced(owner, name, adapter.clear))
        yield


def _replaced(owner: Any, name: str, clear: Callable[[Any], None]) -> Callable[[], None]:
    """Put a function in the place of another one that clears what that gives; return what puts it back.

    Args:
        owner: Module or class that has the function.
        name: Its name there.
        clear: Called with what it gave.
    """
    original = getattr(owner, name)

    @functools.wraps(original)
    def give(*args: Any, **kwargs: Any) -> Any:
        found = original(*args, **kwargs)
        clear(found)
        return found

    setattr(owner, name, give)
    return lambda: setattr(owner, name, original)


def _clear(array: Any) -> None:
    """Set an array to zeros, whatever its type; one of objects holds None already."""
    if isinstance(array, np.ndarray) and array.size and not array.dtype.hasobject:
        array[...] = np.zeros((), array.dtype)
