"""Values of a pickle that is read as data: names, records of calls, and dicts whose keys are text and integers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

__all__ = ["Completed", "Global", "Made", "Outside", "as_dict", "fill"]

MOST_KEY = 16
"""Most parts of a key that is a tuple."""


@dataclass(frozen=True)
class Global:
    """A name that a pickle asks for; nothing is imported."""

    name: str


@dataclass
class Made:
    """A call that the table does not answer: an object that later opcodes may give attributes and items."""

    name: str
    content: list[Any]


class Outside:
    """What lies outside of a pickle, such as the bytes of tensors; by itself only code could rebuild it."""

    kind: str
    """Its class."""

    def content(self) -> Any:
        """Return its bytes as an array, where they can be read; None otherwise.

        Raises:
            CheckpointError: They were asked for more often than any state names them.
        """
        return None


class Completed(ABC):
    """What later opcodes complete by its state, such as an array that is made empty."""

    @abstractmethod
    def set_state(self, state: Any) -> None:
        """Take the state."""

    @abstractmethod
    def completed(self) -> Any:
        """Return what it is at the end of the pickle."""


def as_dict(pairs: Any = ()) -> dict[Any, Any]:
    """Return a dict of another, or of pairs, its keys text and integers as everywhere."""
    found: dict[Any, Any] = {}
    fill(found, pairs.items() if isinstance(pairs, dict) else pairs)
    return found


def _as_key(key: Any) -> str | int:
    """Return a key of a tree: text and integers as they are, others as text.

    Raises:
        ValueError: It is a container of more than a few values: their text, or hash, might never end.
    """
    if type(key) is str or (isinstance(key, str | int) and type(key) is not bool):
        return key
    if isinstance(key, tuple):
        if len(key) > MOST_KEY or any(isinstance(part, dict | list | tuple | Made) for part in key):
            raise ValueError("a key is a container of containers")
        return str(tuple(part.name if isinstance(part, Global) else part for part in key))
    if isinstance(key, dict | list | Made):
        raise ValueError(f"a key is a {type(key).__name__}")
    return str(key.name if isinstance(key, Global) else key)


def fill(target: dict[Any, Any], pairs: Iterable[tuple[Any, Any]]) -> int:
    """Put pairs into a dict that is being built.

    Returns:
        How many keys are neither text nor integers, and so are text from now on.

    Raises:
        ValueError: Two keys are the same as text.
    """
    changed = 0
    for key, value in pairs:
        plain = _as_key(key)
        changed += plain is not key
        if plain in target:  # such as 1.5 and "1.5": one of the two values would be gone
            raise ValueError(f"two keys are one as text, {plain!r:.60}; save them under other names")
        target[plain] = value
    return changed
