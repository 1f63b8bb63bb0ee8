"""Files that outlive a crash: write, fsync the file, rename, fsync the directory, in that order."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

__all__ = [
    "fsync_directory",
    "fsync_files",
    "fsync_tree",
    "make_directory",
    "move",
    "named",
    "reason",
    "remove_tree",
    "replace_file",
    "write_file",
]

REMOVED = ".removed-"
"""Prefix of a directory that is being removed: it lost its name first, so a kill leaves no half of it."""


@contextmanager
def named(path: Path, operation: str = "write") -> Iterator[None]:
    """Give an OSError its operation, for `reason`, and its path: the system's own names none for a write or fsync."""
    try:
        yield
    except OSError as error:
        if error.errno is not None:
            vars(error).setdefault("operation", operation)
            if error.filename is None or os.sep not in str(error.filename):  # rmtree's are names without a directory
                error.filename = str(path)
        raise


def reason(error: BaseException, operation: str = "read", path: Path | None = None) -> str:
    """Return why something failed, in one line: operation, file and the system's reason; else what the error says.

    Args:
        error: What was raised.
        operation: What was done, where the error does not know it.
        path: To what, likewise.
    """
    file = path if not isinstance(error, OSError) or error.filename is None else error.filename
    if not isinstance(error, OSError) or error.errno is None or file is None:
        return " ".join(str(error).split())
    return f"{vars(error).get('operation', operation)} {file}: {error.strerror}"


def write_file(path: Path, text: str) -> None:
    """Write a new file and fsync it."""
    with named(path), path.open("x", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        with named(path, "fsync"):
            os.fsync(file.fileno())


def replace_file(path: Path, text: str) -> None:
    """Replace a file so that a reader, or a crash, sees the old text or the new one and nothing between."""
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    with named(draft, "remove"):
        draft.unlink(missing_ok=True)
    try:
        write_file(draft, text)
        with named(draft, "rename"):
            draft.rename(path)
    except OSError:
        draft.unlink(missing_ok=True)
        raise
    fsync_directory(path.parent)


def fsync_files(paths: Iterable[Path]) -> None:
    """Make the contents of files durable, of those that are there."""
    for path in paths:
        if path.exists():
            _fsync(path)


def fsync_directory(path: Path) -> None:
    """Make the entries of a directory durable."""
    _fsync(path, os.O_DIRECTORY)


def fsync_tree(root: Path) -> None:
    """Make every file and directory below a directory durable, and its own entries last."""
    for folder, _, files in os.walk(root, topdown=False):
        for name in files:
            _fsync(Path(folder) / name, os.O_NOFOLLOW)
        fsync_directory(Path(folder))


def make_directory(path: Path) -> None:
    """Make a directory and its parents, durably."""
    if path.is_dir():
        return
    make_directory(path.parent)
    with named(path, "mkdir"):
        path.mkdir(exist_ok=True)
    fsync_directory(path.parent)


def move(source: Path, target: Path) -> None:
    """Rename, and make it durable in both directories."""
    with named(source, "rename"):
        source.rename(target)
    fsync_directory(target.parent)
    if source.parent != target.parent:
        fsync_directory(source.parent)


def remove_tree(path: Path) -> None:
    """Remove a directory; it loses its name first, durably, so that a crash leaves all of it or a leftover."""
    doomed = path if path.name.startswith(REMOVED) else path.with_name(f"{REMOVED}{path.name}-{os.getpid()}")
    if doomed != path:
        move(path, doomed)
    with named(doomed, "remove"):
        shutil.rmtree(doomed)


def _fsync(path: Path, flags: int = 0) -> None:
    with named(path, "fsync"):
        handle = os.open(path, os.O_RDONLY | flags)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
