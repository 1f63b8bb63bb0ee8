"""A writer of a format: what it can hold, and writing a tree to a draft, block by block."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from parity.formats.tree import Opaque, Tree, TreeLeaf, leaf_name, leaves

__all__ = ["Writer", "is_text", "misfits"]


@dataclass(frozen=True, kw_only=True)
class Writer:
    """One format that is written; the caller makes drafts durable and gives them their names."""

    format: str
    """Name, as `--to` takes it."""
    directory: bool
    """Whether a checkpoint of it is a directory; a file otherwise."""
    cannot_hold: Callable[[Tree], list[tuple[str, str]]]
    """Takes a tree and returns what of it the format cannot hold bit for bit: name of the leaf, and why."""
    write: Callable[[Tree, Path], None]
    """Takes a tree and a path that does not exist, and writes it there. Arrays are read and written by blocks, so
    that the memory it takes does not grow with them. Raises OSError for a disk that is full."""
    read: Callable[[Path], Tree]
    """Takes the path of what `write` wrote, and returns its tree again by the reader of the format, for a comparison
    leaf by leaf; its containers may be others, and its keys text."""


def is_text(name: str) -> bool:
    """Return whether a name can be written in UTF-8; half of a pair of UTF-16, which a pickle may hold, cannot.

    Example:
        >>> is_text("größe"), is_text(chr(0xD800))
        (True, False)
    """
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def misfits(tree: Tree, why: Callable[[TreeLeaf], str], *, flat: str = "") -> list[tuple[str, str]]:
    """Return what of a tree a format cannot hold bit for bit, leaf by leaf: name, and why.

    Args:
        tree: What would be written.
        why: Returns why the format cannot hold a leaf; empty where it can. Not asked of what only code could rebuild,
            which no format holds.
        flat: Name of a format that holds one dict, whose leaves go by the text of all their keys; empty for one that
            keeps containers and keys as they are.
    """
    if flat and not (isinstance(tree, dict) and tree):
        return [("the tree", f"{flat} holds a dict with at least one leaf")]
    found, names = [], set[str]()
    for keys, leaf in leaves(tree):
        name = leaf_name(keys)
        if flat and name in names:
            found.append((name, "two leaves have this name once their keys are joined by dots"))
        names.add(name)
        said = f"it is an {leaf}, which only code could rebuild" if isinstance(leaf, Opaque) else why(leaf)
        if said:
            found.append((name, said))
    return found
