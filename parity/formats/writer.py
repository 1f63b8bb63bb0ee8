"""A writer of a format: what it can hold, and writing a tree to a draft, block by block."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from parity.formats.tree import Tree

__all__ = ["Writer"]


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
