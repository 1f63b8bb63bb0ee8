"""Runs of a training function in processes of their own, killed by SIGKILL."""

from __future__ import annotations

import importlib.util
import itertools
import multiprocessing
import os
import signal
import sys
import threading
import time
import uuid
from collections.abc import Mapping
from contextlib import ExitStack
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from multiprocessing.reduction import ForkingPickler
from pathlib import Path
from typing import Any

from parity.checks.running.child import ByFile, an_order, fork_server, in_order, log_of, run_child, tail_of
from parity.checks.running.inline import Train
from parity.checks.running.rank import Rank, standing_as
from parity.checks.running.recorder import MarkError
from parity.checks.running.run import Request, Trace, TraceReader
from parity.environment import usable_cpus
from parity.errors import TrainerError
from parity.forks import Forked, ForkServer, Janitor, can_fork, end_marked, kill_tree, marking

__all__ = ["ProcessRunner", "by_file", "may_fork", "receive", "why_not_importable"]

TIMEOUT_SECONDS = 1800.0
"""Longest that one run may take."""

WAITING = "OMP_WAIT_POLICY"
"""Variable of OpenMP: runs go side by side, each with a thread for every processor, and threads that wait by spinning
would keep those of the other run from their work. It changes no result; one that is set stays."""

POLL_SECONDS = 0.1
"""Time between two looks at a process whose workers may outlive it, and hold the connection that shows its end."""


def why_not_importable(train: Train) -> str:
    """Return why another process cannot import a function; empty if it can."""
    module = sys.modules.get(getattr(train, "__module__", "") or "")
    if module is not None and module.__name__ == "__main__" and not getattr(module, "__file__", None):
        return "it was typed at a prompt; put it into a file"
    try:
        ForkingPickler.dumps(train)
    except Exception as error:  # whatever the object's own code raises
        what = " ".join(str(error).split())
        return f"{getattr(train, '__qualname__', train)!s} is not at the top of a module ({what[:120]})"
    return ""


class ProcessRunner:
    """Runs the function in a new process each time.

    The reference and the runs that resume are forks of a process that has imported the function (`fork_server`),
    where that is safe; the others are new interpreters. So what saves and what resumes order their sets by different
    hash seeds, and equal runs have nothing in common but the function. Where nothing can be forked, what would be a
    fork is a new interpreter with the hash seed of the forks.

    Args:
        train: The function; another process can import it.
        root: Directory for what the processes print.
        fork: Whether runs may be forks; by default where there is no accelerator, on Linux.
        place: Variables of the environment in which the function is imported for forks: of a rank its place, without
            the addresses that each run has of its own. A module that needs those to be imported is not forked.
    """

    mode = "process"
    parallel = max(2, min(4, usable_cpus()))
    ranks = 1

    def __init__(
        self, train: Train, root: Path, *, fork: bool | None = None, place: Mapping[str, str] | None = None
    ) -> None:
        self._place = place or {}
        self._train, self._root, self._count = by_file(train), root, itertools.count(1)
        self._orders = {"reference": an_order(), "saver": an_order()}
        self._forks = (
            fork_server(self._train, self._orders["reference"]) if (can_fork() if fork is None else fork) else None
        )
        self._stack = ExitStack()
        self._token = uuid.uuid4().hex
        self._starting, self._guard = threading.Lock(), threading.Lock()
        """One process starts at a time, since its mark is this process's environment; the other guards `_live`."""
        self._live: list[BaseProcess | Forked] = []
        self._stopped = False
        self._ended = ""

    def __enter__(self) -> ProcessRunner:
        if WAITING not in os.environ:
            os.environ[WAITING] = "PASSIVE"
            self._stack.callback(os.environ.pop, WAITING, None)
        self._stack.enter_context(Janitor(self._token))
        self._stack.callback(end_marked, self._token)
        resource_tracker.ensure_running()  # is this process's own, and stays
        if self._forks is not None:
            with standing_as(self._place), marking(self._token):
                self._stack.enter_context(self._forks)
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def stop(self) -> None:
        """Kill the runs that take place, whatever they wait for, and refuse others."""
        with self._guard:
            self._stopped = True
            live = list(self._live)
        for process in live:
            if not isinstance(process, Forked) or process.poll() is None:  # its number may be another's after that
                _kill(process)
        if self._forks is not None:
            self._forks.stop()

    def end_runs(self, why: str) -> None:
        """Kill the runs that take place; they count as too late, with the reason that is given."""
        with self._guard:
            self._ended = why
            live = list(self._live)
        for process in live:
            _kill(process)

    def run(self, folder: Path, request: Request, rank: Rank | None = None, fork: bool | None = None) -> Trace:
        """Run it once.

        Args:
            folder: The folder that the function is given.
            request: How far it runs, and what is looked at.
            rank: Its place among processes that train together; None for one that trains alone.
            fork: Whether it is a fork where that is safe; by default `may_fork`.

        Raises:
            TrainerError: The check was stopped.
            MarkError: A mark cannot be used.
        """
        number = next(self._count)
        log = log_of(self._root, number)
        context = multiprocessing.get_context("spawn")
        here, there = context.Pipe(duplex=False)
        given = (folder, request, self._root, number, multiprocessing.get_start_method(allow_none=True), rank)
        process: BaseProcess | Forked | None = None
        as_fork = may_fork(folder, request) if fork is None else fork
        if self._forks is not None and as_fork:
            process = self._forks.fork(there.fileno(), *given)
        if process is None:
            whole = (there, self._train, *given)
            order = self._orders[request.order or ("reference" if as_fork else "saver")]
            told = {"parent": os.getpid(), "ordered": order is not None}
            process = context.Process(target=run_child, args=whole, kwargs=told)
            with (
                standing_as(rank.environment() if rank else {}),
                self._starting,
                marking(self._token),
                in_order(order),
            ):
                process.start()
        there.close()
        try:
            with self._guard:
                self._live.append(process)
                stopped = self._stopped
            trace = Trace() if stopped else receive(here, process, log, self._forks)
        finally:
            _end(process)
            here.close()
            with self._guard:
                self._live.remove(process)
        if self._stopped:
            raise TrainerError("the check was stopped")
        trace.folder = folder
        if self._ended:
            trace.end, trace.error, self._ended = "late", self._ended, ""
        if trace.end == "lost":
            asked = request.kill is not None or request.kill_step is not None
            if process.exitcode == -signal.SIGKILL and asked:
                trace.end = "killed"
            else:
                trace.error = f"its process ended with {process.exitcode}:\n{tail_of(log)}{_hint(trace, log)}"
        return trace


