"""Surroundings: what a process gives to all code in it, and a training function may set for itself.

A process of its own takes them along when it ends. Within this process they are put back, so that one run does not
find what another has set, and who asked for the check finds all as it was.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable
from contextlib import suppress

__all__ = ["save_surroundings", "save_variables"]

TIMERS = {
    signal.SIGALRM: signal.ITIMER_REAL,
    signal.SIGVTALRM: signal.ITIMER_VIRTUAL,
    signal.SIGPROF: signal.ITIMER_PROF,
}
"""Signal to the timer that sends it."""


def save_surroundings() -> Callable[[], None]:
    """Return a function that puts back what each new process has anew, as it is now.

    The working directory, the mask of new files, the limit of recursion, the standard streams and, in the main
    thread, the handlers of signals: a function that saves when it is told to end sets one.
    """
    home, mask, limit = _working_directory(), os.umask(0), sys.getrecursionlimit()
    os.umask(mask)
    streams = sys.stdin, sys.stdout, sys.stderr
    in_main = threading.current_thread() is threading.main_thread()
    handlers = {number: signal.getsignal(number) for number in signal.valid_signals()} if in_main else {}

    def put_back() -> None:
        if home and _working_directory() != home:
            with suppress(OSError):  # it is gone: there is nothing to go back to
                os.chdir(home)
        os.umask(mask)
        sys.setrecursionlimit(limit)
        sys.stdin, sys.stdout, sys.stderr = streams
        for number, handler in handlers.items():
            if handler is None or signal.getsignal(number) == handler:  # None: set by other code than Python
                continue
            if number in TIMERS:  # it may be on its way, to a handler that ends the process
                signal.setitimer(TIMERS[number], 0.0)
            signal.signal(number, handler)

    return put_back


def save_variables() -> Callable[[], None]:
    """Return a function that puts the variables of the environment and the paths of imports back as they are now.

    Between runs they stay: a library sets some when it is imported, and is not imported again.
    """
    variables, paths = dict(os.environ), list(sys.path)

    def put_back() -> None:
        for name in os.environ.keys() - variables.keys():
            del os.environ[name]
        for name, value in variables.items():
            if os.environ.get(name) != value:
                os.environ[name] = value
        sys.path[:] = paths

    return put_back


def _working_directory() -> str:
    """Return it; nothing where it was removed."""
    try:
        return os.getcwd()
    except FileNotFoundError:
        return ""
