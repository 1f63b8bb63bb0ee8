"""Trees of containers and leaves, by name: how any state is saved, compared with a template and rebuilt.

A name joins the keys on the way to a leaf with dots, as Orbax and PyTorch do: `params.layers.0.kernel`.
"""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from parity.errors import CheckpointError
from parity.formats import Key

__all__ = [
    "ArrayType",
    "Branch",
    "Form",
    "LeafNode",
    "Node",
    "Opened",
    "Scalar",
    "Unheld",
    "Whole",
    "fixed",
    "is_text",
    "join",
    "leaves",
    "open_plain",
    "rebuild",
    "subtrees",
    "type_name",
    "walk",
    "wholes",
]

MAX_DEPTH = 100
"""Deepest nesting of containers; a tree that contains itself is deeper."""

Form = Literal["list", "tuple", "dict", "fields"]
"""Kind of a container; `fields` are those of a named tuple, a dataclass or another class, by name."""

Scalar = None | bool | int | float | complex | str


@dataclass(frozen=True)
class ArrayType:
    """The type of an array: everything about it but its values."""

    dtype: str
    shape: tuple[int, ...]
    key: str = ""
    """Implementation of typed PRNG keys, such as `threefry2x32`; empty for plain numbers. Shape and dtype of keys
    are those of their words."""
    numpy: bool = False
    """Whether it was a NumPy array; only a restore without a template looks at it."""

    def __str__(self) -> str:
        """Return the type for messages, such as `float32[2,3]`."""
        shape = f"[{','.join(map(str, self.shape[:-1] if self.key else self.shape))}]"
        return f"PRNG key {self.key}{shape}" if self.key else f"{self.dtype}{shape}"


@dataclass(frozen=True)
class Unheld:
    """A value of another tool's checkpoint that no tree of ours holds; no leaf of a template takes it."""

    what: str

    def __str__(self) -> str:
        """Return a phrase for messages."""
        return self.what


@dataclass(frozen=True)
class LeafNode:
    """A value that is no container: an array, its type, or a scalar."""

    name: str
    value: Any


@dataclass(frozen=True)
class Branch:
    """A container and how one is made of other children."""

    name: str
    form: Form
    keys: tuple[Key, ...]
    children: tuple[Node, ...]
    build: Callable[[list[Any]], Any]
    type_name: str = ""
    """Name of the class, for people; empty for a dict, a list and a tuple."""
    in_place: bool = False
    """Whether an object of the template takes the leaves over in place, so that none may be of another type."""


@dataclass(frozen=True)
class Whole:
    """An object of a template that takes a saved subtree as it is, such as an optimizer whose state came later."""

    name: str
    check: Callable[[Node], list[tuple[str, str]]]
    """Returns what of a saved subtree does not fit: name, and why."""
    build: Callable[[Any], Any]
    """Takes over the rebuilt subtree and returns the object."""
    unchanged: Any
    """The object, where nothing was saved for it and that is allowed."""
    likes: Callable[[Node], Mapping[str, Any]] = lambda _: {}
    """Returns those leaves of a saved subtree that are to lie as an array of the object does, to that array."""


Node = LeafNode | Branch | Whole


@dataclass(frozen=True)
class Opened:
    """One container, taken apart by one level."""

    form: Form
    keys: Sequence[Key]
    children: Sequence[Any]
    build: Callable[[list[Any]], Any]
    type_name: str = ""
    in_place: bool = False


def walk(value: Any, open_node: Callable[[str, Any], Opened | Whole | None], name: str = "", depth: int = 0) -> Node:
    """Return a tree as nodes.

    Args:
        value: The tree.
        open_node: Takes the name of a value and the value, and takes it apart by one level; None for a leaf.
        name: Name of the value.
        depth: Containers around it.

    Raises:
        CheckpointError: It is nested too deeply, or has a key that is neither text nor an integer.
    """
    if depth > MAX_DEPTH:
        raise CheckpointError(
            f"{name[:80]}...: containers are nested more than {MAX_DEPTH} deep; is one inside itself?"
        )
    opened = open_node(name, value)
    if opened is None:
        return LeafNode(name, value)
    if isinstance(opened, Whole):
        return opened
    for key in opened.keys:
        if type(key) not in (str, int):
            raise CheckpointError(
                f"{name or 'the tree'}: the key {key!r} is a {type(key).__name__}; keys are text or integers"
            )
        if isinstance(key, str) and not is_text(key):
            raise CheckpointError(f"{name or 'the tree'}: the key {key!a} is no text that UTF-8 has")
        if key == "":
            raise CheckpointError(f"{name or 'the tree'}: a key is empty text; a leaf below it would have no name")
    children = tuple(
        walk(child, open_node, join(name, key), depth + 1)
        for key, child in zip(opened.keys, opened.children, strict=True)
    )
    return Branch(name, opened.form, tuple(opened.keys), children, opened.build, opened.type_name, opened.in_place)


