"""`subprocess.Popen` of the tests: what runs Python starts as a fork of a process that has imported the framework.

An interpreter that imports PyTorch or JAX takes two to three seconds of a processor before it does anything, and the
tests start hundreds. A forked one takes 0.1 s. It is a child of this process with a number of its own, killed by the
same signals, and ends with the same codes; what is printed on import is an error here.

A new interpreter is started all the same where it could make a difference: for other options and programs, for the
first process with an environment (many variables are read by imports), and in tests marked `new_interpreters`.
Two servers take turns, so that two processes in a row order their sets and dictionaries by different hash seeds.
"""

from __future__ import annotations

import ctypes
import inspect
import itertools
import json
import os
import socket
import struct
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

__all__ = ["ForkingPopen", "forking", "new_interpreters"]

PR_SET_CHILD_SUBREAPER = 36
"""Constant of <linux/prctl.h>: processes whose parent ends become children of this one."""

SERVER = Path(__file__).with_name("server.py")

TORCH = ("parity.cli.main", "torch._dynamo", "torch_side.train", "torch_side.checkpoint")

MODULES = {
    "torch": TORCH,
    "mine": TORCH,  # what tests/support/foreign.py installs
    "jax": ("parity.cli.main", "jax_side.train", "jax_side.checkpoint"),
    "": ("parity.cli.main",),
}
"""Side that a command line names to what its server imports."""

FORKED = ("parity", "tests.forks.probe")
"""Modules that are run by a fork: none of those that must import little."""

TURNS = 2
"""Servers that take turns."""

MOST_SERVERS = 8
"""Of one test process; each takes 50 to 250 MB."""

UNREAD = (
    *("PYTEST_CURRENT_TEST", "PARITY_CACHE", "FAILING_DISK", "XLA_PYTHON_CLIENT_PREALLOCATE"),
    *("JAX_COORDINATOR_ADDRESS", "JAX_NUM_PROCESSES", "JAX_PROCESS_ID"),
    *("MASTER_ADDR", "MASTER_PORT", "WORLD_SIZE", "RANK", "LOCAL_WORLD_SIZE", "LOCAL_RANK"),
    *("COLUMNS", "TERM", "COLORTERM", "NO_COLOR", "FORCE_COLOR", "CLICOLOR_FORCE"),
)
"""Variables that no import reads and that differ from process to process."""

OF_JAX = ("JAX_COMPILATION_CACHE_DIR",)
"""Variables that JAX alone reads when it is imported."""

_plain = subprocess.Popen
_parameters = list(inspect.signature(_plain._execute_child).parameters)[1:]


class Server:
    """One server, and the socket to it."""

    def __init__(self, side: str, environment: Mapping[str, str]) -> None:
        """Start it, and wait until it has imported what it must."""
        here, there = socket.socketpair()
        self.channel = here
        command = [sys.executable, str(SERVER), str(there.fileno()), str(os.getpid()), *MODULES[side]]
        with there, tempfile.TemporaryFile() as printed:
            self.process = _plain(
                command,
                env=dict(environment),
                stdin=subprocess.DEVNULL,
                stdout=printed,
                stderr=printed,
                pass_fds=[there.fileno()],
                process_group=0,
            )
            there.close()
            ready = here.recv(5) == b"ready"
            printed.seek(0)
            if (said := printed.read().decode(errors="replace")) or not ready:
                self.process.kill()
                self.process.wait()
                here.close()
                raise RuntimeError(f"a new interpreter that imports {', '.join(MODULES[side])} prints:\n{said}")

    def close(self) -> None:
        """End it; what it has forked goes on."""
        self.channel.close()
        self.process.wait()

    def fork(self, request: Mapping[str, Any], descriptors: Sequence[int]) -> int:
        """Return the number of a new process."""
        body = json.dumps(request).encode()
        status, theirs = os.pipe()
        with os.fdopen(status, "rb") as status_file:
            try:
                socket.send_fds(self.channel, [struct.pack("!I", len(body))], [theirs, *descriptors])
                self.channel.sendall(body)
            finally:
                os.close(theirs)
            return int(struct.unpack("!i", status_file.read(4))[0])


