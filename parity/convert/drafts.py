"""The draft of a conversion: held by its process alone, removed by the next conversion once that process is dead.

A draft is a hidden directory beside the target, which its process keeps locked. The system releases the lock with the
process, so that a lock that can be taken is the proof that nobody writes there any more: the number of a process in
a name is none, as numbers are used again, and other hosts may share the disk. What is looked at and what gets the
target's name is decided under a lock of the directory that both lie in.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import re
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

from parity import storage
from parity.errors import CheckpointError

__all__ = ["Draft", "draft_of", "require_free"]

DRAFT = re.compile(r"\.(?P<name>.+)\.(?P<process>\d+)\.draft")
"""Names of drafts: the target's, and the process that writes it, for people."""

CONTENT = "content"
"""What is written, within the draft."""

TURN_SECONDS = 60.0
"""Longest wait for the lock of the directory; another conversion holds it while it gives its file a name."""

_NO_LOCKS = (errno.ENOLCK, errno.ENOTSUP, errno.EINVAL, errno.EBADF)
"""What a file system without locks answers."""


class Draft:
    """A draft that this process holds."""

    def __init__(self, folder: Path, target: Path) -> None:
        self.folder, self.target = folder, target
        self.path = folder / CONTENT
        """Where the content is written; it does not exist yet."""

    @contextlib.contextmanager
    def turn(self) -> Iterator[None]:
        """Let nobody else name anything in the directory of the target meanwhile.

        Raises:
            CheckpointError: The target exists by now.
        """
        with _locked_parent(self.target.parent):
            require_free(self.target)
            yield


def require_free(target: Path) -> None:
    """Check that a path can be written.

    Raises:
        CheckpointError: It exists, or its parent does not.
    """
    if os.path.lexists(target):
        raise CheckpointError(f"{target} exists already and is not overwritten; give a new path")
    if not target.parent.is_dir():
        raise CheckpointError(f"{target.parent} is no directory; make it, or give another path")


@contextlib.contextmanager
def draft_of(target: Path) -> Iterator[Draft]:
    """Give a draft for a target, and remove what is left of it; first, drafts of processes that died are removed.

    Args:
        target: A path that does not exist.

    Raises:
        CheckpointError: The target exists, or another process that lives is writing it.
        OSError: The directory cannot be written.
    """
    with _locked_parent(target.parent):
        require_free(target)
        _clear(target)
        folder = target.with_name(f".{target.name}.{os.getpid()}.draft")
        with storage.drafted(target, folder):
            folder.mkdir()
        handle = _lock(folder)
    try:
        yield Draft(folder, target)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        if handle is not None:
            os.close(handle)


def _clear(target: Path) -> None:
    """Remove the drafts of dead processes; refuse a target that a living one is writing."""
    for entry in sorted(target.parent.iterdir()):
        match = DRAFT.fullmatch(entry.name)
        if match is None or entry.is_symlink() or not entry.is_dir():
            continue
        if {one.name for one in entry.iterdir()} - {CONTENT}:
            continue  # somebody's own directory of such a name
        handle = _lock(entry)
        if handle is not None:
            shutil.rmtree(entry, ignore_errors=True)
            os.close(handle)
        elif match["name"] == target.name:
            raise CheckpointError(
                f"{target} is being written by another conversion (process {match['process']}); wait for it, or "
                "give another path"
            )


def _lock(folder: Path) -> int | None:
    """Return a handle that locks a directory; None where another process, or this one, has it."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(handle)
        return None
    return handle


@contextlib.contextmanager
def _locked_parent(parent: Path) -> Iterator[None]:
    """Hold the lock of a directory; a file system without locks is used without one.

    Raises:
        CheckpointError: It is no directory, or another process keeps the lock.
    """
    if not parent.is_dir():
        raise CheckpointError(f"{parent} is no directory; make it, or give another path")
    handle = os.open(parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        until = time.monotonic() + TURN_SECONDS
        while True:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except OSError as error:
                if error.errno in _NO_LOCKS:
                    break
                if error.errno not in (errno.EAGAIN, errno.EACCES, errno.EINTR):
                    raise
            if time.monotonic() > until:
                raise CheckpointError(f"{parent} is locked by another process; give a path elsewhere")
            time.sleep(0.01)
        yield
    finally:
        os.close(handle)
