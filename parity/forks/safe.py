"""When a process may be forked: on Linux, without accelerators, while no thread would be lacking."""

from __future__ import annotations

import ctypes
import os
import re
import sys
import threading
from collections.abc import Iterable
from pathlib import Path

from parity.environment import has_accelerator

__all__ = ["can_fork", "other_threads"]

BLAS_THREADS = ("scipy_openblas_get_num_threads64_", "scipy_openblas_get_num_threads", "openblas_get_num_threads64_",
                "openblas_get_num_threads")  # fmt: skip
"""Functions by which OpenBLAS says how many threads it has. It starts them anew in a forked process."""


def can_fork() -> bool:
    """Return whether runs can be forked here: on Linux, and where no import can have looked for an accelerator."""
    return sys.platform == "linux" and hasattr(os, "pidfd_open") and not has_accelerator()


def other_threads() -> bool:
    """Return whether this process has threads that a forked one would lack; those of OpenBLAS start anew."""
    if threading.active_count() > 1:
        return True
    return len(os.listdir("/proc/self/task")) > 1 + sum(count - 1 for count in _blas_threads())


def _blas_threads() -> Iterable[int]:
    maps = Path("/proc/self/maps").read_text()
    for path in sorted(set(re.findall(r"\s(/\S*openblas\S*\.so\S*)$", maps, re.MULTILINE))):
        library = ctypes.CDLL(path)
        for name in BLAS_THREADS:
            if (count := getattr(library, name, None)) is not None:
                yield count()
                break
