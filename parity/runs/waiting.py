"""Signal handling while the main thread waits in C code, as it does for other processes in a collective."""

from __future__ import annotations

import os
import signal
import socket
import threading
from contextlib import suppress

from parity.runs.signals import Signals

__all__ = ["WatchedSignals"]

SECOND_SECONDS = 0.5
"""How long the main thread has to end the process after a second signal, before this thread does."""


class WatchedSignals(Signals):
    """`Signals` whose deadline runs, and whose second signal ends the process, also where Python runs no handlers.

    Python calls a handler between two instructions of the main thread. The number of a signal is written to a socket
    as soon as it arrives, and a thread reads it there.
    """

    def __enter__(self) -> WatchedSignals:
        """Listen."""
        super().__enter__()
        self._timers: list[threading.Timer] = []
        self._insisted = False
        """Whether a SIGTERM or SIGINT came."""
        self._said = threading.Lock()
        self._watching = threading.current_thread() is threading.main_thread()
        if self._watching:
            self._reads, self._writes = socket.socketpair()
            self._writes.setblocking(False)
            self._fd_before = signal.set_wakeup_fd(self._writes.fileno(), warn_on_full_buffer=False)
            self._thread = threading.Thread(target=self._watch, name="signals", daemon=True)
            self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Listen no more."""
        if self._watching:
            self._watching = False
            signal.set_wakeup_fd(self._fd_before)
            self._writes.close()
            self._thread.join()
            self._reads.close()
            for timer in self._timers:
                timer.cancel()
        super().__exit__()

    def _give_up(self, number: int) -> None:
        """End the process at the deadline, which two threads may reach: the handler has started one too."""
        if self._said.acquire(blocking=False):
            super()._give_up(number)

    def _watch(self) -> None:
        while numbers := self._received():
            for number in numbers:
                if signal.getsignal(number) == self._hear_stop:
                    self._time(number)

    def _received(self) -> bytes:
        with suppress(OSError):
            return self._reads.recv(64)
        return b""

    def _time(self, number: int) -> None:
        """Start the deadline at the first signal that asks to stop, and end the process soon after the second.

        As for the handler, a further SIGHUP does not count.
        """
        first, again = not self._timers, number != signal.SIGHUP and self._insisted
        self._insisted |= number != signal.SIGHUP
        if not first and not again:
            return
        act, seconds = (self._give_up, self._deadline) if first else (os._exit, SECOND_SECONDS)
        timer = threading.Timer(seconds, act, (number if first else 128 + number,))
        timer.daemon = True
        timer.start()
        self._timers.append(timer)