def may_fork(folder: Path, request: Request) -> bool:
    """Return whether a run is one of those that are forks: the reference, and what resumes.

    Args:
        folder: Its folder.
        request: What is asked of it.
    """
    return request.reference or (folder.is_dir() and any(folder.iterdir()))


def receive(here: Connection, process: Any, log: Path, forks: ForkServer | None) -> Trace:
    """Return what a process shows until it has ended; its own workers may hold the other end open.

    Args:
        here: Brings the rows of its trace.
        process: The process: its `sentinel` can be read when it has ended.
        log: What it prints.
        forks: Learns what it imports.

    Raises:
        MarkError: A mark cannot be used.
    """
    reader, deadline = TraceReader(), time.monotonic() + TIMEOUT_SECONDS
    ended = False
    while not ended or here.poll():
        ready = wait([here, process.sentinel], POLL_SECONDS)
        ended = ended or process.sentinel in ready or process.exitcode is not None
        if not ready and not ended and time.monotonic() > deadline:
            reader.trace.end = "late"
            reader.trace.error = f"a run took longer than {TIMEOUT_SECONDS:g} s:\n{tail_of(log)}"
            break
        if here.poll():
            try:
                row = here.recv()
            except (EOFError, OSError):
                process.join()
                break
            if row[0] == "refused":
                raise MarkError(row[1])
            if row[0] == "ready":
                break
            if row[0] == "imports":
                if forks is not None:
                    forks.load(row[1])
                continue
            reader.add(row)
    return reader.trace


def _end(process: BaseProcess | Forked) -> None:
    """Kill what is left of a process and all that it started, and wait for its end."""
    if not isinstance(process, Forked) or process.poll() is None:
        _kill(process)
    process.join()


def _kill(process: BaseProcess | Forked) -> None:
    """Send SIGKILL to a process, to its group, and to what below it has a group of its own."""
    assert process.pid is not None
    kill_tree(process.pid, itself=process.exitcode is None)


def by_file(train: Train) -> Any:
    """Return the function, or how to find it by its file where no path leads to its module.

    Args:
        train: The function.
    """
    module = sys.modules.get(getattr(train, "__module__", "") or "")
    file = getattr(module, "__file__", None)
    if module is None or module.__name__ == "__main__" or not file or not hasattr(train, "__qualname__"):
        return train
    held = sys.modules.pop(module.__name__)
    try:
        found = importlib.util.find_spec(module.__name__)
    except (ImportError, ValueError, AttributeError):
        found = None
    finally:
        sys.modules[module.__name__] = held
    same = found is not None and found.origin is not None and Path(found.origin).resolve() == Path(file).resolve()
    return train if same else ByFile(module.__name__, str(Path(file).resolve()), train.__qualname__)


def _hint(trace: Trace, log: Path) -> str:
    """Return what may be wrong where a process ended before it ran anything: it imports the main program first."""
    if trace.marks or log.exists():
        return ""
    return '\nIs the check called under `if __name__ == "__main__":`? Each process imports the script anew.'
