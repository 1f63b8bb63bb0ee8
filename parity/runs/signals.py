"""Signal handling: SIGTERM, SIGINT and SIGHUP finish the chunk, save and exit; SIGUSR1 only saves."""

from __future__ import annotations

import os
import signal
import sys
import threading
from types import FrameType

__all__ = ["DEADLINE_SECONDS", "Heard", "Signals"]

DEADLINE_SECONDS = 60.0
"""Longest a process takes to save after a signal to stop; preemption notices give 60 to 300 s."""


class Heard:
    """The signals that were heard, as the loop reads them."""

    def __init__(self) -> None:
        self.stop: int | None = None
        """The signal that asks to stop, if one came."""
        self.save = False
        """Whether a save is asked for; reset by the code that saves."""


class Signals(Heard):
    """Handles signals while it is entered; a context manager.

    The first SIGTERM, SIGINT or SIGHUP sets `stop`. A second SIGTERM or SIGINT ends the process as if there were no
    handler, and so does the deadline: the run then resumes from its newest whole checkpoint. Further SIGHUPs do not
    count: when a terminal closes, its shell and the system send one each, and systemd sends one beside a SIGTERM. A
    SIGHUP that was ignored when the process started (nohup) stays ignored. Outside of the main thread no signal is
    handled.
    """

    def __init__(self, deadline: float = DEADLINE_SECONDS) -> None:
        super().__init__()
        self._told = False
        """Whether a SIGTERM or SIGINT came."""
        self._deadline = deadline
        self._timer: threading.Timer | None = None
        self._before: dict[int, object] = {}

    def __enter__(self) -> Signals:
        if threading.current_thread() is threading.main_thread():
            handlers = {
                signal.SIGTERM: self._hear_stop,
                signal.SIGINT: self._hear_stop,
                signal.SIGUSR1: self._hear_save,
            }
            if signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:
                handlers[signal.SIGHUP] = self._hear_stop
            self._before = {number: signal.signal(number, handler) for number, handler in handlers.items()}
        return self

    def __exit__(self, *_: object) -> None:
        if self._timer is not None:
            self._timer.cancel()
        for number, handler in self._before.items():
            signal.signal(number, handler)  # type: ignore[arg-type]

    def _hear_stop(self, number: int, frame: FrameType | None) -> None:
        del frame
        if number != signal.SIGHUP:
            if self._told:
                signal.signal(number, signal.SIG_DFL)
                signal.raise_signal(number)
            self._told = True
        if self.stop is not None:
            return
        self.stop = number
        self._timer = threading.Timer(self._deadline, self._give_up, (number,))
        self._timer.daemon = True
        self._timer.start()

    def _hear_save(self, number: int, frame: FrameType | None) -> None:
        del number, frame
        self.save = True

    def _give_up(self, number: int) -> None:
        """End the process from a thread of its own: the main one is in a chunk or a save that does not return."""
        try:
            print(
                f"parity: {signal.Signals(number).name}: not saved within {self._deadline:g} s, giving up; "
                "the run resumes from its newest whole checkpoint",
                file=sys.stderr,
                flush=True,
            )
        finally:  # also where stderr is closed
            os._exit(128 + number)
