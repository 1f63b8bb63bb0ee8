"""The end of a process with its parent, also when the parent is killed."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import threading
import time

__all__ = ["end_with_parent"]

PR_SET_PDEATHSIG = 1
"""Constant of <linux/prctl.h>."""

POLL_SECONDS = 0.2
"""Time between two looks at the parent, where the system cannot send the signal."""


def end_with_parent(parent: int) -> None:
    """Arrange that this process is killed when its parent ends; if the parent has ended already, end now.

    On Linux the kernel sends SIGKILL when the *thread* that started this process ends (man 2 prctl). On other
    systems, and where a sandbox forbids the call, a thread checks for the parent every `POLL_SECONDS`.

    Args:
        parent: Process ID of the parent, given by the parent: it may have ended before this call.
    """
    if not _ask_system():
        threading.Thread(target=_watch, args=(parent,), name="with-parent", daemon=True).start()
    if os.getppid() != parent:
        _end()


def _ask_system() -> bool:
    """Ask the kernel for SIGKILL at the end of the parent; return whether it will send it."""
    if sys.platform != "linux":
        return False
    return ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, ctypes.c_ulong(signal.SIGKILL)) == 0


def _watch(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(POLL_SECONDS)
    _end()


def _end() -> None:
    os.kill(os.getpid(), signal.SIGKILL)