class Servers:
    """The servers of this process: by side and environment, those that were not used for longest first."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._seen: set[Any] = set()
        self._running: dict[Any, list[Server]] = {}
        self._turn = itertools.count()
        self.first_is_new = True

    def fork(
        self, side: str, environment: Mapping[str, str], request: Mapping[str, Any], descriptors: Sequence[int]
    ) -> int | None:
        """Return the number of a new process; None for the first of its kind."""
        with self._lock:  # a server answers one request at a time, and must not be ended meanwhile
            server = self.find(side, environment)
            return server and server.fork(request, descriptors)

    def find(self, side: str, environment: Mapping[str, str]) -> Server | None:
        """Return the server whose turn it is, started if need be."""
        environment = {name: value for name, value in environment.items() if name not in _unread(side)}
        key = side, frozenset(environment.items())
        if self.first_is_new and key not in self._seen:
            self._seen.add(key)
            return None
        servers = self._running[key] = self._running.pop(key, [])
        if len(servers) < TURNS:
            self._end(MOST_SERVERS - 1)
            servers.append(Server(side, environment))
            return servers[-1]
        return servers[next(self._turn) % TURNS]

    def close(self) -> None:
        """End them all."""
        with self._lock:
            self._end(0)

    def _end(self, most: int) -> None:
        while sum(map(len, self._running.values())) > most:
            for server in self._running.pop(next(iter(self._running))):
                server.close()


_servers = Servers()


class ForkingPopen(_plain):  # type: ignore[type-arg,misc]
    """A process that is forked where that makes no difference but in time."""

    def _execute_child(self, *given: Any) -> None:
        asked = dict(zip(_parameters, given, strict=True))
        pid = None if (side := _side(asked)) is None else self._fork(side, asked)
        if pid is None:
            super()._execute_child(*given)
            return
        self.pid = pid
        self._child_created = True
        self._close_pipe_fds(*(asked[name] for name in PIPES))

    def _fork(self, side: str, asked: Mapping[str, Any]) -> int | None:
        environment = _environment() if asked["env"] is None else asked["env"]
        pipes = (asked[name] for name in ("p2cread", "c2pwrite", "errwrite"))
        streams = [number if pipe == -1 else pipe for number, pipe in enumerate(pipes)]
        request = {
            "command": list(asked["args"]),
            "directory": os.path.abspath(asked["cwd"] or os.getcwd()),
            "variables": {name: environment.get(name) for name in _unread(side)},
            "session": asked["start_new_session"],
            "group": os.getpgrp() if asked["process_group"] == -1 else asked["process_group"],
            "umask": _umask(),
            "processors": sorted(os.sched_getaffinity(0)),
            "pass_fds": list(asked["pass_fds"]),
        }
        return _servers.fork(side, environment, request, [*streams, *asked["pass_fds"]])


PIPES = ("p2cread", "p2cwrite", "c2pread", "c2pwrite", "errread", "errwrite")

REFUSED = {"preexec_fn": None, "shell": False, "gid": None, "gids": None, "uid": None, "umask": -1}
"""Arguments with which a process is started as always, and what they are when they are not given."""


def _side(asked: Mapping[str, Any]) -> str | None:
    """Return the side that a command line names, "" if it names none; None if a new interpreter must be started."""
    args = asked["args"]
    if not isinstance(args, list) or not all(isinstance(word, str) for word in args):
        return None
    if any(asked[name] != value for name, value in REFUSED.items()) or not asked["close_fds"]:
        return None
    if asked["executable"] not in (None, sys.executable) or args[:2] != [sys.executable, "-m"]:
        return None
    if args[2] not in FORKED:
        return None
    if asked["cwd"] is not None and not os.path.isdir(asked["cwd"]):
        return None
    words = args[3:]
    if "--side" in words[:-1]:
        named = words[words.index("--side") + 1]
        return named if named in MODULES else None
    return ""


def _unread(side: str) -> tuple[str, ...]:
    """Return the variables that no import of a side's server reads."""
    return UNREAD if side == "jax" else (*UNREAD, *OF_JAX)


def _environment() -> dict[str, str]:
    """Return the environment that a child inherits: libraries such as readline add to it what `os.environ` lacks."""
    lines = ctypes.POINTER(ctypes.c_char_p).in_dll(ctypes.CDLL(None), "environ")
    pairs = (line.partition(b"=") for line in itertools.takewhile(bool, lines))
    return {os.fsdecode(name): os.fsdecode(value) for name, _, value in pairs}


def _umask() -> int:
    with open("/proc/self/status") as status:
        return next(int(line.split()[1], 8) for line in status if line.startswith("Umask:"))


@contextmanager
def forking() -> Iterator[None]:
    """Start processes by forks, where the system can: on Linux."""
    if sys.platform != "linux" or ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, ctypes.c_ulong(1)):
        yield
        return
    try:
        with _popen(ForkingPopen):
            yield
    finally:
        _servers.close()


def new_interpreters() -> AbstractContextManager[None]:
    """Start processes as always."""
    return _popen(_plain)


@contextmanager
def _popen(used: Any) -> Iterator[None]:
    before = subprocess.Popen
    subprocess.Popen = used  # type: ignore[misc]
    try:
        yield
    finally:
        subprocess.Popen = before  # type: ignore[misc]
