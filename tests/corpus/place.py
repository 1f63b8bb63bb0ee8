"""A place: where a value is kept, and how a verdict may call it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

__all__ = ["Place", "Ways", "as_bytes", "as_floats", "from_bytes", "from_floats", "table"]

Ways = tuple[Callable[[], Any], Callable[[Any], None]]
"""Reads and writes."""


@dataclass(frozen=True)
class Place:
    """One place."""

    open: Callable[[Any], Ways]
    words: tuple[str, ...]
    """A path or a line that names the place has one of these in it."""

    @property
    def id(self) -> str:
        """The name of the function."""
        return self.open.__name__


def table(**words: str) -> Callable[..., tuple[Place, ...]]:
    """Return a function that makes places of functions, with the words of each, parted by spaces."""

    def made(*opens: Callable[[Any], Ways]) -> tuple[Place, ...]:
        if missing := [one.__name__ for one in opens if one.__name__ not in words]:
            raise KeyError(missing)
        return tuple(Place(one, tuple(words[one.__name__].split())) for one in opens)

    return made


def as_floats(value: Any) -> list[float]:
    """Return a tensor or an array as floats of Python."""
    return [float(number) for number in value]


def from_floats(numbers: Any, like: Any) -> Any:
    """Return floats as what `like` is: a tensor or an array."""
    if isinstance(like, np.ndarray):
        return np.array(list(numbers), like.dtype)
    return like.new_tensor(list(numbers))


def as_bytes(value: Any) -> bytes:
    """Return a tensor or an array as bytes."""
    return np.array(as_floats(value)).tobytes()


def from_bytes(content: Any, like: Any) -> Any:
    """Return bytes as what `like` is."""
    return from_floats(np.frombuffer(bytes(content)), like)
