"""Training processes of a check as forks of processes that have imported their side (`parity.cli.train_server`).

A forked process runs `parity train` as a new interpreter does, two to four seconds of a processor sooner. Two servers
of each side take turns in a run directory, so that what resumes a run orders its sets by another hash seed than what
saved it.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from multiprocessing.connection import Connection
from typing import BinaryIO

from parity.contract import Side, child_environment
from parity.forks import ForkServer, can_fork
from parity.reference.planned import Started, start_interpreter

__all__ = ["TrainForks"]

TURNS = 2
"""Servers of one side."""

SERVER = "parity.cli.train_server"

COMMAND = [sys.executable, "-m", "parity", "train"]
"""How a command line begins that a server can run."""


class TrainForks:
    """Starts training processes, as forks where that is safe; a context manager, which ends its servers.

    Args:
        trained: Name to side of those that will be trained. The environment is that of now.
    """

    def __init__(self, trained: Mapping[str, Side]) -> None:
        self._stack = ExitStack()
        self._environments = {name: child_environment(side) for name, side in trained.items()} if can_fork() else {}
        self._servers: dict[str, list[ForkServer]] = {}
        self._begun: Counter[str] = Counter()

    def __enter__(self) -> TrainForks:
        for name, environment in self._environments.items():
            servers = [ForkServer(partial(_start_server, environment), name) for _ in range(TURNS)]
            self._servers[name] = [self._stack.enter_context(server) for server in servers]
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def begin(self, command: Sequence[str], out: BinaryIO, environment: Mapping[str, str] | None) -> Started:
        """Start `parity train` in a forked process; anything else, and elsewhere, in a new interpreter."""
        words = list(command)
        if words[: len(COMMAND)] == COMMAND and "--side" in words and "--dir" in words:
            side, run = (words[words.index(option) + 1] for option in ("--side", "--dir"))
            if self._was_asked_for(side, environment):
                at = self._begun[run] % TURNS
                self._begun[run] += 1
                forked = self._servers[side][at].fork(out.fileno(), words[len(COMMAND) - 1 :])
                if forked is not None:
                    return forked
        return start_interpreter(command, out, environment)

    def _was_asked_for(self, side: str, environment: Mapping[str, str] | None) -> bool:
        """Return whether a side's servers have an environment, but for what imports added here since."""
        ours = self._environments.get(side)
        if ours is None or environment is None:
            return False
        return ours.items() <= environment.items() and environment.items() - ours.items() <= os.environ.items()


def _start_server(environment: Mapping[str, str], requests: Connection) -> subprocess.Popen[bytes]:
    """Start the interpreter of a server."""
    number = requests.fileno()
    command = [sys.executable, "-m", SERVER, str(number), str(os.getpid())]
    return subprocess.Popen(command, stdin=subprocess.DEVNULL, env=environment, pass_fds=[number],
                            process_group=0)  # fmt: skip
