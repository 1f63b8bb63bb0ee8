"""Rank: the place of one process among several that train together, as it learns of it, and where all of them meet.

Each waits at the meeting until all have come, wherever it was started from. A barrier of `multiprocessing` reaches
only what `multiprocessing` started as a new interpreter; forks, and processes of a launcher, reach a socket.
"""

from __future__ import annotations

import os
import secrets
import selectors
import socket
import threading
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from typing import Any, Protocol

__all__ = ["HOST", "Meeting", "MeetingPlace", "MeetingPoint", "Rank", "free_ports", "place_of", "standing_as"]


class Meeting(Protocol):
    """Where all ranks wait for each other, such as a `MeetingPoint`."""

    def wait(self, timeout: float | None = None) -> int:
        """Return when every rank has come."""


@dataclass(frozen=True, kw_only=True)
class Rank:
    """One of the processes that train together."""

    number: int
    """From 0."""
    count: int
    ports: tuple[int, int] | None
    """Ports on which rank 0 may listen: of PyTorch's store and of JAX's coordinator; None where a launcher has told
    the process its place."""
    meeting: Meeting

    def environment(self) -> dict[str, str]:
        """Return the variables by which `torchrun` tells a process its place, and JAX where its coordinator is.

        Source: PyTorch documentation, "torchrun (Elastic Launch)", environment variables; the documentation of
        `jax.distributed.initialize`, which takes the coordinator from JAX_COORDINATOR_ADDRESS and the two numbers as
        arguments.
        """
        if self.ports is None:
            return {}
        return {
            **place_of(self.number, self.count),
            "MASTER_ADDR": HOST,
            "MASTER_PORT": str(self.ports[0]),
            "JAX_COORDINATOR_ADDRESS": f"{HOST}:{self.ports[1]}",
        }


def place_of(number: int, count: int) -> dict[str, str]:
    """Return those variables of a rank that are the same in all runs of a check.

    Args:
        number: Of the rank, from 0.
        count: Number of ranks.
    """
    return {
        "RANK": str(number),
        "LOCAL_RANK": str(number),
        "GROUP_RANK": "0",
        "WORLD_SIZE": str(count),
        "LOCAL_WORLD_SIZE": str(count),
        # as torchrun does, unless it is set: each process would take every processor
        "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", "1"),
    }


_ONE_AT_A_TIME = threading.Lock()
"""The environment is this process's own: two ranks that start at once would get each other's place."""


@contextmanager
def standing_as(wanted: Mapping[str, str]) -> Iterator[None]:
    """Let the processes that are started meanwhile begin with the variables of a rank.

    Args:
        wanted: The variables; none change nothing.
    """
    with _ONE_AT_A_TIME:
        before = {name: os.environ.get(name) for name in wanted}
        os.environ.update(wanted)
        try:
            yield
        finally:
            for name, value in before.items():
                if value is None:
                    del os.environ[name]
                else:
                    os.environ[name] = value


def free_ports() -> tuple[int, int]:
    """Return two ports of this machine that nobody listens on now."""
    with ExitStack() as stack:
        both = [stack.enter_context(socket.socket()) for _ in range(2)]
        for one in both:
            one.bind((HOST, 0))
        return both[0].getsockname()[1], both[1].getsockname()[1]


HOST = "127.0.0.1"
"""All ranks of a check are on this machine."""
_LOOK_SECONDS = 0.2
"""Time between two looks at whether a place is closed."""
_KEY_BYTES = 32


class MeetingPoint:
    """What one process waits with; it can be passed to another process before its first wait.

    Args:
        port: Of the place, on this machine.
        key: What the place knows its own by.
    """

    def __init__(self, port: int, key: bytes) -> None:
        self._port, self._key = port, key
        self._socket: socket.socket | None = None

    def __getstate__(self) -> tuple[int, bytes]:
        return self._port, self._key

    def __setstate__(self, state: tuple[int, bytes]) -> None:
        self.__init__(*state)  # type: ignore[misc]

    def wait(self, timeout: float | None = None) -> int:
        """Return when every process has come.

        Args:
            timeout: Longest wait, in seconds; None for as long as it takes.

        Raises:
            threading.BrokenBarrierError: The place is gone, or the time is over.
        """
        try:
            if self._socket is None:
                self._socket = socket.create_connection((HOST, self._port))
                self._socket.sendall(self._key)
            self._socket.settimeout(timeout)
            self._socket.sendall(b"+")
            if self._socket.recv(1):
                return 0
        except OSError as error:
            raise threading.BrokenBarrierError(f"the meeting of the ranks is over: {error}") from error
        raise threading.BrokenBarrierError("the meeting of the ranks is over")

    def close(self) -> None:
        """Never wait again."""
        if self._socket is not None:
            self._socket.close()


class MeetingPlace:
    """Where a number of processes meet, any number of times; a context manager, which holds a port of this machine.

    A process that is gone never comes: who waits for it waits until the place is closed, or is ended.

    Args:
        count: Number of processes.
    """

    def __init__(self, count: int) -> None:
        self._count, self._key = count, secrets.token_bytes(_KEY_BYTES)
        self._listener = socket.create_server((HOST, 0))
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._serve, name="parity-meeting", daemon=True)

    @property
    def point(self) -> MeetingPoint:
        """Return what one of the processes is given."""
        return MeetingPoint(self._listener.getsockname()[1], self._key)

    def __enter__(self) -> MeetingPlace:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Close it: who waits is let go with an error."""
        self._closed.set()
        self._thread.join()

    def _serve(self) -> None:
        waiting: list[socket.socket] = []
        with selectors.DefaultSelector() as ready, self._listener:
            ready.register(self._listener, selectors.EVENT_READ)
            while not self._closed.is_set():
                for key, _ in ready.select(_LOOK_SECONDS):
                    one: Any = key.fileobj
                    if one is self._listener:
                        self._admit(ready)
                    elif _came(one):
                        waiting.append(one)
                    else:
                        ready.unregister(one)
                        one.close()
                if len(waiting) == self._count:
                    for one in waiting:
                        with suppress(OSError):  # it was killed since it came
                            one.sendall(b"+")
                    waiting = []
            for key in list(ready.get_map().values()):
                key.fileobj.close()  # type: ignore[union-attr]

    def _admit(self, ready: selectors.BaseSelector) -> None:
        """Take a connection of whoever knows the key."""
        one, _ = self._listener.accept()
        one.settimeout(5.0)
        with suppress(OSError):
            if secrets.compare_digest(one.recv(_KEY_BYTES, socket.MSG_WAITALL), self._key):
                ready.register(one, selectors.EVENT_READ)
                return
        one.close()


def _came(one: socket.socket) -> bool:
    with suppress(OSError):
        return bool(one.recv(1))
    return False