def join(name: str, key: Key) -> str:
    """Return the name of a child.

    Args:
        name: Name of the container; empty at the root of a tree.
        key: Key of the child in it.

    Example:
        >>> join("params.layers", 0), join("", "params")
        ('params.layers.0', 'params')
    """
    return f"{name}.{key}" if name else str(key)


def leaves(node: Node) -> dict[str, LeafNode]:
    """Return the leaves of a tree by name.

    Raises:
        CheckpointError: Two have one name, such as those of the keys `1` and `"1"` of a dict.
    """
    found: dict[str, LeafNode] = {}
    for one in _each(node):
        if isinstance(one, LeafNode):
            if one.name in found:
                raise CheckpointError(f"two leaves have the name {one.name!r}; rename a key of the tree")
            found[one.name] = one
    return found


def subtrees(node: Node) -> dict[str, Node]:
    """Return every node of a tree by name."""
    return {one.name: one for one in _each(node)}


def fixed(node: Node) -> set[str]:
    """Return the leaves of a template that an object takes over in place."""
    held = [one for one in _each(node) if isinstance(one, Branch) and one.in_place]
    return {name for one in held for name in leaves(one)}


def wholes(node: Node) -> list[Whole]:
    """Return the objects of a template that take a subtree as it is."""
    return [one for one in _each(node) if isinstance(one, Whole)]


def rebuild(node: Node, values: Mapping[str, Any]) -> Any:
    """Return a tree with other leaves.

    Args:
        node: Its containers.
        values: Name of each leaf, and of each object that takes a subtree, to what stands there.
    """
    if isinstance(node, Branch):
        return node.build([rebuild(child, values) for child in node.children])
    return values[node.name]


def open_plain(value: Any) -> Opened | None:
    """Take apart a dict, a list, a tuple, a named tuple or a dataclass; None for anything else."""
    if isinstance(value, dict):
        return Opened("dict", tuple(value), tuple(value.values()), lambda made: _like_dict(value, made))
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return Opened("fields", value._fields, value, lambda made: type(value)(*made), type_name(value))
    if isinstance(value, list | tuple):
        kind = list if isinstance(value, list) else tuple
        return Opened("list" if kind is list else "tuple", range(len(value)), value, kind)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        names = tuple(field.name for field in dataclasses.fields(value))
        return Opened(
            "fields",
            names,
            [getattr(value, n) for n in names],
            lambda made: _replaced(value, names, made),
            type_name(value),
        )
    return None


def is_text(value: str) -> bool:
    """Return whether text is without halves of surrogate pairs, which no file holds."""
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def type_name(value: Any) -> str:
    """Return the name of the class of a value, for people."""
    return f"{type(value).__module__}.{type(value).__qualname__}"


def _each(node: Node) -> Iterator[Node]:
    yield node
    if isinstance(node, Branch):
        for child in node.children:
            yield from _each(child)


def _like_dict(value: dict[Any, Any], made: list[Any]) -> dict[Any, Any]:
    """Return a dict of the same class with other values."""
    if type(value) is dict:
        return dict(zip(value, made, strict=True))
    other = copy.copy(value)
    for key, item in zip(value, made, strict=True):
        other[key] = item  # a Counter's `update` would add
    return other


def _replaced(value: Any, names: Sequence[str], made: list[Any]) -> Any:
    """Return a copy of a dataclass, frozen or not, with other fields; `__init__` is not called."""
    other = copy.copy(value)
    for name, item in zip(names, made, strict=True):
        object.__setattr__(other, name, item)
    return other
