"""Runs as forks of a process that has imported the training function: its client, and a forked process."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections.abc import Collection
from contextlib import suppress
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from multiprocessing.reduction import send_handle
from typing import Any

from parity.checks.live.fork_server import STATUS, can_fork, serve

__all__ = ["Forked", "Forks", "can_fork"]


class Forked:
    """A process that was forked: `pid`, `sentinel`, `exitcode`, `join` as those of `multiprocessing.Process`."""

    def __init__(self, pid: int, status: int) -> None:
        self.pid, self.sentinel, self._status = pid, status, status
        self.exitcode: int | None = None

    def end(self) -> None:
        """Kill it, and all that it started, if it has not ended; its number may be another's after that."""
        if self._status >= 0 and not wait([self._status], 0):
            for kill in (os.killpg, os.kill):
                with suppress(ProcessLookupError, PermissionError):
                    kill(self.pid, signal.SIGKILL)
        self.join()

    def join(self) -> None:
        """Wait for its end; a process that forked it and is gone has taken it along."""
        if self._status < 0:
            return
        told = _read(self._status, STATUS.size)
        self.exitcode = STATUS.unpack(told)[0] if told else -signal.SIGKILL
        os.close(self._status)
        self._status = -1


class Forks:
    """The process that forks, as long as it is needed.

    Args:
        train: The training function or its file, as it is passed to a new process.
    """

    def __init__(self, train: Any) -> None:
        self._train = train
        self._lock = threading.Lock()
        self._requests: Connection | None = None
        self._process: BaseProcess | None = None
        self._known: set[str] = set()

    def start(self) -> None:
        """Start it; it imports the function."""
        context = multiprocessing.get_context("spawn")
        self._requests, theirs = context.Pipe()
        with theirs:
            self._process = context.Process(target=serve, args=(theirs, os.getpid()))
            self._process.start()
        self._send(self._train)

    def load(self, names: Collection[str]) -> None:
        """Have it import modules that a run has imported, before it forks the next one."""
        new = set(names) - self._known
        if new:
            self._known |= new
            self._send(("load", [name for name in names if name in new]))

    def fork(self, rows: Connection, *given: Any) -> Forked | None:
        """Return the process of a run, None where it must be started otherwise.

        Args:
            rows: Takes the rows of the trace.
            given: The arguments of `run_child` after the function.
        """
        ours, theirs = os.pipe()
        try:
            sent = self._send(("run", *given), rows.fileno(), theirs)
        finally:
            os.close(theirs)
        told = _read(ours, STATUS.size) if sent else b""
        pid = STATUS.unpack(told)[0] if told else 0
        if pid:
            return Forked(pid, ours)
        os.close(ours)
        return None

    def close(self) -> None:
        """End it, and what it has forked."""
        with self._lock:
            if self._requests is not None:
                self._requests.close()
                self._requests = None
            if self._process is not None:
                self._process.kill()
                self._process.join()
                self._process = None

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
