"""A pickle whose objects refer to each other in circles, or in long chains, as a flat list; nothing is executed.

A tree of it has no end, or is too deep: nodes that know their parent, a trainer whose callbacks know it, a linked
list. Each container is listed once, and stands elsewhere as its place in the list.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from parity.formats.pickle_machine import Function
from parity.formats.pickle_values import Completed, Global, Made, Outside
from parity.formats.symbolic import run_pickle
from parity.formats.tree import Opaque

__all__ = ["read_pickle_graph"]

MOST_OBJECTS = 200_000
"""Most containers: a second of work."""


def read_pickle_graph(data: bytes, where: str, calls: Mapping[str, Function]) -> tuple[list[Any], int]:
    """Return the containers of a pickle, the outermost first, and the offset of the first byte after it.

    A container is a dict, a list or an `Opaque` of a class; what it holds are values, tuples of values, and
    `Opaque("object", place)` for other containers. They are in the order in which they are met, level by level, so
    two pickles of equal objects give equal lists, however their memos were numbered.

    Args:
        data: The pickle.
        where: The file, for messages.
        calls: Dotted name of a class or function to what stands in for its call.

    Raises:
        CheckpointError: As of `read_pickle`, but for circles and depth.
        ValueError: It has more containers than are looked at.
    """
    value, stop, _ = run_pickle(data, where, calls)
    graph = _Graph()
    graph.place(value)
    return graph.listed(), stop


class _Graph:
    def __init__(self) -> None:
        self.met: list[Any] = []
        """Containers in the order in which they are met; they are kept alive, and their `id` with them."""
        self.places: dict[int, int] = {}
        self.completed: dict[int, Any] = {}

    def place(self, value: Any) -> Any:
        """Return what stands for a value where it is held."""
        if isinstance(value, Global):
            return Opaque(value.name)
        if isinstance(value, Outside):
            content = value.content()
            return Opaque(value.kind, content, hidden=content is None)
        if isinstance(value, bytearray):
            return bytes(value)
        if isinstance(value, Completed):
            if id(value) not in self.completed:
                self.completed[id(value)] = value.completed()
            value = self.completed[id(value)]
        if isinstance(value, tuple) and not any(isinstance(one, _CONTAINERS) for one in value):
            return tuple(map(self.place, value))
        if not isinstance(value, _CONTAINERS):
            return value
        if id(value) not in self.places:
            if len(self.met) == MOST_OBJECTS:
                raise ValueError(f"the pickle has more than {MOST_OBJECTS:,} containers")
            self.places[id(value)] = len(self.met)
            self.met.append(value)
        return Opaque("object", self.places[id(value)])

    def listed(self) -> list[Any]:
        """Return what each container holds; it grows while it is gone through."""
        found, at = [], 0
        while at < len(self.met):
            found.append(self._content(self.met[at]))
            at += 1
        return found

    def _content(self, value: Any) -> Any:
        if isinstance(value, dict):
            return {key: self.place(one) for key, one in value.items()}
        if isinstance(value, Made):
            return Opaque(value.name, [self.place(one) for one in value.content])
        if isinstance(value, Opaque):
            return Opaque(value.name, self.place(value.content), value.hidden)
        return [self.place(one) for one in value]


_CONTAINERS = (dict, list, tuple, Made, Opaque)
