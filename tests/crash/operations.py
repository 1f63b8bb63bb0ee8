"""What a process does to one directory tree, in the terms of a crash: names, bytes, syncs.

Files and folders are nodes with numbers, as on a disk: a name is an entry of a folder, and a write goes to the node,
whatever it is called by then.
"""

from dataclasses import dataclass

__all__ = ["MARK", "Cut", "Entry", "Mark", "Operation", "Operations", "Sync", "Write"]

MARK = "/parity-mark-"
"""A path that is asked for and does not exist: the process says where it is."""


@dataclass(frozen=True)
class Entry:
    """Names of one folder change, at once: a file or folder comes, goes, or gets another name."""

    folder: int
    names: tuple[tuple[str, int | None], ...]
    """Name to node; None for a name that is gone."""
    what: str


@dataclass(frozen=True)
class Write:
    """Bytes go into a file."""

    node: int
    start: int
    data: bytes
    what: str


@dataclass(frozen=True)
class Cut:
    """A file gets another size; what is new of it is zero."""

    node: int
    size: int
    what: str


@dataclass(frozen=True)
class Sync:
    """A file's bytes, or a folder's entries, are durable: of the first `covers` operations, those on the node."""

    node: int
    covers: int
    """Operations that had ended when it began; those that ended while it ran are not sure."""
    what: str


@dataclass(frozen=True)
class Mark:
    """The process said where it is."""

    number: int
    what: str = "mark"


Operation = Entry | Write | Cut | Sync | Mark


@dataclass(frozen=True)
class Operations:
    """Everything that happened to a tree, in order; node 0 is its root."""

    done: tuple[Operation, ...]
    folders: frozenset[int]

    def mark(self, number: int) -> int:
        """Return the index of a mark."""
        return next(i for i, op in enumerate(self.done) if isinstance(op, Mark) and op.number == number)
