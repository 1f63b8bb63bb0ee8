"""The client of a process that forks, and a forked process as its client sees it."""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import threading
from collections.abc import Callable, Collection
from contextlib import suppress
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from multiprocessing.reduction import send_handle
from typing import Any

from parity.forks.janitor import kill_tree
from parity.forks.server import STATUS

__all__ = ["ForkServer", "Forked"]


class Forked:
    """A process that was forked; used as a `multiprocessing.Process` or a `subprocess.Popen`.

    Attributes:
        pid: Its number.
        sentinel: Descriptor that can be read when it has ended.
        exitcode: None until its end was noticed; negative for a signal.
    """

    def __init__(self, pid: int, status: int) -> None:
        self.pid, self.sentinel, self._status = pid, status, status
        self.exitcode: int | None = None
        self._lock = threading.Lock()

    def poll(self, seconds: float | None = 0.0) -> int | None:
        """Return its exit code, None if it has not ended after some seconds (None: wait for it)."""
        if not self._lock.acquire(timeout=-1 if seconds is None else max(seconds, 0.001)):
            return None  # another thread waits for it
        try:
            if self._status >= 0 and wait([self._status], seconds):
                status = _read(self._status, STATUS.size)  # what forked it, and is gone, has taken it along
                self.exitcode = STATUS.unpack(status)[0] if status else -signal.SIGKILL
                os.close(self._status)
                self._status = -1
            return self.exitcode
        finally:
            self._lock.release()

    def wait(self, timeout: float | None = None) -> int:
        """Wait for its end, and return its exit code.

        Raises:
            subprocess.TimeoutExpired: It has not ended within `timeout` seconds.
        """
        code = self.poll(timeout)
        if code is None:
            raise subprocess.TimeoutExpired(f"process {self.pid}", timeout or 0.0)
        return code

    def join(self) -> None:
        """Wait for its end."""
        self.wait()

    def send_signal(self, number: int) -> None:
        """Send a signal to it, if it has not ended; its number may be another's after that."""
        if self.poll() is None:
            with suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def end(self) -> None:
        """Kill it, and all that it started, if it has not ended."""
        if self.poll() is None:
            kill_tree(self.pid)
        self.join()


class ForkServer:
    """The process that forks, as long as it is needed; a context manager, which starts and ends it.

    Args:
        start: Starts the process, which calls `serve` with the connection that it is given.
        first: What its `Job.prepare` receives.
    """

    def __init__(self, start: Callable[[Connection], BaseProcess | subprocess.Popen[bytes]], first: Any) -> None:
        self._start, self._first = start, first
        self._lock = threading.Lock()
        self._requests: Connection | None = None
        self._process: BaseProcess | subprocess.Popen[bytes] | None = None
        self._known: set[str] = set()

    def __enter__(self) -> ForkServer:
        self._requests, theirs = multiprocessing.Pipe()
        with theirs:
            self._process = self._start(theirs)
        self._send(self._first)
        return self

    def __exit__(self, *_: object) -> None:
        """End it, and what it has forked."""
        with self._lock:
            if self._requests is not None:
                self._requests.close()
                self._requests = None
            if self._process is not None:
                self._process.kill()
                self._process.join() if isinstance(self._process, BaseProcess) else self._process.wait()
                self._process = None

    def stop(self) -> None:
        """Kill it, also while another thread waits for its answer, and so what it has forked."""
        if self._process is not None:
            self._process.kill()

    def load(self, names: Collection[str]) -> None:
        """Have it import modules that a run has imported, before it forks the next one."""
        new = set(names) - self._known
        if new:
            self._known |= new
            self._send(("load", [name for name in names if name in new]))

    def fork(self, descriptor: int, *given: Any) -> Forked | None:
        """Return a process that runs something, None where it must be started otherwise.

        Args:
            descriptor: Is passed to it.
            given: What its `Job.run` is given.
        """
        ours, theirs = os.pipe()
        try:
            sent = self._send(("run", *given), descriptor, theirs)
        finally:
            os.close(theirs)
        status = _read(ours, STATUS.size) if sent else b""
        pid = STATUS.unpack(status)[0] if status else 0
        if pid:
            return Forked(pid, ours)
        os.close(ours)
        return None

    def _send(self, request: Any, *descriptors: int) -> bool:
        with self._lock, suppress(OSError):  # it is gone: then runs are started otherwise
            if self._requests is not None and self._process is not None and self._process.pid is not None:
                self._requests.send(request)
                for descriptor in descriptors:
                    send_handle(self._requests, descriptor, self._process.pid)
                return True
        return False


def _read(descriptor: int, size: int) -> bytes:
    """Return so many bytes, waiting for them; none where the other end was closed."""
    found = os.read(descriptor, size)
    return found if len(found) == size else b""
