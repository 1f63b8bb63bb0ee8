"""The process that forks runs: it imports what the training function imports, trains nothing, and waits.

A forked run begins as a new process does after its imports, with what these seeded: interpreters of PyTorch or JAX
take two to four seconds of a processor until then. It is no child of the check: this process sends its exit code.
"""

from __future__ import annotations

import ctypes
import importlib
import importlib.util
import os
import random
import re
import selectors
import signal
import site
import struct
import sys
import sysconfig
import threading
import warnings
from collections.abc import Iterable, Mapping
from contextlib import suppress
from multiprocessing.connection import Connection
from multiprocessing.reduction import recv_handle
from pathlib import Path
from typing import Any

from parity import sides
from parity.checks.live.child import ByFile, run_child
from parity.contract.capture import capture
from parity.environment import has_accelerator
from parity.runs import end_with_parent

__all__ = ["STATUS", "can_fork", "serve"]

STATUS = struct.Struct("!i")
"""What the process of a run is told by: its number, 0 where it was not forked; later its exit code."""

BLAS_THREADS = ("scipy_openblas_get_num_threads64_", "scipy_openblas_get_num_threads", "openblas_get_num_threads64_",
                "openblas_get_num_threads")  # fmt: skip
"""Functions by which OpenBLAS says how many threads it has. It starts them anew in a forked process."""


def can_fork() -> bool:
    """Return whether runs can be forked here: on Linux, and where no import can have looked for an accelerator."""
    return sys.platform == "linux" and hasattr(os, "pidfd_open") and not has_accelerator()


def serve(requests: Connection, parent: int) -> None:
    """Import a training function, then fork a process for each request, until nobody can ask any more.

    Returns when nobody can ask, and, in a forked process, when its run has ended.

    Args:
        requests: Brings the function or its file, then requests: `("load", names)`, or `("run", ...)` with the
            arguments of `run_child` after the function, followed by two descriptors, for rows and status.
        parent: Process ID of the check; this process ends with it.
    """
    os.setpgid(0, 0)
    end_with_parent(parent)
    with open(os.devnull, "wb") as nowhere:
        os.dup2(nowhere.fileno(), 1)
        os.dup2(nowhere.fileno(), 2)
    function: Any = None
    with suppress(Exception):  # whatever the module raises: a new interpreter shows it
        function = requests.recv()
        function = function.load() if isinstance(function, ByFile) else function
    whole = function is not None
    waiting = selectors.DefaultSelector()
    waiting.register(requests, selectors.EVENT_READ)
    while True:
        for key, _ in waiting.select():
            if key.fileobj is not requests:
                _ended(waiting, key)
                continue
            try:
                what, *rest = requests.recv()
                if what == "load":
                    whole = whole and _load(rest[0])
                    continue
                rows, status = recv_handle(requests), recv_handle(requests)
            except (EOFError, OSError):
                return
            if _fork(waiting, status, whole and not _other_threads()) == 0:
                requests.close()
                run_child(Connection(rows, readable=False), function, *rest, parent=os.getppid())
                return
            os.close(rows)


def _fork(waiting: selectors.BaseSelector, status: int, safe: bool) -> int:
    """Fork, or say that it would not be safe; return 0 in the forked process."""
    state = random.getstate()
    pid = -1
    if safe:
        with warnings.catch_warnings(), suppress(OSError):  # no room for one more: a new interpreter may say so
            warnings.simplefilter("ignore")  # JAX and Python fear for threads: there are none
            pid = os.fork()
    if pid == 0:
        random.setstate(state)  # a fork seeds it anew, but what an import seeded stays so in a new process too
        for key in list(waiting.get_map().values()):
            if key.data is not None:
                os.close(key.fd)
                os.close(key.data[1])
        waiting.close()
        os.close(status)
        return 0
    with suppress(BrokenPipeError):
        os.write(status, STATUS.pack(max(pid, 0)))
    if pid > 0:
        waiting.register(os.pidfd_open(pid), selectors.EVENT_READ, (pid, status))
    else:
        os.close(status)
    return pid


def _ended(waiting: selectors.BaseSelector, key: selectors.SelectorKey) -> None:
    """End what a process has left running, and pass its exit code on."""
    pid, status = key.data
    waiting.unregister(key.fileobj)
    os.close(key.fd)
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)  # before its number is free for another
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    with suppress(BrokenPipeError):
        os.write(status, STATUS.pack(code))
    os.close(status)


def _load(names: Iterable[str]) -> bool:
    """Import modules of installed packages that a run has imported; return whether that changed nothing but time."""
    leaves, variables = _shared_state(), dict(os.environ)
    for name in names:
        with suppress(Exception, SystemExit):  # a module that cannot be found by its name: the run makes it itself
            if name not in sys.modules and _is_installed(name):
                importlib.import_module(name)
    return _shared_state() == leaves and variables.items() <= os.environ.items()


def _is_installed(name: str) -> bool:
    spec = importlib.util.find_spec(name)
    origin = spec.origin if spec is not None else None
    if not origin:
        return False
    roots = {sysconfig.get_path("stdlib"), sysconfig.get_path("purelib"), sysconfig.get_path("platlib"),
             *site.getsitepackages()}  # fmt: skip
    return any(Path(origin).is_relative_to(root) for root in roots)


def _shared_state() -> Mapping[str, str]:
    """Return what all code in a process shares: generators and settings."""
    sides.adapters()
    return {path: leaf.digest for path, leaf in capture([]).leaves.items()}


def _other_threads() -> bool:
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
