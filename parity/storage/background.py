"""A background thread of the lowest priority, which writes a save while training continues.

On Linux the thread, and every thread that it starts, is scheduled as `SCHED_IDLE`: it runs whenever a processor has
nothing else to do. At the normal priority it would take turns with steps that keep every processor busy, and steps
whose threads wait for each other lose more time than those turns. When the loop waits for the save, its processors
are idle, so the save runs at full speed. A thread cannot raise its priority again without a privilege; on a machine
that other programs keep busy, large saves therefore take long, and `execution.save_priority=normal` avoids that.
Small saves always run at the priority of the loop, and so do all saves after one that was not written when the next
one was due: there the loop waits for what it keeps from running.
"""

from __future__ import annotations

import errno
import os
import sys
import threading
import weakref
from collections.abc import Callable
from contextlib import suppress
from typing import Literal

__all__ = ["Background", "Priority"]

Priority = Literal["idle", "normal"]
"""Priority of the thread that writes a large save: `idle` for `SCHED_IDLE`, `normal` for that of the caller."""

SMALL = 32 << 20
"""Largest save, in bytes, that is written at the priority of the caller: it costs the steps a few hundredths of a
second at most."""


_all: weakref.WeakSet[Background] = weakref.WeakSet()
"""Those that have started a function in this process."""


class Background:
    """A worker that runs one function at a time in a thread; `wait` re-raises what the function raised.

    A program that ends without `wait` ends when the function has, and what it raised is printed.

    Args:
        priority: Priority of functions that write more than `SMALL` bytes.
    """

    def __init__(self, priority: Priority) -> None:
        self._priority = priority
        self._thread: threading.Thread | None = None
        self._late = False
        """Whether a function was still running when the next one was due."""
        self._failure: BaseException | None = None

    def due(self) -> None:
        """Note that the next function is due: if one still runs, all later ones have the priority of the caller.

        To be called before `wait`.
        """
        self._late = self._late or (self._thread is not None and self._thread.is_alive())

    def start(self, work: Callable[[], None], name: str, size: int) -> None:
        """Run a function in a new thread; call `wait` for the previous one first.

        Args:
            work: The function.
            name: Name of the thread.
            size: Bytes that the function writes; up to `SMALL` it runs at the priority of the caller.

        Raises:
            OSError: The system allows no more threads; the function was not run.
        """
        assert self._thread is None, "call wait() first"
        thread = threading.Thread(target=self._run, args=(work, size), name=name)
        try:
            thread.start()
        except RuntimeError as error:
            raise OSError(errno.EAGAIN, f"no thread to write in: {error}") from error
        self._thread = thread
        _end_with_the_program(self)

    def wait(self) -> None:
        """Wait until the function has ended, and raise what it raised, once.

        Raises:
            BaseException: What the function raised; the next call raises nothing.
        """
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        if self._failure is not None:
            failure, self._failure = self._failure, None
            raise failure

    def _run(self, work: Callable[[], None], size: int) -> None:
        if self._priority == "idle" and size > SMALL and not self._late:
            yield_to_others()
        try:
            work()
        except BaseException as error:  # raised by the next wait()
            self._failure = error


def _end_with_the_program(background: Background) -> None:
    """Have the program wait for a worker before it ends, while functions may still use executors.

    The interpreter joins threads in any case, but ends executors before, and with them a save that needs one. What
    it calls before that is registered by a function that has no public name (Python 3.9 to 3.14), and that
    `concurrent.futures` uses; `atexit` comes after both.
    """
    import concurrent.futures.thread  # noqa: F401 - it registers itself, and what is registered last is called first

    if not _all and (register := getattr(threading, "_register_atexit", None)) is not None:
        with suppress(RuntimeError):  # the program is ending
            register(_end_all)
    _all.add(background)


def _end_all() -> None:
    for background in [*_all]:
        try:
            background.wait()
        except BaseException as error:
            print(f"parity: error: {error}", file=sys.stderr, flush=True)


def yield_to_others() -> None:
    """Give the calling thread the priority `SCHED_IDLE`, where the system has it and allows it."""
    if hasattr(os, "SCHED_IDLE"):
        try:
            os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
        except OSError:
            return  # a sandbox may forbid it: the save runs at the priority of the loop
