"""A process that ends with the one that started it, however that one ends."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import threading
import time

__all__ = ["end_with_parent"]

PR_SET_PDEATHSIG = 1
"""Of <linux/prctl.h>."""

POLL_SECONDS = 0.2


def end_with_parent(parent: int) -> None:
    """Have this process killed when its parent ends; end it now if the parent is gone already.

    On Linux the system sends SIGKILL when the *thread* that started this process ends (man 2 prctl). Elsewhere, and
    where a sandbox forbids that, a thread looks for the parent five times a second.

    Args:
        parent: The process that started this one; one that ended before the system was asked is found by it.
    """
    if not _ask_system():
        threading.Thread(target=_watch, args=(parent,), name="with-parent", daemon=True).start()
    if os.getppid() != parent:
        _end()


def _ask_system() -> bool:
    """Return whether the system will send SIGKILL to this process when its parent ends."""
    if sys.platform != "linux":
        return False
    return ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, ctypes.c_ulong(signal.SIGKILL)) == 0


def _watch(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(POLL_SECONDS)
    _end()


def _end() -> None:
    os.kill(os.getpid(), signal.SIGKILL)
