"""One writer per run directory: a lock that names its owner and that a dead process cannot hold.

A POSIX record lock: it belongs to one process, the system drops it when that process is gone however it ended, and
children do not inherit it (a `flock` would live on in a forked data worker). Works on local disks and on NFS 4.
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
from types import TracebackType

from parity.errors import LockedError, RunDirectoryError

__all__ = ["WriterLock"]

NAME_SECONDS = 0.5
"""Longest the owner's name is waited for, by a process that is refused anyway."""

_FLOCK = "hhqqi4x"
"""`struct flock` of 64-bit Linux: type, whence, start, length, process."""

_held: set[str] = set()
_guard = threading.Lock()
"""Record locks do not conflict within one process, and closing any handle of the file drops them: so a process keeps
its own list, and never opens a file whose lock it holds."""


class WriterLock:
    """The lock of one run directory; a context manager."""

    def __init__(self, directory: Path) -> None:
        self.path = directory / "lock"
        self._handle: int | None = None
        self._name = ""

    def __enter__(self) -> WriterLock:
        """Take the lock.

        Raises:
            LockedError: Another process, or another trainer of this one, writes to the directory.
            OSError: The directory cannot be written.
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
                    raise RunDirectoryError(f"{self.path} is no regular file; move it away") from error
                raise
            try:
                fcntl.lockf(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                if error.errno not in (errno.EACCES, errno.EAGAIN):  # no lock of somebody else's: the disk fails
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
        except OSError:  # a full disk: the lock holds all the same, it only cannot say whose it is
            pass
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Release it; the file stays, since removing it would let two owners hold two files of one name."""
        with _guard:
            if self._handle is not None:
                handle, self._handle = self._handle, None
                _held.discard(self._name)
                with suppress(OSError):  # the lock is gone with the handle, whatever closing it says
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
    """Say who holds the lock: the system knows the process, the file the rest once that process has written it."""
    pid = 0
    if sys.platform == "linux":
        asked = struct.pack(_FLOCK, fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
        pid = struct.unpack(_FLOCK, fcntl.fcntl(handle, fcntl.F_GETLK, asked))[4]
    until = time.monotonic() + NAME_SECONDS
    while True:
        try:
            owner = json.loads(os.pread(handle, 4096, 0))
            if pid in (owner["pid"], 0, -1):  # 0: gone meanwhile; -1: on another host
                return f"process {owner['pid']} on {owner['host']} since {owner['since']} ({owner['command']})"
        except (ValueError, KeyError, TypeError):
            pass
        if time.monotonic() > until:
            return f"process {pid}" if pid > 0 else "a process that has not written its name"
        time.sleep(0.001)
