"""The lock that admits one writer to a run directory, names its owner and never outlives it.

It is a POSIX record lock: it belongs to one process, the system releases it when that process ends in any way, and
child processes do not inherit it (a `flock` would stay held by a forked data worker). It works on local disks and on
NFS 4.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import socket
import struct
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path

from parity.errors import LockedError, RunDirectoryError

__all__ = ["WriterLock"]

NAME_SECONDS = 0.5
"""Longest time that a refused process waits for the owner to write its name, for the message."""

_FLOCK = "hhqqi4x"
"""`struct flock` of 64-bit Linux: type, whence, start, length, process."""

_held: set[str] = set()
_guard = threading.Lock()
"""Guards `_held`, the paths that this process has locked. Record locks do not conflict within one process, and
closing any handle of a file releases its lock; so a process keeps its own list and never opens a file that it
has locked."""


class WriterLock:
    """The lock of one run directory; a context manager.

    Args:
        directory: The run directory; created on entry if it does not exist. The lock is its file `lock`.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as home, WriterLock(Path(home)):
        ...     try:
        ...         WriterLock(Path(home)).__enter__()
        ...     except LockedError as error:
        ...         print(error.owner.partition(": ")[2])
        this one, by another trainer
    """

    def __init__(self, directory: Path) -> None:
        self.path = directory / "lock"
        self._handle: int | None = None
        self._name = ""

    def __enter__(self) -> WriterLock:
        """Take the lock.

        Raises:
            LockedError: Another process, or another trainer of this process, has it.
            RunDirectoryError: Its `lock` is not a regular file.
            OSError: The directory is a file, or cannot be written.
        """
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self._name = os.path.realpath(self.path)
        with _guard:
            if self._name in _held:
                raise LockedError(self.path.parent, f"process {os.getpid()}: this one, by another trainer")
            try:
                handle = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o644)
            except OSError as error:
                if error.errno in (errno.EISDIR, errno.ELOOP, errno.ENXIO):
                    raise RunDirectoryError(f"{self.path} is not a regular file; move it away") from error
                raise
            try:
                fcntl.lockf(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                if error.errno not in (errno.EACCES, errno.EAGAIN):  # not a conflict: the disk fails
                    os.close(handle)
                    raise
                owner = _name_owner(handle)
                os.close(handle)
                raise LockedError(self.path.parent, owner) from error
            except BaseException:
                os.close(handle)
                raise
            _held.add(self._name)
            self._handle = handle
        try:
            os.ftruncate(handle, 0)
            os.pwrite(handle, _owner().encode(), 0)
        except OSError:  # a full disk: the lock is held, only without the owner's name
            pass
        return self

    def __exit__(self, *_: object) -> None:
        """Release the lock; its file stays, since removing it would let two processes lock two files of one name."""
        with _guard:
            if self._handle is not None:
                handle, self._handle = self._handle, None
                _held.discard(self._name)
                with suppress(OSError):  # an error of close releases the lock too
                    os.close(handle)


def _owner() -> str:
    value = {
        "pid": os.getpid(),
        "host": socket.gethostname(),
        "since": time.strftime("%Y-%m-%d %H:%M:%S %z"),
        "command": " ".join(sys.argv)[:1000],
    }
    return json.dumps(value) + "\n"


def _name_owner(handle: int) -> str:
    """Describe the owner: process ID from the kernel, host, start time and command from the lock file.

    The owner writes the file right after it takes the lock, so this waits for up to `NAME_SECONDS`.
    """
    pid = 0
    if sys.platform == "linux":
        asked = struct.pack(_FLOCK, fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
        pid = struct.unpack(_FLOCK, fcntl.fcntl(handle, fcntl.F_GETLK, asked))[4]
    until = time.monotonic() + NAME_SECONDS
    while True:
        try:
            owner = json.loads(os.pread(handle, 4096, 0))
            if pid in (owner["pid"], 0, -1):  # 0: released meanwhile; -1: on another host
                return f"process {owner['pid']} on {owner['host']} since {owner['since']} ({owner['command']})"
        except (ValueError, KeyError, TypeError):
            pass
        if time.monotonic() > until:
            return f"process {pid}" if pid > 0 else "a process that has not written its name"
        time.sleep(0.001)
