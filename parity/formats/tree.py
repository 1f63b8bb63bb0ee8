"""The content of a checkpoint as a tree of plain containers, whose arrays are not loaded."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from parity.errors import CheckpointError
from parity.formats.array import Array

__all__ = ["Key", "Opaque", "Source", "Tree", "TreeLeaf", "leaf_name", "leaves", "map_leaves"]

Key = str | int

Tree = Any
"""A dict (keys are text or integers) or a Counter of such keys, a list, a tuple, an Array, an Opaque, bytes, or a
scalar: None, a bool, an integer, a float, a complex number, text."""

TreeLeaf = Any
"""What stands in a tree where no container does."""

MOST_LEAVES = 1_000_000
"""Most leaves of a tree: a small pickle can name one list a billion times."""

MOST_SCALARS = 200_000
"""Most leaves that are no arrays: every command walks them one by one."""

MOST_TEXT = 64 << 20
"""Most bytes of text in a tree, counted wherever one is named."""

MOST_DEPTH = 100

LISTS = (list, tuple)
"""Containers by position: a union of types would be made anew at each leaf."""


@dataclass(frozen=True)
class Opaque:
    """An object that only code could rebuild; nothing of it was executed."""

    name: str
    """Dotted name of its class or function, such as `transformers.training_args.TrainingArguments`."""
    content: Tree = None
    """What it would be rebuilt from: arguments, attributes and arrays."""
    hidden: bool = False
    """Whether the content leaves something out, so that nothing shows two objects of equal contents to be equal."""

    def __str__(self) -> str:
        """Return a phrase for messages."""
        return f"object of {self.name}"


@dataclass(frozen=True, kw_only=True)
class Source:
    """One checkpoint that was recognised and opened, its arrays not loaded."""

    path: Path
    format: str
    """Name of the format, one of `FORMATS`."""
    tree: Tree
    """What it holds."""
    detail: str = ""
    """What is known of the writer, such as a version, for people."""
    words: Mapping[str, str] = field(default_factory=dict)
    """Texts by name that its header has beside the tree, where the format has such."""
    digests: Mapping[str, str] = field(default_factory=dict)
    """Leaf name to the sealed text of its digest, where a seal was read; equal texts are equal leaves."""
    sealed: tuple[str, ...] = ()
    """Neutral leaf names that a seal of one of our runs has digests of; they are not those of the tree."""
    verify: Callable[[], list[tuple[str, str]]] | None = None
    """Checks what the format itself can prove, reading every byte: file or leaf, and what is wrong with it. None
    where the format has nothing to check, so that only its structure was."""
    checked: str = ""
    """What `verify` compares, as a phrase."""
    unproven: str = ""
    """What nothing in the format can prove, as a phrase."""
    divided: str = ""
    """Why leaves are no whole ones, as a phrase: such a checkpoint is read and sealed, and not converted."""
    found_by_reading: bool = False
    """Whether reading every array finds all that `verify` does."""
    notes: tuple[str, ...] = ()
    """What of it is read as something else than it was saved as, as sentences."""

    def arrays(self) -> dict[tuple[Key, ...], Array]:
        """Return the arrays by the keys on the way to them."""
        return {keys: leaf for keys, leaf in leaves(self.tree) if isinstance(leaf, Array)}

    def opaque(self) -> dict[tuple[Key, ...], Opaque]:
        """Return the objects that only code could rebuild."""
        return {keys: leaf for keys, leaf in leaves(self.tree) if isinstance(leaf, Opaque)}

    def faults(self) -> list[tuple[str, str]]:
        """Return what `verify` finds; nothing where the format has nothing to check.

        Raises:
            CheckpointError: The file does not hold what it should.
            OSError: It cannot be read.
        """
        return self.verify() if self.verify else []


def leaf_name(keys: tuple[Key, ...]) -> str:
    """Return the name of a leaf: its keys joined by dots.

    Example:
        >>> leaf_name(("model", "layers.0.weight")), leaf_name(("opt_state", 0, "mu"))
        ('model.layers.0.weight', 'opt_state.0.mu')
    """
    return ".".join(map(str, keys))


def leaves(tree: Tree) -> Iterator[tuple[tuple[Key, ...], TreeLeaf]]:
    """Yield the keys and the value of each leaf of a tree; an empty container is one.

    Raises:
        CheckpointError: It has more than 1,000,000 leaves, or is deeper than 100 containers: one may hold itself.
    """
    for count, one in enumerate(_walk(tree, ())):
        if count >= MOST_LEAVES:
            raise CheckpointError(
                f"the checkpoint names more than {MOST_LEAVES:,} leaves; no training state has so many"
            )
        yield one


def _walk(tree: Tree, keys: tuple[Key, ...]) -> Iterator[tuple[tuple[Key, ...], TreeLeaf]]:
    if len(keys) > MOST_DEPTH:
        raise CheckpointError(
            f"{leaf_name(keys)[:80]}...: nested more than {MOST_DEPTH} deep; a container holds itself"
        )
    if isinstance(tree, dict) and tree:
        for key, child in tree.items():
            yield from _walk(child, (*keys, key))
    elif isinstance(tree, LISTS) and tree:
        for at, child in enumerate(tree):
            yield from _walk(child, (*keys, at))
    else:
        yield keys, tree


def map_leaves(
    tree: Tree, change: Callable[[tuple[Key, ...], TreeLeaf], TreeLeaf], keys: tuple[Key, ...] = ()
) -> Tree:
    """Return a tree of the same containers with other leaves; empty containers stay as they are.

    Args:
        tree: The tree; it is not changed.
        change: Takes the keys on the way to a leaf and the leaf, and returns what takes its place.
        keys: Keys on the way to the tree itself.

    Example:
        >>> map_leaves({"a": [1, 2], "b": {}}, lambda keys, leaf: f"{leaf_name(keys)}={leaf}")
        {'a': ['a.0=1', 'a.1=2'], 'b': {}}
    """
    if isinstance(tree, dict):
        made = {key: map_leaves(child, change, (*keys, key)) for key, child in tree.items()}
        return Counter(made) if isinstance(tree, Counter) else made
    if isinstance(tree, LISTS):
        items = [map_leaves(child, change, (*keys, at)) for at, child in enumerate(tree)]
        return items if isinstance(tree, list) else tuple(items)
    return change(keys, tree)
