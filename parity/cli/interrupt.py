"""Signal handling of `parity check`: at SIGTERM, SIGINT or SIGHUP it writes the results so far and ends at once.

A thread reads the signals from the file descriptor to which Python's C handler writes them. A handler written in
Python would run only between two instructions of the main thread, and a long call there, such as an XLA compilation,
would delay it.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable
from contextlib import suppress
from typing import Any, NoReturn

from parity.cli.streams import StreamLost, mute_lost_streams

__all__ = ["Interruption"]

STOPPING = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)

FINISH_SECONDS = 5.0
"""Longest time for writing after a signal; a blocked pipe or disk must not keep the process alive."""

CLOSE = 0
"""Number that ends the listening thread; no signal has it."""


class Interruption:
    """A context manager that handles SIGTERM, SIGINT and SIGHUP while a command runs.

    At the first signal, the main thread is paused as soon as it returns to Python, another thread calls `finish`, and
    the process ends with 128 + the signal. A second SIGTERM or SIGINT ends it at once; a second SIGHUP does not,
    since a closing terminal sends several. A SIGHUP that was ignored before (nohup) stays ignored. Outside of the
    main thread the context manager does nothing.
    """

    def __init__(self) -> None:
        self.finish: Callable[[str], None] = _report_no_check
        """Called with the name of the signal; it ends the processes of the command and writes the results so far."""
        self._writer: dict[str, str] = {}
        """The thread that writes the results, `main` or `signal`: the first one that enters itself. `setdefault` is
        atomic, also when a handler interrupts the main thread in it."""
        self._written = threading.Event()
        self._heard: int | None = None
        self._before: dict[int, Any] = {}
        self._thread: threading.Thread | None = None

    def __enter__(self) -> Interruption:
        if threading.current_thread() is not threading.main_thread():
            return self
        self._read, self._write = os.pipe()
        os.set_blocking(self._write, False)
        self._wakeup_before = signal.set_wakeup_fd(self._write, warn_on_full_buffer=False)
        for number in STOPPING:
            before = signal.getsignal(number)
            if before is not None and not (number == signal.SIGHUP and before == signal.SIG_IGN):
                self._before[number] = signal.signal(number, self._hold)
        self._thread = threading.Thread(target=self._listen, name="signals", daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._thread is None:
            return
        self._written.set()
        for number, handler in self._before.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(self._wakeup_before)
        os.write(self._write, bytes([CLOSE]))
        self._thread.join()
        if self._heard is not None:
            _wait_for_end()
        os.close(self._read)
        os.close(self._write)

    def begin_to_write(self) -> None:
        """Claim the writing of results for the main thread; if a signal came first, wait for the end instead."""
        if self._writer.setdefault("results", "main") != "main":
            _wait_for_end()

    def _hold(self, *_: object) -> None:
        if self._writer.setdefault("results", "signal") == "signal":
            _wait_for_end()

    def _listen(self) -> None:
        repeated = False
        while True:
            for number in os.read(self._read, 64):
                if number == CLOSE:
                    return
                if number not in self._before:
                    continue  # a signal of other code
                if number != signal.SIGHUP:
                    if repeated:
                        os._exit(128 + number)
                    repeated = True
                if self._heard is None:
                    self._heard = number
                    threading.Thread(target=self._end, args=(number,), name="end", daemon=True).start()

    def _end(self, number: int) -> None:
        deadline = threading.Timer(FINISH_SECONDS, os._exit, (128 + number,))
        deadline.daemon = True
        deadline.start()
        try:
            mute_lost_streams()
            if self._writer.setdefault("results", "signal") == "main":
                self._written.wait()
            else:
                self.finish(signal.Signals(number).name)
        except Exception:
            traceback.print_exc()
        finally:
            with suppress(Exception, StreamLost):
                sys.stdout.flush()
                sys.stderr.flush()
            os._exit(128 + number)


def _report_no_check(name: str) -> None:
    print(f"parity: {name}: stopped before the first check began", file=sys.stderr)


def _wait_for_end() -> NoReturn:
    """Block the main thread until another thread ends the process."""
    while True:
        threading.Event().wait()
