"""Temporary directories of this process, removed after use, and also when the process ends early.

Each has a file that its process holds locked. The system lets go of the lock when the process ends in any way; the
next process that makes such a directory removes those whose owner is gone.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

__all__ = ["remove_scratch", "scratch_directory"]

ATTEMPTS = 20
"""How often the removal of a directory is repeated while other threads still write to it."""

OWNER = ".owner"
"""The file that is locked. A record lock: forked workers do not inherit it."""

_open: set[Path] = set()
"""Those of this process, which must not open their locked files again: closing them would let go of the lock."""


@contextmanager
def scratch_directory(prefix: str, parent: Path | None = None) -> Iterator[Path]:
    """Make a temporary directory and remove it afterwards, whatever is still written to it.

    Args:
        prefix: What its name begins with; directories with it that processes left when they were killed are removed.
        parent: Where it is made; by default where temporary files go.
    """
    _remove_abandoned(prefix, Path(parent or tempfile.gettempdir()))
    with tempfile.TemporaryDirectory(prefix=prefix, dir=parent, ignore_cleanup_errors=True) as name:
        path = Path(name)
        _open.add(path)
        lock = _own(path)
        try:
            yield path
        finally:
            _open.discard(path)
            if lock is not None:
                os.close(lock)


def remove_scratch() -> None:
    """Remove every such directory now: for a process that ends without unwinding."""
    for path in list(_open):
        for _ in range(ATTEMPTS):
            shutil.rmtree(path, ignore_errors=True)
            if not path.exists():
                break
            time.sleep(0.01)


def _own(path: Path) -> int | None:
    """Lock a directory's file, and give it its name only then: one that has the name and no lock has no owner."""
    with suppress(OSError):  # a file system without locks: then nobody removes what is left there
        made = os.open(path / f"{OWNER}-new", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.lockf(made, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.rename(path / f"{OWNER}-new", path / OWNER)
        except OSError:
            os.close(made)
            raise
        return made
    return None


def _remove_abandoned(prefix: str, parent: Path) -> None:
    with suppress(OSError), os.scandir(parent) as entries:
        for entry in entries:
            path = Path(entry.path)
            ours = entry.name.startswith(prefix) and path not in _open and entry.is_dir(follow_symlinks=False)
            if ours and entry.stat(follow_symlinks=False).st_uid == os.getuid() and _is_abandoned(path / OWNER):
                shutil.rmtree(path, ignore_errors=True)


def _is_abandoned(owner: Path) -> bool:
    """Return whether a lock is there that nobody holds."""
    with suppress(OSError):
        handle = os.open(owner, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
        try:
            fcntl.lockf(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        finally:
            os.close(handle)
    return False
