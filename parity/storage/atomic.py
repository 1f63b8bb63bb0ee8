"""Atomic, durable writes: write a draft, fsync it, rename it, fsync the directory, in that order.

After a crash at any point a reader finds the old content or the new one. Every `OSError` raised here names its file
and the operation that failed, which `reason` puts into one line.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

__all__ = [
    "drafted",
    "fsync_directory",
    "fsync_files",
    "fsync_tree",
    "make_directory",
    "move",
    "named",
    "reason",
    "remove_tree",
    "replace_file",
    "require_writable",
    "write_file",
]

SYNCING = 8
"""Threads that wait for the disk at once: 20 files of a sharded checkpoint took 70 ms one after the other."""

REMOVED = ".removed-"
"""Prefix of a directory that is being removed. It is renamed to this first, so that a kill halfway never leaves an
incomplete directory under the old name."""


@contextmanager
def named(path: Path, operation: str = "write") -> Iterator[None]:
    """Add the operation and the path to an OSError, for `reason`; the system names neither for a write or an fsync.

    Args:
        path: The file that the block works on; used where the error names no file.
        operation: What the block does to it, such as `fsync`; an inner `named` takes precedence.

    Raises:
        OSError: The error of the block, with `operation` and `filename` set.
    """
    try:
        yield
    except OSError as error:
        if error.errno is not None:
            vars(error).setdefault("operation", operation)
            if error.filename is None or os.sep not in str(error.filename):  # rmtree's are names without a directory
                error.filename = str(path)
        raise


@contextmanager
def drafted(path: Path, draft: Path) -> Iterator[None]:
    """Name the file that was to be in an OSError that names its draft, which nobody has asked for.

    Args:
        path: What the draft becomes.
        draft: What the block makes, or something in it.

    Raises:
        OSError: The error of the block.
    """
    try:
        with named(path):
            yield
    except OSError as error:
        if error.filename is not None and str(error.filename).startswith(str(draft)):
            error.filename = str(path)
        raise


def reason(error: BaseException, operation: str = "read", path: Path | None = None) -> str:
    """Return why something failed, in one line: operation, file and the system's reason.

    Args:
        error: The error; anything but an `OSError` of the system gives its own text, with white space collapsed.
        operation: The operation, where the error does not have one from `named`.
        path: The file, where the error names none.

    Example:
        >>> reason(FileNotFoundError(2, "No such file or directory", "seal.json"))
        'read seal.json: No such file or directory'
    """
    file = path if not isinstance(error, OSError) or error.filename is None else error.filename
    if not isinstance(error, OSError) or error.errno is None or file is None:
        return " ".join(str(error).split())
    return f"{vars(error).get('operation', operation)} {file}: {error.strerror}"


def write_file(path: Path, text: str, *, sync: bool = True) -> None:
    """Write a new file in UTF-8 and fsync it; its directory entry is not yet durable.

    Args:
        path: The file, which does not exist.
        text: Its content.
        sync: Whether it is made durable now; else whoever relies on it does, as `fsync_tree`.

    Raises:
        FileExistsError: The file exists.
        OSError: It cannot be written.
    """
    with named(path), path.open("x", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        if sync:
            with named(path, "fsync"):
                os.fsync(file.fileno())


def replace_file(path: Path, text: str) -> None:
    """Replace a file atomically and durably: a reader, also one after a crash, sees the old text or the new one.

    Args:
        path: The file; it need not exist, its directory must.
        text: The whole new content, written in UTF-8.

    Raises:
        OSError: It cannot be written; the old file is unchanged, unless only the last fsync, of the directory,
            failed.
    """
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    if os.path.lexists(draft):  # a read-only file system refuses to remove what is not there
        with named(draft, "remove"):
            draft.unlink()
    try:
        with drafted(path, draft):
            write_file(draft, text)
        with named(draft, "rename"):
            draft.rename(path)
    except OSError:
        if os.path.lexists(draft):
            draft.unlink()
        raise
    fsync_directory(path.parent)


def fsync_files(paths: Iterable[Path]) -> None:
    """Make the contents of files durable; files that do not exist are skipped.

    Raises:
        OSError: One cannot be opened or synchronized.
    """
    for path in paths:
        if path.exists():
            _fsync(path)


def fsync_directory(path: Path) -> None:
    """Make the entries of a directory durable.

    Raises:
        OSError: It cannot be opened or synchronized, or is no directory.
    """
    _fsync(path, os.O_DIRECTORY)


def fsync_tree(root: Path) -> None:
    """Make every file and directory below a directory durable, the entries of the root last.

    Several threads do it: each waits for the disk, and a journal commits what waits for it at once.

    Raises:
        OSError: Something cannot be opened or synchronized, or a file is a link.
    """
    files: list[Path] = []
    folders: dict[int, list[Path]] = {}
    for folder, _, names in os.walk(root):
        path = Path(folder)
        files += [path / name for name in names]
        folders.setdefault(len(path.parts), []).append(path)
    with ThreadPoolExecutor(SYNCING) as pool:
        list(pool.map(lambda path: _fsync(path, os.O_NOFOLLOW), files))
        for depth in sorted(folders, reverse=True):
            list(pool.map(fsync_directory, folders[depth]))


def make_directory(path: Path) -> None:
    """Create a directory and its missing parents, durably.

    Raises:
        OSError: One cannot be created or synchronized.
    """
    if path.is_dir():
        return
    make_directory(path.parent)
    with named(path, "mkdir"):
        path.mkdir(exist_ok=True)
    fsync_directory(path.parent)


def move(source: Path, target: Path) -> None:
    """Rename a file or directory and make that durable in both parent directories.

    Args:
        source: The file or directory.
        target: Its new path, on the same file system; a file or an empty directory there is replaced by its like.

    Raises:
        OSError: It cannot be renamed, or a directory cannot be synchronized.
    """
    with named(source, "rename"):
        source.rename(target)
    fsync_directory(target.parent)
    if source.parent != target.parent:
        fsync_directory(source.parent)


def remove_tree(path: Path) -> None:
    """Remove a directory; after a crash halfway, it is either untouched or named `.removed-*`.

    Raises:
        OSError: It cannot be renamed, or something in it cannot be removed.
    """
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


def require_writable(directory: Path) -> None:
    """Make a directory, and a file in it that is removed again: before hours of work whose result is to go there.

    Args:
        directory: May not exist yet; its parents neither.

    Raises:
        OSError: It cannot be made, or nothing can be written to it.
    """
    directory.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryFile(dir=directory) as probe:
        probe.write(b"0")
