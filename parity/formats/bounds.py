"""Bounds of what comes from anyone: a few bytes may name one thing a billion times, and nothing may walk that.

A reader checks its tree once, before anybody walks it. Containers may be shared, so each is counted once and its
count is added wherever it is named.
"""

from __future__ import annotations

from typing import Any

from parity.errors import CheckpointError
from parity.formats.array import Array
from parity.formats.tree import MOST_DEPTH, MOST_LEAVES, MOST_SCALARS, MOST_TEXT, Opaque, Tree

__all__ = ["Work", "require_bounded"]

MOST_IN_OBJECTS = 50_000_000
"""Most values in objects that only code could rebuild: they are not walked leaf by leaf."""

VALUES_OF_A_TENSOR = 16
"""Values that describe one tensor where it is stored, such as in the metadata of DCP."""

MOST_WORK = 1 << 30
"""Most bytes that the stand-ins of a pickle may copy."""

ITEM_BYTES = 64
"""Bytes that an item of a container counts as."""

CONTAINERS, NUMBERS = (dict, list, tuple), (int, float)

Count = tuple[int, int, int]
"""Leaves, those of them that are no arrays, and bytes of their text."""


def require_bounded(tree: Tree, where: str, tensors: int = 0) -> None:
    """Check that a tree can be walked.

    Args:
        tree: What a reader made of a file.
        where: The file, for messages.
        tensors: How many tensors lie beside it, each with a few values of its own.

    Raises:
        CheckpointError: It has more leaves, numbers or text than any state, is too deep, or holds itself.
    """
    _Counter(where, VALUES_OF_A_TENSOR * tensors).count(tree, 0)


class _Counter:
    """The counts of containers, by identity."""

    def __init__(self, where: str, more: int) -> None:
        self.where, self.more = where, more
        self.known: dict[int, Count] = {}

    def count(self, tree: Tree, depth: int) -> Count:
        """Return the count of a tree, and check it."""
        if depth > MOST_DEPTH:
            raise CheckpointError(
                f"{self.where}: it is nested more than {MOST_DEPTH} deep, or a container holds itself"
            )
        if isinstance(tree, Opaque):
            self._objects(tree)
            return 1, 0, 0
        if not isinstance(tree, CONTAINERS) or not tree:
            return 1, int(not isinstance(tree, Array)), len(tree) if isinstance(tree, str | bytes) else 0
        if id(tree) not in self.known:
            children = tree.values() if isinstance(tree, dict) else tree
            leaves = scalars = text = 0
            for child in children:
                if isinstance(child, NUMBERS) or child is None:  # by far the most
                    leaves, scalars = leaves + 1, scalars + 1
                    continue
                more = self.count(child, depth + 1)
                leaves, scalars, text = leaves + more[0], scalars + more[1], text + more[2]
            self._require(leaves, scalars, text)
            self.known[id(tree)] = leaves, scalars, text
        return self.known[id(tree)]

    def _require(self, leaves: int, scalars: int, text: int) -> None:
        for found, most, what in (
            (scalars, MOST_SCALARS + self.more, "values that are no arrays"),
            (leaves, MOST_LEAVES + self.more, "leaves"),
            (text, MOST_TEXT, "bytes of text"),
        ):
            if found > most:
                raise CheckpointError(
                    f"{self.where}: it names more than {most:,} {what}; no training state has so many"
                )

    def _objects(self, found: Opaque) -> None:
        """Check what an object would be rebuilt from; its parts may be shared too."""
        sizes: dict[int, int] = {}

        def size(value: Any, depth: int) -> int:
            if isinstance(value, Opaque):
                value = value.content
            if depth > 2 * MOST_DEPTH:
                raise CheckpointError(f"{self.where}: the {found} is nested too deeply")
            if not isinstance(value, dict | list | tuple):
                return 1
            if id(value) not in sizes:
                children = value.values() if isinstance(value, dict) else value
                sizes[id(value)] = 1 + sum(size(child, depth + 1) for child in children)
            return sizes[id(value)]

        if size(found.content, 0) > MOST_IN_OBJECTS:
            raise CheckpointError(f"{self.where}: the {found} names more than {MOST_IN_OBJECTS:,} values")


class Work:
    """What the stand-ins of one pickle have copied."""

    def __init__(self) -> None:
        self.done = 0

    def add(self, args: tuple[Any, ...]) -> None:
        """Count the arguments of a call.

        Raises:
            ValueError: Together they are more than any state has.
        """
        for one in args:
            if isinstance(one, _SIZED):
                self.done += _weight(one)
                if isinstance(one, tuple):
                    for inner in one:
                        if isinstance(inner, _SIZED):
                            self.done += _weight(inner)
        if self.done > MOST_WORK:
            raise ValueError("its calls copy more than any training state has")


_SIZED = (str, bytes, bytearray, dict, list, tuple)


def _weight(value: Any) -> int:
    return len(value) * (1 if isinstance(value, str | bytes | bytearray) else ITEM_BYTES)
