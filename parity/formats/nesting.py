"""A nested tree from flat names and the path of each: what flattening a state dict is undone by."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from parity.errors import CheckpointError
from parity.formats.tree import Tree

__all__ = ["nest"]

MOST_KEYS = 100
"""Most keys of a path."""


class _NestedNode(dict[Any, Any]):
    """A container that is being built, whose children are found by key: integers for those of a list."""


def nest(flat: Mapping[str, tuple[Any, Tree]], where: str) -> Tree:
    """Return the tree in which each leaf stands at its path; an integer of a path is an index of a list.

    Args:
        flat: Name to its path, a tuple of text and integers, and its leaf.
        where: The file that says so, for messages.

    Raises:
        CheckpointError: A path is none, two contradict each other, or a list would have more holes than leaves.

    Example:
        >>> nest({"a.0": (("a", 0), 1), "a.1.x": (("a", 1, "x"), 2)}, "here")
        {'a': [1, {'x': 2}]}
    """
    root = _NestedNode()
    for name, (path, leaf) in flat.items():
        if not isinstance(path, tuple) or not 0 < len(path) <= MOST_KEYS:
            raise CheckpointError(f"{where}: {name} has the path {path!r:.60}")
        if type(path[0]) is int or not all(type(key) in (str, int) for key in path):
            raise CheckpointError(f"{where}: {name} has the path {path!r:.60}")
        node = root
        for key in path[:-1]:
            node = node.setdefault(key, _NestedNode())
            if not isinstance(node, _NestedNode):
                raise CheckpointError(f"{where}: {name} lies within another leaf, at {key!r}")
        if path[-1] in node:
            raise CheckpointError(f"{where}: {name} stands where another leaf does")
        node[path[-1]] = leaf
    return _close(root, where, [len(flat)])


def _close(node: Any, where: str, holes: list[int]) -> Tree:
    """Return a node as a dict or a list; what a list lacks, such as an empty dict, becomes None as in PyTorch."""
    if not isinstance(node, _NestedNode):
        return node
    children = {key: _close(child, where, holes) for key, child in node.items()}
    indices = [key for key in children if type(key) is int]
    if not indices:
        return children
    holes[0] -= max(indices) + 1 - len(indices)
    if len(indices) != len(children) or min(indices) < 0 or holes[0] < 0:
        shown = ", ".join(map(str, list(children)[:6]))
        raise CheckpointError(f"{where}: a list has the indices {shown}, which no list has")
    return [children.get(at) for at in range(max(indices) + 1)]
