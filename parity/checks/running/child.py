"""The other end of a run in a process of its own: what imports the training function and runs it, or forks for that.

A process kills itself where it is to be killed. The process that forks runs imports what the function imports, and
trains nothing: a forked run begins as a new process does after its imports, with what these seeded.
"""

from __future__ import annotations

import functools
import importlib
import importlib.util
import multiprocessing
import os
import secrets
import signal
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from operator import attrgetter
from pathlib import Path
from typing import Any

from parity import sides
from parity.capture import capture, is_library_file
from parity.checks.running.inline import run_function
from parity.checks.running.rank import Rank
from parity.checks.running.recorder import MarkError
from parity.checks.running.run import Request, TraceWriter
from parity.environment import has_accelerator
from parity.forks import ForkServer, descendants, end_with_parent, serve

__all__ = ["ByFile", "an_order", "fork_server", "in_order", "log_of", "run_child", "tail_of"]

HASH_SEED = "PYTHONHASHSEED"
"""Variable by which an interpreter orders its sets of texts and bytes; it is read once, at its start."""


@dataclass(frozen=True, slots=True)
class ByFile:
    """A function of a module that is found by its file alone, as pytest imports tests."""

    module: str
    file: str
    name: str

    def load(self) -> Any:
        """Import the module under its own name and return the function."""
        spec = importlib.util.spec_from_file_location(self.module, self.file)
        if spec is None or spec.loader is None:
            raise ImportError(f"{self.file} is no module")
        module = importlib.util.module_from_spec(spec)
        sys.modules[self.module] = module
        spec.loader.exec_module(module)
        return attrgetter(self.name)(module)


def run_child(
    rows: Connection,
    train: Any,
    folder: Path,
    request: Request,
    home: Path,
    number: int,
    method: str | None,
    rank: Rank | None = None,
    *,
    parent: int,
    ordered: bool = False,
) -> None:
    """Run a training function and send what it shows.

    Args:
        rows: Takes the rows of the trace.
        train: The function, or where it is.
        folder: Its folder.
        request: How far, and what is looked at.
        home: Directory of the check: takes what the run prints, and the programs that it compiles.
        number: Of the run.
        method: How the process of the check starts others, None for the system's way: so are workers of the loop
            started, which a process of `multiprocessing` would start as itself was.
        rank: Its place among processes that train together.
        parent: Process ID of the parent; this process ends with it.
        ordered: Whether it was started `in_order`.
    """
    if ordered:
        _forget_order()
    with suppress(PermissionError):  # what torchrun starts leads a session, and so its group
        os.setpgid(0, 0)  # a kill takes workers along
    if rank is not None:
        os.environ.update(rank.environment())  # a fork has those of the process that forks
    end_with_parent(parent)
    multiprocessing.set_start_method(method, force=True)
    with log_of(home, number).open("wb") as printed:
        os.dup2(printed.fileno(), 1)
        os.dup2(printed.fileno(), 2)
    try:
        function = train.load() if isinstance(train, ByFile) else train
        if not has_accelerator():
            for adapter in sides.adapters().values():
                adapter.share_programs(home / "programs")
        writer = TraceWriter(_Sender(rows.send))
        on_kill = _kill if rank is None else functools.partial(_wait_for_kill, rows)
        writer.end(
            run_function(function, folder, request, writer=writer, on_kill=on_kill, before=_as_it_is, rank=rank)
        )
    except MarkError as error:
        rows.send(("refused", str(error)))


def log_of(home: Path, number: int) -> Path:
    """Return the file that takes what a run prints.

    Args:
        home: Directory of the check.
        number: Of the run.
    """
    return home / f"process-{number}.log"


def tail_of(log: Path) -> str:
    """Return the last lines that a process printed, for a message about its end."""
    return "\n".join(log.read_text(errors="replace").splitlines()[-12:]) if log.exists() else "nothing was printed"


class _Sender:
    """Sends rows, and before each the names of the modules that were imported since the last."""

    def __init__(self, send: Callable[[Any], None]) -> None:
        self._send, self._known = send, set(sys.modules)

    def __call__(self, row: Any) -> None:
        if len(sys.modules) > len(self._known):
            new = [name for name in list(sys.modules) if name not in self._known]
            self._known.update(new)
            self._send(("imports", new))
        self._send(row)


def _as_it_is() -> None:
    """Leave the generators as the imports of a new process left them."""


def _wait_for_kill(rows: Connection) -> None:
    """Say that nothing is to be done any more but to die: ranks are killed by who knows when all are ready."""
    rows.send(("ready",))
    while True:
        time.sleep(60.0)


def _kill() -> None:
    """Die by SIGKILL, after what a session of its own would keep from dying with this group."""
    for pid in descendants(os.getpid()):
        with suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGKILL)
    os.kill(os.getpid(), signal.SIGKILL)


def an_order() -> str | None:
    """Return a seed of the hashes by which new interpreters order their sets; None where the user has set one."""
    return None if HASH_SEED in os.environ else str(secrets.randbelow(1 << 32))


@contextmanager
def in_order(seed: str | None) -> Iterator[None]:
    """Have an interpreter that is started meanwhile order its sets by a seed; it has to `_forget_order` then.

    Args:
        seed: The seed; None to leave that as it is.
    """
    if seed is not None:
        os.environ[HASH_SEED] = seed
    try:
        yield
    finally:
        if seed is not None:
            _forget_order()


def _forget_order() -> None:
    """Take the seed out of the environment: what the run starts is ordered by chance, as without the check."""
    os.environ.pop(HASH_SEED, None)


def fork_server(train: Any, order: str | None) -> ForkServer:
    """Return what forks runs of a training function.

    Args:
        train: The function or its file, as it is passed to a new process.
        order: The seed of the hashes of all runs that it forks.
    """
    return ForkServer(functools.partial(_start, order), train)


def _start(order: str | None, requests: Connection) -> BaseProcess:
    job = _Runs(ordered=order is not None)
    process = multiprocessing.get_context("spawn").Process(target=serve, args=(requests, os.getpid(), job))
    with in_order(order):
        process.start()
    return process


class _Runs:
    """Forked processes each run the function once."""

    function: Any = None

    def __init__(self, *, ordered: bool = False) -> None:
        self._ordered = ordered

    def prepare(self, requests: Connection) -> bool:
        if self._ordered:
            _forget_order()
        with suppress(Exception):  # whatever the module raises: a new interpreter shows it
            function = requests.recv()
            self.function = function.load() if isinstance(function, ByFile) else function
        return self.function is not None

    def load(self, what: Iterable[str]) -> bool:
        """Import modules of installed packages that a run has imported; return whether that took time alone."""
        leaves, variables = _shared_state(), dict(os.environ)
        for name in what:
            with suppress(Exception, SystemExit):  # not found by its name: the run makes it itself
                if name not in sys.modules and _is_installed(name):
                    importlib.import_module(name)
        return _shared_state() == leaves and variables.items() <= os.environ.items()

    def run(self, descriptor: int, given: Sequence[Any]) -> None:
        run_child(Connection(descriptor, readable=False), self.function, *given, parent=os.getppid())


def _is_installed(name: str) -> bool:
    spec = importlib.util.find_spec(name)
    origin = spec.origin if spec is not None else None
    return bool(origin) and is_library_file(str(origin))


def _shared_state() -> Mapping[str, str]:
    """Return what all code in a process shares: generators and settings."""
    sides.adapters()
    return {path: leaf.digest for path, leaf in capture([]).leaves.items()}
