"""Which block of an array an operation takes, told by values: `:, 1:`, `-1`, `::2`."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["block_taken"]

MOST_BLOCKS = 600
"""Blocks of one array that are tried."""


def block_taken(x: NDArray[Any], y: NDArray[Any]) -> str:
    """Return the index of an array that gives another one; empty where none does, or several do.

    Args:
        x: Any shape.
        y: Of as many axes as `x`, or of one fewer.

    Example:
        >>> x = np.arange(12.0).reshape(3, 4)
        >>> block_taken(x, x[:, 1:]), block_taken(x, x[-1]), block_taken(x, x[:, ::2])
        (':, 1:', '2', ':, ::2')
    """
    if not 0 < y.size < x.size or x.ndim - y.ndim not in (0, 1):
        return ""
    tried, found = 0, ""
    for dropped in range(x.ndim) if y.ndim < x.ndim else (None,):
        lengths = list(y.shape) if dropped is None else [*y.shape[:dropped], 1, *y.shape[dropped:]]
        if any(length > size for length, size in zip(lengths, x.shape, strict=True)):
            continue
        ways = [_ways(size, length, single=axis == dropped)
                for axis, (size, length) in enumerate(zip(x.shape, lengths, strict=True))]  # fmt: skip
        for index in itertools.product(*ways):
            tried += 1
            if tried > MOST_BLOCKS:
                return ""
            if np.array_equal(x[index], y):
                if found:
                    return ""  # values that are several times in it do not tell
                found = _text(index, x.shape)
    return found


def _ways(size: int, length: int, *, single: bool) -> list[Any]:
    """Return the indices of an axis that give so many of its places, one after the other or evenly apart."""
    if single:
        return [*range(size)]
    if length == size:
        return [slice(None), slice(None, None, -1)] if size > 1 else [slice(None)]
    ways = [slice(start, start + length) for start in range(size - length + 1)]
    ways += [slice(start, None, step) for step in range(2, size) for start in range(step)
             if length > 1 and len(range(start, size, step)) == length]  # fmt: skip
    return ways


def _text(index: tuple[Any, ...], shape: tuple[int, ...]) -> str:
    words = []
    for one, size in zip(index, shape, strict=True):
        if isinstance(one, int):
            words.append(str(one))
            continue
        start = "" if not one.start else str(one.start)
        stop = "" if one.stop is None or one.stop == size else str(one.stop)
        words.append(f"{start}:{stop}" + (f":{one.step}" if one.step is not None else ""))
    while len(words) > 1 and words[-1] == ":":
        words.pop()
    return ", ".join(words)
