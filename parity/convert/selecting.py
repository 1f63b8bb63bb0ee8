"""Parts of a checkpoint by dotted keys, such as `model.state_dict` or `optimizer_states.0`; what they are called."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from parity.errors import CheckpointError
from parity.formats import Key, Tree, leaf_name

__all__ = ["JAX_PARTS", "find_keys", "renamed", "select", "without"]

Path = tuple[Key, ...]

JAX_PARTS = ("params", "buffers", "opt_state", "step")
"""Parts of a training state of JAX, as conversions call them."""


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


def renamed(tree: Tree, parts: Mapping[str, str], where: str) -> Tree:
    """Return a tree with some of its parts at its top, under the names that conversions know.

    Args:
        tree: The tree.
        parts: One of `JAX_PARTS` to the dotted key of what it is called in the tree.
        where: The file, for messages.

    Raises:
        CheckpointError: There is nothing of a key, one lies in another, or a name is that of another part.

    Example:
        >>> renamed({"model": {"w": 1}, "o": [2], "x": 3}, {"params": "model", "opt_state": "o"}, "run/3")
        {'params': {'w': 1}, 'opt_state': [2], 'x': 3}
    """
    paths = dict(zip(parts, find_keys(tree, list(parts.values()), where), strict=True))
    for name, path in paths.items():
        for other, around in paths.items():
            if other != name and path[: len(around)] == around:
                raise CheckpointError(f"{where}: {leaf_name(path)}, for {name}, lies in what is given for {other}")
    rest, made = tree, {name: _at(tree, path) for name, path in paths.items()}
    for path in sorted(paths.values(), key=len, reverse=True):
        rest = without(rest, path)
        for size in range(len(path) - 1, 0, -1):  # a container that held nothing else is none any more
            if _at(rest, path[:size]) == {}:
                rest = without(rest, path[:size])
    taken = [name for name in made if name in rest]
    if taken:
        raise CheckpointError(
            f"{where} has a part {taken[0]} beside {parts[taken[0]]}, which --as calls so: leave it out with --keys"
        )
    return {**made, **rest}


def _at(tree: Tree, path: Path) -> Tree:
    for key in path:
        tree = tree[key]
    return tree
