"""Values of a pickle that is read as data: names, records of calls, and dicts whose keys are text and integers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

__all__ = ["Completed", "Global", "Made", "Outside", "as_dict", "fill"]

MOST_KEY = 16
"""Most values in a key that is a tuple or an object, those in others counted too."""

LONGEST_PART = 4096
"""Most characters of a text in such a key."""


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
    """Return a key of a tree: text and integers as they are, others as text, such as `mine.Color(1)` of an enum.

    Raises:
        ValueError: It is a container of more than a few values: their text, or hash, might never end.
    """
    if type(key) is str or (isinstance(key, str | int) and type(key) is not bool):
        return key
    if isinstance(key, dict | list):
        raise ValueError(f"a key is a {type(key).__name__}")
    if isinstance(key, tuple | Made):
        return _of_parts(key, [MOST_KEY])
    return str(key.name if isinstance(key, Global) else key)


def _of_parts(key: tuple[Any, ...] | Made, left: list[int]) -> str:
    """Return the text of a tuple or an object; `left` counts down how many values it may still have."""
    if not isinstance(key, Made):
        texts = [_part(item, left) for item in key]
        return f"({', '.join(texts)}{',' if len(texts) == 1 else ''})"
    items = key.content
    if key.name.rpartition(".")[2] != "frozenset":
        return f"{key.name}({', '.join(_part(item, left) for item in items)})"
    inner = items[0] if len(items) == 1 and isinstance(items[0], list) else items
    return f"{key.name}({', '.join(sorted(_part(item, left) for item in inner))})"  # its order is that of hashes


def _part(value: Any, left: list[int]) -> str:
    left[0] -= 1
    if left[0] < 0 or (isinstance(value, str | bytes | bytearray) and len(value) > LONGEST_PART):
        raise ValueError("a key has more in it than a few values")
    if isinstance(value, Global):
        return repr(value.name)
    if isinstance(value, tuple | Made):
        return _of_parts(value, left)
    if isinstance(value, list):
        return f"[{', '.join(_part(one, left) for one in value)}]"
    if isinstance(value, dict):
        return f"{{{', '.join(f'{_part(name, left)}: {_part(one, left)}' for name, one in value.items())}}}"
    return repr(value)


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
