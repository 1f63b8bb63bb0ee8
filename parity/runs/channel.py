"""Connections between the processes of one run: JSON lines over TCP, from process 0 to each of the others.

Process 0 listens at the address that every process was given, until all are there. The connection of a process that
is killed is closed by the system, so the others learn of it in milliseconds; TCP's keepalive detects a lost host.
"""

from __future__ import annotations

import json
import select
import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from parity.contract import Place
from parity.errors import ProcessesError

__all__ = ["Connection", "connect", "gather"]

JOIN_SECONDS = 300.0
"""Longest the processes of a run wait for each other at the start; what frameworks wait, too."""

HELLO_SECONDS = 2.0
"""Longest a connection may take to identify its process."""

MOST_BYTES = 4 << 20
"""Longest message; a specification takes a few thousand."""

SILENT_SECONDS = 15
"""After so long without an answer from the other host, a connection counts as lost."""

POLL_SECONDS = 0.1
"""Between two looks at whether a signal asks to stop."""

Message = dict[str, Any]
Stopped = Callable[[], None]
"""Called while waiting; raises if the process should stop."""


class Connection:
    """One connection, used by one reader and any number of writers."""

    def __init__(self, connected: socket.socket) -> None:
        self._socket, self._rest, self._writing = connected, b"", threading.Lock()
        connected.setblocking(True)
        _keep_alive(connected)

    def send(self, message: Message) -> None:
        """Send a message.

        Raises:
            OSError: The other process is gone.
        """
        with self._writing:
            self._socket.sendall(json.dumps(message).encode() + b"\n")

    def receive(self, seconds: float | None = None) -> Message | None:
        """Return the next message, or None if none came in so many seconds.

        Raises:
            EOFError: The other process has closed the connection.
            OSError: It is gone.
            ValueError: What came is no message.
        """
        until = None if seconds is None else time.monotonic() + seconds
        poll = select.poll()
        poll.register(self._socket, select.POLLIN)
        while b"\n" not in self._rest:
            left = None if until is None else max(0.0, until - time.monotonic()) * 1000
            if not poll.poll(left):
                return None
            data = self._socket.recv(1 << 16)
            if not data:
                raise EOFError
            self._rest += data
            if len(self._rest) > MOST_BYTES:
                raise ValueError("a message is too long")
        line, _, self._rest = self._rest.partition(b"\n")
        message = json.loads(line)
        if not isinstance(message, dict):
            raise ValueError("a message is no object")
        return message

    def finish(self) -> None:
        """Send no more; the other side receives what was sent, and then the end."""
        with suppress(OSError):  # it is gone
            self._socket.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        """Close it."""
        self._socket.close()


def gather(place: Place, hello: Message, stopped: Stopped) -> tuple[list[Message], dict[int, Connection]]:
    """Wait in process 0 for all others.

    Args:
        place: That of process 0.
        hello: What this process reports of itself.
        stopped: Called while waiting.

    Returns:
        What each process reported of itself, by index; and the connections to the others.

    Raises:
        ProcessesError: The address cannot be used, or not all came.
    """
    hellos, found = {0: hello}, dict[int, Connection]()
    try:
        with _listen(place) as server:
            until = time.monotonic() + JOIN_SECONDS
            server.settimeout(POLL_SECONDS)
            while len(hellos) < place.count:
                stopped()
                if time.monotonic() > until:
                    missing = ", ".join(str(i) for i in range(place.count) if i not in hellos)
                    raise ProcessesError(f"of {place.count} processes, {missing} did not come to {place.address}")
                _accept(place, server, hellos, found)
            server.settimeout(0)
            while _accept(place, server, hellos, found):
                pass  # a process that came twice is refused
        welcome = [hellos[index] for index in range(place.count)]
        for connection in found.values():
            connection.send({"welcome": welcome})
    except BaseException as error:
        for connection in found.values():
            _refuse(connection, f"process 0 of {place.count} gave up: {error}")
        raise
    return welcome, found


def connect(place: Place, hello: Message, stopped: Stopped) -> tuple[list[Message], Connection]:
    """Connect another process to process 0, and wait until all others are there.

    Args:
        place: That of this process.
        hello: What this process reports of itself.
        stopped: Called while waiting.

    Returns:
        What each process reported of itself, by index; and the connection to process 0.

    Raises:
        ProcessesError: Process 0 does not answer within `JOIN_SECONDS`, closes the connection, or refuses this
            process.
    """
    until = time.monotonic() + JOIN_SECONDS
    while True:
        stopped()
        try:
            connection = Connection(socket.create_connection((place.host, place.port), timeout=1.0))
            break
        except OSError as error:  # not started yet, or its host's name is not known yet
            if time.monotonic() > until:
                problem = f"process 0 of {place.count} does not answer at {place.address}: {error}"
                raise ProcessesError(problem) from error
            time.sleep(POLL_SECONDS)
    try:
        connection.send({"index": place.index, "count": place.count, "hello": hello})
        while (message := connection.receive(POLL_SECONDS)) is None:
            stopped()
        if "welcome" not in message:
            raise ProcessesError(str(message.get("refused")))
    except BaseException as error:
        connection.close()
        if isinstance(error, OSError | EOFError | ValueError):
            problem = "closed the connection: it has ended, or all processes are there already"
            raise ProcessesError(f"process 0 of {place.count} at {place.address} {problem}") from error
        raise
    return message["welcome"], connection


def _accept(place: Place, server: socket.socket, hellos: dict[int, Message], found: dict[int, Connection]) -> bool:
    """Take in one process, if one is connecting; anything else that connects is left alone.

    Returns:
        Whether anything was connecting.
    """
    try:
        connected, _ = server.accept()
    except (TimeoutError, BlockingIOError):
        return False
    connection = Connection(connected)
    try:
        message = connection.receive(HELLO_SECONDS) or {}
        index, count, hello = message.get("index"), message.get("count"), message.get("hello")
    except (OSError, EOFError, ValueError):
        connection.close()
        return True
    if not isinstance(hello, dict) or not isinstance(index, int):
        connection.close()
    elif count != place.count:
        _refuse(connection, f"this process was started as one of {count}, process 0 as one of {place.count}")
    elif index in hellos or not 0 < index < place.count:
        _refuse(connection, f"there is a process {index} of {place.count} already")
    else:
        hellos[index], found[index] = hello, connection
    return True


def _refuse(connection: Connection, why: str) -> None:
    with suppress(OSError):
        connection.send({"refused": why})
    connection.close()


def _listen(place: Place) -> socket.socket:
    """Listen on the port of the address, on every interface; the port is free again once this is closed."""
    both = socket.has_dualstack_ipv6()
    family = socket.AF_INET6 if both else socket.AF_INET
    try:
        return socket.create_server(("", place.port), family=family, dualstack_ipv6=both)
    except OSError as error:
        raise ProcessesError(f"process 0 cannot listen at {place.address}: {error.strerror or error}") from error


def _keep_alive(connected: socket.socket) -> None:
    """Have the system find out when the other host is gone, also while nothing is sent."""
    connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connected.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    if hasattr(socket, "TCP_USER_TIMEOUT"):  # Linux
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, SILENT_SECONDS // 3)
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, SILENT_SECONDS // 3)
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 2)
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, SILENT_SECONDS * 1000)
