"""The process that forks: it imports what runs need, runs nothing itself, and waits for requests.

A forked process is no child of who asked for it: this one sends its exit code.
"""

from __future__ import annotations

import os
import random
import selectors
import signal
import struct
import warnings
from collections.abc import Sequence
from contextlib import suppress
from multiprocessing.connection import Connection
from multiprocessing.reduction import recv_handle
from typing import Any, Protocol

from parity.forks.parent import end_with_parent
from parity.forks.safe import other_threads

__all__ = ["STATUS", "Job", "serve"]

STATUS = struct.Struct("!i")
"""What a client is told by: the number of a process, 0 where it was not forked; later its exit code."""


class Job(Protocol):
    """What a server imports, and what its forked processes run."""

    def prepare(self, requests: Connection) -> bool:
        """Take the first request, import what it names, and return whether processes may be forked after it."""

    def load(self, what: Any) -> bool:
        """Import what a later request names; return whether processes may be forked after it."""

    def run(self, descriptor: int, given: Sequence[Any]) -> object:
        """Run what was asked for, in a forked process, whose own the descriptor is."""


def serve(requests: Connection, parent: int, job: Job) -> object:
    """Prepare, then fork a process for each request, until nobody can ask any more.

    Returns None when nobody can ask, and, in a forked process, what its run has returned.

    Args:
        requests: Brings what `prepare` takes, then requests: `("load", what)`, or `("run", ...)` with what `run`
            is given, followed by two descriptors: the one it is given, and the one that takes the status.
        parent: Process ID of the client; this process ends with it.
        job: Imports and runs.
    """
    os.setpgid(0, 0)
    end_with_parent(parent)
    with open(os.devnull, "wb") as nowhere:
        os.dup2(nowhere.fileno(), 1)
        os.dup2(nowhere.fileno(), 2)
    whole = job.prepare(requests)
    waiting = selectors.DefaultSelector()
    waiting.register(requests, selectors.EVENT_READ)
    while True:
        for key, _ in waiting.select():
            if key.fileobj is not requests:
                _ended(waiting, key)
                continue
            try:
                what, *rest = requests.recv()
                if what == "load":
                    whole = whole and job.load(rest[0])
                    continue
                descriptor, status = recv_handle(requests), recv_handle(requests)
            except (EOFError, OSError):
                return None
            if _fork(waiting, status, whole and not other_threads()) == 0:
                requests.close()
                return job.run(descriptor, rest)
            os.close(descriptor)


def _fork(waiting: selectors.BaseSelector, status: int, safe: bool) -> int:
    """Fork, or say that it would not be safe; return 0 in the forked process."""
    state = random.getstate()
    pid = -1
    if safe:
        with warnings.catch_warnings(), suppress(OSError):  # no room for one more: a new interpreter may say so
            warnings.simplefilter("ignore")  # JAX and Python fear for threads: there are none
            pid = os.fork()
    if pid == 0:
        random.setstate(state)  # a fork seeds it anew, but what an import seeded stays so in a new process too
        for key in list(waiting.get_map().values()):
            if key.data is not None:
                os.close(key.fd)
                os.close(key.data[1])
        waiting.close()
        os.close(status)
        return 0
    with suppress(BrokenPipeError):
        os.write(status, STATUS.pack(max(pid, 0)))
    if pid > 0:
        waiting.register(os.pidfd_open(pid), selectors.EVENT_READ, (pid, status))
    else:
        os.close(status)
    return pid


def _ended(waiting: selectors.BaseSelector, key: selectors.SelectorKey) -> None:
    """End what a process has left running, and pass its exit code on."""
    pid, status = key.data
    waiting.unregister(key.fileobj)
    os.close(key.fd)
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)  # before its number is free for another
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    with suppress(BrokenPipeError):
        os.write(status, STATUS.pack(code))
    os.close(status)
