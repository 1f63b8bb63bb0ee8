"""A command that a signal ends in good order, at once: what it has found so far is written first.

The signal is heard by a thread, through the descriptor that Python's own C handler writes to, since a handler written
in Python runs in the main thread and only between two of its instructions: an XLA compile would hold it up.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable
from contextlib import suppress
from types import FrameType, TracebackType
from typing import Any, NoReturn

from parity.cli.streams import StreamLost, mute_lost_streams

__all__ = ["Interruption"]

STOPPING = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)

FINISH_SECONDS = 5.0
"""Longest that writing takes after a signal: a reader that hangs, or a dead disk, must not keep the process."""

CLOSE = 0
"""No signal has this number."""


class Interruption:
    """Hears SIGTERM, SIGINT and SIGHUP while a command runs; a context manager.

    At the first one, the main thread is held as soon as it returns to Python, a thread calls `finish`, and the
    process ends with 128 + the signal. A second SIGTERM or SIGINT ends it at once; SIGHUPs do not count, since a
    closing terminal sends several. A SIGHUP that was ignored before (nohup) stays ignored. Outside of the main thread
    nothing is heard.
    """

    def __init__(self) -> None:
        self.finish: Callable[[str], None] = _say_nothing_was_done
        """Takes the signal's name, ends what the command started and writes what it found."""
        self._writer: dict[str, str] = {}
        """Who writes the results, `main` or `signal`: the first to enter itself, which `setdefault` does atomically,
        also for a handler that interrupts the main thread just then."""
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

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
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
        """Say that the main thread writes the results now; if a signal came first, its thread does."""
        if self._writer.setdefault("results", "main") != "main":
            _wait_for_end()

    def _hold(self, number: int, frame: FrameType | None) -> None:
        del number, frame
        if self._writer.setdefault("results", "signal") == "signal":
            _wait_for_end()

    def _listen(self) -> None:
        told = False
        while True:
            for number in os.read(self._read, 64):
                if number == CLOSE:
                    return
                if number not in self._before:
                    continue  # somebody else's
                if number != signal.SIGHUP:
                    if told:
                        os._exit(128 + number)
                    told = True
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


def _say_nothing_was_done(name: str) -> None:
    print(f"parity: {name}: stopped before the first check began", file=sys.stderr)


def _wait_for_end() -> NoReturn:
    """Hold the main thread until another one ends the process."""
    while True:
        threading.Event().wait()
