"""A disk in memory: folders and files as nodes, what operations do to them, and the tree seen from the root."""

import os
import tempfile
from collections.abc import Iterable
from pathlib import Path

from tests.crash.operations import Cut, Entry, Operation, Operations, Write

__all__ = ["Disk", "Stage", "Tree", "applied", "enter", "put", "replay", "seen", "tree_on_disk"]

Tree = dict[str, bytes | None]
"""Relative path to the bytes of a file, or None for a folder; in no particular order."""

POOL = 64 << 20
"""Bytes of contents that a stage keeps at hand."""


class Disk:
    """Entries of every folder and bytes of every file, by node; the root is node 0."""

    def __init__(self, folders: Iterable[int]) -> None:
        self.entries: dict[int, dict[str, int]] = {folder: {} for folder in folders}
        self.contents: dict[int, bytes] = {}

    def apply(self, operation: Operation) -> None:
        """Do one operation; syncs and marks change nothing."""
        if isinstance(operation, Entry):
            enter(self.entries[operation.folder], operation)
        elif isinstance(operation, Write | Cut):
            self.contents[operation.node] = applied(self.contents.get(operation.node, b""), operation)

    def tree(self) -> Tree:
        """Return what is seen from the root; nodes without a name are not."""
        return seen(self.entries, self.contents)


def enter(names: dict[str, int], operation: Entry) -> None:
    """Change the names of a folder."""
    for name, node in operation.names:
        if node is None:
            names.pop(name, None)
        else:
            names[name] = node


def applied(content: bytes, operation: Write | Cut) -> bytes:
    """Return the bytes of a file after a write or a change of its size; a gap is zero."""
    if isinstance(operation, Cut):
        return content[: operation.size].ljust(operation.size, b"\0")
    start, end = operation.start, operation.start + len(operation.data)
    return content[:start].ljust(start, b"\0") + operation.data + content[end:]


def seen(entries: dict[int, dict[str, int]], contents: dict[int, bytes]) -> Tree:
    """Return the tree below node 0."""
    tree: Tree = {}
    waiting = [(0, "")]
    while waiting:
        folder, path = waiting.pop()
        for name, node in entries[folder].items():
            whole = path + name
            if node in entries:
                tree[whole] = None
                waiting.append((node, whole + "/"))
            else:
                tree[whole] = contents.get(node, b"")
    return tree


def replay(operations: Operations, count: int) -> Tree:
    """Return the tree after the first `count` operations, when nothing is lost."""
    disk = Disk(operations.folders)
    for operation in operations.done[:count]:
        disk.apply(operation)
    return disk.tree()


def tree_on_disk(root: Path) -> Tree:
    """Read a real directory."""
    tree: Tree = {}
    for path in root.rglob("*"):
        tree[path.relative_to(root).as_posix()] = None if path.is_dir() else path.read_bytes()
    return tree


def put(tree: Tree, root: Path) -> Path:
    """Write a tree to a real directory, which is made, and return it."""
    root.mkdir(parents=True)
    for path, content in sorted(tree.items()):
        if content is None:
            (root / path).mkdir()
        else:
            (root / path).write_bytes(content)
    return root


class Stage:
    """A real directory that shows one tree after the other; only what differs is touched.

    Every content is written once, and linked to wherever a tree has it: whoever looks may read and must not write.
    Use it as a context: it lives in memory where the system has such a place.
    """

    def __init__(self) -> None:
        memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
        self._home = tempfile.TemporaryDirectory(prefix="parity-crash-", dir=memory)
        self.path, self._pool = Path(self._home.name, "run"), Path(self._home.name, "pool")
        self.path.mkdir()
        self._pool.mkdir()
        self._kept: dict[bytes, str] = {}
        self._size = 0
        self._shown: Tree = {}

    def __enter__(self) -> "Stage":
        return self

    def __exit__(self, *_: object) -> None:
        self._home.cleanup()

    def show(self, tree: Tree) -> Path:
        """Make the directory hold exactly a tree, and return it."""
        root, shown = str(self.path) + "/", self._shown
        gone = [path for path, content in shown.items() if path not in tree or tree[path] != content]
        for path in sorted(gone, reverse=True):  # what is in a folder before the folder
            if shown[path] is None:
                os.rmdir(root + path)
            else:
                os.unlink(root + path)
        for path in sorted(path for path in tree if path not in shown or shown[path] != tree[path]):
            content = tree[path]
            if content is None:
                os.mkdir(root + path)
            else:
                os.link(self._stored(content), root + path)
        self._shown = dict(tree)
        return self.path

    def _stored(self, content: bytes) -> str:
        if content not in self._kept:
            if self._size > POOL:  # the links that are shown keep theirs
                for path in self._kept.values():
                    os.unlink(path)
                self._kept, self._size = {}, 0
            path = f"{self._pool}/{len(self._kept)}"
            with open(path, "wb") as file:
                file.write(content)
            self._kept[content] = path
            self._size += len(content)
        return self._kept[content]
