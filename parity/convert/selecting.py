"""Parts of a checkpoint by dotted keys, such as `model.state_dict` or `optimizer_states.0`."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from parity.errors import CheckpointError
from parity.formats import Key, Tree, leaf_name

__all__ = ["find_keys", "select", "without"]

Path = tuple[Key, ...]


def find_keys(tree: Tree, names: Collection[str], where: str) -> list[Path]:
    """Return the ways to parts of a tree by their dotted names; a key that has dots itself is taken as it is.

    Args:
        tree: The tree.
        names: Dotted names, whose numbers are positions in lists, or keys that are numbers.
        where: The file, for messages.

    Raises:
        CheckpointError: There is nothing of a name; the message says what there is.

    Example:
        >>> find_keys({"model": {"ema": 1}, "a.b": 2, "opt": [3, 4]}, ["model.ema", "a.b", "opt.1"], "x.pt")
        [('model', 'ema'), ('a.b',), ('opt', 1)]
    """
    return [_find(tree, name, name, (), where) for name in names]


def _find(tree: Tree, rest: str, name: str, path: Path, where: str) -> Path:
    children = _children(tree)
    if rest in children:
        return (*path, children[rest])
    parts = rest.split(".")
    for count in range(1, len(parts)):
        head = ".".join(parts[:count])
        if head in children:
            key = children[head]
            return _find(tree[key], ".".join(parts[count:]), name, (*path, key), where)
    have = ", ".join(list(children)[:12]) + (", ..." if len(children) > 12 else "")
    below = f" below {leaf_name(path)}" if path else ""
    raise CheckpointError(f"{where} has no key {name!r}; it has {have or 'none'}{below}")


def _children(tree: Tree) -> dict[str, Key]:
    """Return the keys of a container by their text."""
    if isinstance(tree, dict):
        return {str(key): key for key in tree}
    return {str(at): at for at in range(len(tree))} if isinstance(tree, list | tuple) else {}


def select(tree: Tree, paths: Sequence[Path]) -> Tree:
    """Return a tree with some of its parts alone, in its own order; lists keep what was chosen of them.

    Args:
        tree: The tree.
        paths: The ways to what is kept.

    Example:
        >>> select({"model": {"ema": 1, "args": 2}, "opt": [3, 4], "step": 5}, [("model", "ema"), ("opt", 1)])
        {'model': {'ema': 1}, 'opt': [4]}
    """
    if any(not path for path in paths):
        return tree
    kept: dict[Key, list[Path]] = {}
    for path in paths:
        kept.setdefault(path[0], []).append(path[1:])
    if isinstance(tree, dict):
        return {key: select(child, kept[key]) for key, child in tree.items() if key in kept}
    items = [select(child, kept[at]) for at, child in enumerate(tree) if at in kept]
    return items if isinstance(tree, list) else tuple(items)


def without(tree: Tree, path: Path) -> Any:
    """Return a tree without one part of it; of a list None stays, so that the others keep their places.

    Example:
        >>> without({"model": {"state_dict": 1, "args": 2}, "step": 5}, ("model", "state_dict"))
        {'model': {'args': 2}, 'step': 5}
    """
    if isinstance(tree, list):
        rest = path[1:]
        return [child if at != path[0] else without(child, rest) if rest else None for at, child in enumerate(tree)]
    if len(path) == 1:
        return {key: child for key, child in tree.items() if key != path[0]}
    return {key: without(child, path[1:]) if key == path[0] else child for key, child in tree.items()}
