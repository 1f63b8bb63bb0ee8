"""A process that has imported a framework and forks: `python server.py SOCKET CLIENT MODULE...`.

It imports the modules, starts no thread and no device, and waits. For each request of its client it forks a process,
which becomes what the command line says as a new interpreter would: with the streams, directory, environment, session
and group of the request. That process is a child of the client, not of this one: its parent waits for it, and kills
it, as it does with any other.
"""

from __future__ import annotations

import ctypes
import fcntl
import gc
import importlib
import io
import json
import os
import runpy
import socket
import struct
import sys
import time
import types
import warnings

HIGH = 400
"""Descriptors are moved above this number while those of the request take their places."""

MOST_DESCRIPTORS = 16
HEADER = struct.Struct("!I")


def main() -> list[str]:
    """Serve the client until it closes the socket, or ends; return the command line, in a forked process only."""
    number, client, *modules = sys.argv[1:]
    for module in modules:
        importlib.import_module(module)
    sys.stdout.flush()
    gc.collect()
    gc.freeze()  # a collection in a forked process would touch, and so copy, every page
    with socket.socket(fileno=int(number)) as channel:
        channel.sendall(b"ready")
        while True:
            asked = _receive(channel)
            if asked is None:
                os._exit(0)
            request, descriptors = asked
            if not _fork():  # the forked process forks again and ends: the client, which asks for orphans, gets them
                if _fork():
                    os._exit(0)
                channel.close()
                break
            os.wait()
            for descriptor in descriptors:
                os.close(descriptor)
    return _become(request, descriptors, int(client))


def _fork() -> int:
    with warnings.catch_warnings():  # of a framework that fears for its threads: none was started
        warnings.simplefilter("ignore")
        return os.fork()


def _receive(channel: socket.socket) -> tuple[dict[str, object], list[int]] | None:
    head, descriptors, *_ = socket.recv_fds(channel, HEADER.size, MOST_DESCRIPTORS)
    if not head:
        return None
    left = HEADER.unpack(head)[0]
    body = b""
    while len(body) < left:
        body += channel.recv(left - len(body))
    return json.loads(body), descriptors


def _become(request: dict, descriptors: list[int], client: int) -> list[str]:
    """Take the streams, the directory, the environment, the session and the group of a request; report the number."""
    while os.getppid() != client:
        time.sleep(0.0002)
    high = [fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, HIGH) for descriptor in descriptors]
    for descriptor in descriptors:
        os.close(descriptor)
    status, *kept = high
    for descriptor, number in zip(kept, [0, 1, 2, *request["pass_fds"]], strict=True):
        os.dup2(descriptor, number)
        os.close(descriptor)
    if request["session"]:
        os.setsid()
    else:
        os.setpgid(0, request["group"])
    os.umask(request["umask"])
    os.chdir(request["directory"])
    for name, value in request["variables"].items():  # the others are those of this process
        os.environ.pop(name, None)
        if value is not None:
            os.environ[name] = value
    arm = getattr(ctypes.CDLL(None), "disk_from_environment", None)  # of tests/storage/failing_disk.c, if preloaded
    if arm is not None:
        arm()
    os.sched_setaffinity(0, request["processors"])
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed()  # the standard library's own is seeded anew by a fork
    _open_streams()
    os.write(status, struct.pack("!i", os.getpid()))
    os.close(status)
    return request["command"]


def _open_streams() -> None:
    """Open the standard streams as a new interpreter does; how it would is seen at those that this one has."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        known = getattr(sys, name)
        raw = io.FileIO(number, "wb" if number else "rb", closefd=False)
        raw.name = f"<{name}>"  # type: ignore[misc]
        unbuffered = number and not hasattr(known.buffer, "raw")
        stream = io.TextIOWrapper(
            raw if unbuffered else io.BufferedWriter(raw) if number else io.BufferedReader(raw),
            encoding=known.encoding,
            errors=known.errors,
            line_buffering=not unbuffered and (number == 2 or os.isatty(number)),
            write_through=known.write_through,
        )
        stream.mode = "w" if number else "r"
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)


def run(command: list[str]) -> None:
    """Run a command line of Python: `python -m MODULE ...` or `python -c CODE ...`."""
    _, how, *words = command
    sys.orig_argv = command
    main = types.ModuleType("__main__")
    sys.modules["__main__"] = main
    if how == "-m":
        module, *words = words
        sys.path[0] = os.getcwd()
        sys.argv = [module, *words]
        runpy._run_module_as_main(module)
    else:
        code, *words = words
        sys.path[0] = ""
        sys.argv = ["-c", *words]
        exec(compile(code, "<string>", "exec"), main.__dict__)


if __name__ == "__main__":
    run(main())
