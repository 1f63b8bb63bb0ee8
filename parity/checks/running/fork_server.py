"""The process that forks runs of a training function: it imports what the function imports, and trains nothing.

A forked run begins as a new process does after its imports, with what these seeded.
"""

from __future__ import annotations

import importlib
import importlib.util
import multiprocessing
import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from typing import Any

from parity import sides
from parity.capture import capture, is_library_file
from parity.checks.running.child import ByFile, run_child
from parity.forks import ForkServer, serve

__all__ = ["fork_server"]


def fork_server(train: Any) -> ForkServer:
    """Return what forks runs of a training function.

    Args:
        train: The function or its file, as it is passed to a new process.
    """
    return ForkServer(_start, train)


def _start(requests: Connection) -> BaseProcess:
    process = multiprocessing.get_context("spawn").Process(target=serve, args=(requests, os.getpid(), _Runs()))
    process.start()
    return process


class _Runs:
    """Forked processes each run the function once."""

    function: Any = None

    def prepare(self, requests: Connection) -> bool:
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
