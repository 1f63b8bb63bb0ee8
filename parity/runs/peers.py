"""The other processes of a run: values exchanged between all, and one end for all.

When a process fails or is gone, the others end at once. They end from a thread, because the main one may wait in C
code for a process that will not come.
"""

from __future__ import annotations

import os
import queue
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from parity.contract import Place
from parity.runs.channel import Connection, Message

__all__ = ["Peers", "leave"]

CRASHED = 3
"""Exit code of the command when another process is gone without reporting why."""

BEAT_SECONDS = 5.0
"""Between two signs of life that each process sends, whatever it computes."""

SILENCE_SECONDS = 120.0
"""After so long without a sign of life a process counts as stopped: others would wait for it in a collective. Far
longer than anything that keeps Python's threads from running in one that works."""

REASON_SECONDS = 1.0
"""How long a process that fails waits for the report of another failure, which would be the reason for its own."""

PART_SECONDS = 3.0
"""Longest wait for the others to close their connections."""

RELAY_SECONDS = 0.2
"""How long process 0 stays, so that the others can read which failure ends them."""

_failed = threading.Event()
"""Set when this process has reported its failure to the others."""


class Peers:
    """The other processes: for process 0 all of them; for the others process 0, which relays their messages."""

    def __init__(self, place: Place, hellos: Sequence[Message], connections: Mapping[int, Connection]) -> None:
        """Start to read what they send.

        Args:
            place: That of this process.
            hellos: What each process reported of itself, `pid` and `host` among it.
            connections: To the others, by index.
        """
        self._place, self._connections = place, connections
        self._names = [f"process {i} of {place.count} ({h['pid']} on {h['host']})" for i, h in enumerate(hellos)]
        self._inbox = {index: queue.SimpleQueue[Any]() for index in connections}
        self.asides = queue.SimpleQueue[tuple[int, Message | None]]()
        """Index and message: what they sent beside the values that all exchange; None once this process parts."""
        self._left: set[int] = set()
        self._ending = threading.Lock()
        """Taken once, by the thread that ends this process or parts from the others."""
        self._readers = [threading.Thread(target=self._read, args=(i,), daemon=True) for i in connections]
        for reader in self._readers:
            reader.start()
        threading.Thread(target=self._beat, daemon=True).start()

    def gather(self, value: object) -> list[Any]:
        """Return the values of all processes, in their order; each gives one, which must be JSON.

        Waits for all of them; handlers of signals run meanwhile.
        """
        try:
            if self._place.index:
                self._connections[0].send({"give": value})
                return list(self._inbox[0].get())
            values = [value, *(self._inbox[index].get() for index in range(1, self._place.count))]
            for connection in self._connections.values():
                connection.send({"give": values})
            return values
        except OSError:  # it is gone, and its reader is about to end this process
            time.sleep(PART_SECONDS)
            raise

    def aside(self, index: int, message: Message) -> None:
        """Send one of them a message, which it finds in its `asides`; from any thread.

        Args:
            index: Process 0, or in process 0 any other.
            message: At most a few hundred kilobytes of JSON.

        Raises:
            OSError: It is gone.
        """
        self._connections[index].send({"aside": message})

    def part(self) -> None:
        """Close the connections to the others, which do the same: nothing failed."""
        self.asides.put((self._place.index, None))
        for connection in self._connections.values():
            with suppress(OSError):  # it has left already
                connection.send({"bye": True})
            connection.finish()
        self._wait()
        self._ending.acquire(blocking=False)
        for connection in self._connections.values():
            connection.close()

    def fail(self, error: BaseException) -> None:
        """Report once to the others that this process failed, unless the reason is that one of them did."""
        if _failed.is_set():
            return
        time.sleep(REASON_SECONDS)
        if not self._ending.acquire(blocking=False):
            time.sleep(60)  # a reader is ending this process
        _failed.set()
        code = _code(error)
        text = " ".join(str(error).split())[:2000]
        text = text if hasattr(error, "exit_code") else f"{type(error).__name__}: {text}"
        for connection in self._connections.values():
            with suppress(OSError):
                connection.send({"failed": f"{self._names[self._place.index]} failed: {text}", "code": code})
        self._wait()

    def _wait(self) -> None:
        """Wait until the others have closed their connections: then they have read everything."""
        until = time.monotonic() + PART_SECONDS
        for reader in self._readers:
            reader.join(max(0.0, until - time.monotonic()))

    def _read(self, index: int) -> None:
        """Receive what another process sends, until it leaves, fails or is gone."""
        try:
            while True:
                message = self._connections[index].receive(SILENCE_SECONDS)
                if message is None:
                    silent = (
                        f"{self._names[index]} has given no sign of life for {SILENCE_SECONDS:g} s: stopped, or hung"
                    )
                    self._end(index, silent, CRASHED)
                    return
                if "give" in message:
                    self._inbox[index].put(message["give"])
                elif "aside" in message:
                    self.asides.put((index, message["aside"]))
                elif "bye" in message:
                    self._left.add(index)
                elif "failed" in message:
                    self._end(index, str(message["failed"]), int(message["code"]))
        except (EOFError, OSError, ValueError):
            if index not in self._left:
                self._end(index, f"{self._names[index]} is gone: killed, crashed or cut off", CRASHED)

    def _beat(self) -> None:
        """Send signs of life, until the connections are closed."""
        with suppress(OSError):
            while True:
                time.sleep(BEAT_SECONDS)
                for connection in self._connections.values():
                    connection.send({"alive": True})

    def _end(self, index: int, line: str, code: int) -> None:
        """End this process because another one failed."""
        if not self._ending.acquire(blocking=False):
            return
        others = [connection for other, connection in self._connections.items() if other != index]
        for connection in others:
            with suppress(OSError):
                connection.send({"failed": line, "code": code})
        rest = "this process ends with it; the run resumes from its newest whole checkpoint"
        print(f"parity: error: {line}; {rest}", file=sys.stderr, flush=True)
        if others:
            time.sleep(RELAY_SECONDS)
        os._exit(code)


def leave(code: int) -> int:
    """Return an exit code; but if this process failed as one of several, end with it at once.

    Frameworks wait for the other processes when the interpreter ends, for minutes.
    """
    if _failed.is_set():
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    return code


def _code(error: BaseException) -> int:
    code = getattr(error, "exit_code", error.code if isinstance(error, SystemExit) else None)
    return code if isinstance(code, int) else CRASHED
