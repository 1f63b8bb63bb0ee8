"""A tree as a JSON document: containers, keys and scalars to the last bit, arrays as references of the caller."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from parity.errors import CheckpointError, explain
from parity.formats.array import Array
from parity.formats.scalars import are_keys, decode_scalar, encode_scalar, is_spelled
from parity.formats.tree import Key, Opaque, Tree, TreeLeaf, leaf_name

__all__ = ["TREE_ENTRY", "decode_tree", "encode_tree", "read_description"]

TREE_ENTRY = "parity.tree"
"""Entry that describes a tree in formats that hold names and arrays alone: its containers, and what is no array."""

MOST_DEPTH = 100

Refer = Callable[[tuple[Key, ...], Array], dict[str, Any]]


def encode_tree(tree: Tree, refer: Refer, keys: tuple[Key, ...] = ()) -> Any:
    """Return a tree as plain JSON values.

    Args:
        tree: The tree.
        refer: Takes the keys of an array and the array, and returns the object that stands for it.
        keys: Keys on the way to the tree.

    Raises:
        CheckpointError: It holds an object that only code could rebuild.

    Example:
        >>> encode_tree({"a": [1, (2.0, None)], 3: float("inf")}, None)
        {'dict': [['a', [1, {'tuple': [2.0, None]}]], [3, {'float': 'inf'}]]}
    """
    if isinstance(tree, Counter):
        return {"counter": [[key, _encode_scalar(n, (*keys, key))] for key, n in tree.items()]}
    if isinstance(tree, dict):
        return {"dict": [[key, encode_tree(child, refer, (*keys, key))] for key, child in tree.items()]}
    if isinstance(tree, list | tuple):
        items = [encode_tree(child, refer, (*keys, at)) for at, child in enumerate(tree)]
        return items if isinstance(tree, list) else {"tuple": items}
    if isinstance(tree, Array):
        return refer(keys, tree)
    return _encode_scalar(tree, keys)


def _encode_scalar(value: TreeLeaf, keys: tuple[Key, ...]) -> Any:
    if isinstance(value, Opaque):
        raise CheckpointError(f"{leaf_name(keys)} is an {value}, which only code could rebuild; nothing writes it")
    found = encode_scalar(value)
    if found is None or type(found) in (bool, int, float, str, dict):
        return found
    raise CheckpointError(f"{leaf_name(keys)} is a {type(value).__name__}, which no document holds")


def decode_tree(document: Any, resolve: Callable[[dict[str, Any]], TreeLeaf], where: str) -> Tree:
    """Return the tree that a document describes.

    Args:
        document: What `encode_tree` returned.
        resolve: Takes what `refer` returned, and returns the array.
        where: The file, for messages.

    Raises:
        CheckpointError: It is no such document.

    Example:
        >>> decode_tree(encode_tree({"a": [1, (2.0, None)]}, None), None, "tree.json")
        {'a': [1, (2.0, None)]}
    """
    try:
        return _decode(document, resolve, 0)
    except (KeyError, TypeError, ValueError, RecursionError) as error:
        raise CheckpointError(f"{where}: the description of its tree cannot be read: {explain(error)}") from error


def _decode(value: Any, resolve: Callable[[dict[str, Any]], TreeLeaf], depth: int) -> Tree:
    if depth > MOST_DEPTH:
        raise ValueError("it is nested too deeply")
    if isinstance(value, list):
        return [_decode(child, resolve, depth + 1) for child in value]
    if not isinstance(value, dict):
        return value
    if set(value) in ({"dict"}, {"counter"}):
        ((kind, given),) = value.items()
        pairs = [(key, _decode(child, resolve, depth + 1)) for key, child in given]
        if not are_keys([key for key, _ in pairs]):
            raise ValueError("a key is neither text nor an integer, or occurs twice")
        return dict(pairs) if kind == "dict" else Counter(dict(pairs))
    if set(value) == {"tuple"}:
        return tuple(_decode(child, resolve, depth + 1) for child in value["tuple"])
    if is_spelled(value):
        return decode_scalar(value)
    return resolve(value)


def read_description(text: str, arrays: dict[str, Array], where: Path) -> Tree:
    """Return the tree that a metadata entry describes.

    Args:
        text: The entry `TREE_ENTRY`, a JSON document that refers to arrays by name.
        arrays: Name to array, of all that the file holds.
        where: The file, for messages.

    Raises:
        CheckpointError: It is no description of a tree, or names an array that is not there, or not every array.
    """
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"{where}: the entry {TREE_ENTRY} cannot be read: {error}") from error
    used: set[str] = set()

    def resolve(reference: dict[str, Any]) -> Array:
        name = reference["array"]
        used.add(name)
        return arrays[name]

    tree = decode_tree(document, resolve, str(where))
    if used != set(arrays):
        raise CheckpointError(
            f"{where}: the entry {TREE_ENTRY} leaves out {', '.join(sorted(set(arrays) - used)[:4])}"
        )
    return tree
