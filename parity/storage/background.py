"""Work in a thread of the lowest priority: the steps of a loop go first, the writing of a save takes the rest.

On Linux the thread, and every thread it starts, is scheduled as `SCHED_IDLE`: it runs whenever a processor has
nothing else to do. Where the steps keep every processor busy it would otherwise take turns with them, and steps whose
threads wait for each other lose more than the turns. When the loop waits for the save, its processors are free and
the save has them. Nobody can raise the priority again without a privilege, so on a machine that other programs keep
wholly busy large saves take long; `execution.save_priority=normal` is for that. Small ones run as the loop does.
"""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Callable
from typing import Literal

__all__ = ["Background", "Priority"]

Priority = Literal["idle", "normal"]
"""Of the thread that writes a large save."""

SMALL = 32 << 20
"""Bytes of a save that is written in a few hundredths of a second, which steps lose at most."""


class Background:
    """Runs one function at a time beside the caller, and hands on what it raised."""

    def __init__(self, priority: Priority) -> None:
        self._priority = priority
        self._thread: threading.Thread | None = None
        self._failure: BaseException | None = None

    def start(self, work: Callable[[], None], name: str, size: int) -> None:
        """Run a function in a thread of its own; the one before must have been waited for.

        Args:
            work: What to run.
            name: Of the thread.
            size: Bytes it writes; up to `SMALL` it runs at the priority of the caller.

        Raises:
            OSError: The system allows no more threads; nothing was run.
        """
        assert self._thread is None, "wait for the work before"
        thread = threading.Thread(target=self._run, args=(work, size), name=name)
        try:
            thread.start()
        except RuntimeError as error:
            raise OSError(errno.EAGAIN, f"no thread to write in: {error}") from error
        self._thread = thread

    def wait(self) -> None:
        """Return when the function has ended; raises what it raised, once."""
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        if self._failure is not None:
            failure, self._failure = self._failure, None
            raise failure

    def _run(self, work: Callable[[], None], size: int) -> None:
        if self._priority == "idle" and size > SMALL:
            yield_to_others()
        try:
            work()
        except BaseException as error:  # told to whoever waits next
            self._failure = error


def yield_to_others() -> None:
    """Give the calling thread the lowest priority, where the system has one for threads and allows it."""
    if hasattr(os, "SCHED_IDLE"):
        try:
            os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
        except OSError:
            return  # a sandbox may forbid it: the save runs at the priority of the loop
