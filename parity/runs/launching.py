"""Several processes of one run on this machine: started, watched, and ended together.

For trying and for tests: a cluster has its own launcher, and `torchrun` starts anew what has failed. The processes
find their place in the variables that launchers of either framework set, and end each other (`parity.runs.peers`);
what is here ends those that do not.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from types import FrameType

__all__ = ["launch", "variables"]

HOST = "localhost"

END_SECONDS = 15.0
"""How long the others may take to end when one has failed; they know of it within a second, and may be saving."""

POLL_SECONDS = 0.05


def variables(index: int, count: int, port: int) -> dict[str, str]:
    """Return the variables that give a process its place, for PyTorch and for JAX.

    Args:
        index: From 0.
        count: Processes of the run.
        port: Free port of this machine, where process 0 will listen.
    """
    torch = {"RANK": index, "LOCAL_RANK": index, "WORLD_SIZE": count, "LOCAL_WORLD_SIZE": count}
    jax = {"JAX_PROCESS_ID": index, "JAX_NUM_PROCESSES": count}
    addresses = {"MASTER_ADDR": HOST, "MASTER_PORT": port, "JAX_COORDINATOR_ADDRESS": f"{HOST}:{port}"}
    return {name: str(value) for name, value in {**torch, **jax, **addresses}.items()}


def launch(command: Sequence[str], count: int, environment: Mapping[str, str] | None = None) -> int:
    """Run a command in several processes that train one run; return when all have ended.

    SIGINT, SIGTERM and SIGHUP go to all of them. When one fails, those that still run after `END_SECONDS` are killed.

    Args:
        command: The command and its arguments, the same for all.
        count: Number of processes.
        environment: Variables of all of them; by default those of this process.

    Returns:
        0 if all returned that; else the exit code of the first that failed, or 128 + the signal that killed it.

    Raises:
        OSError: A process cannot be started; none is left.
    """
    with socket.create_server((HOST, 0)) as free:
        port = free.getsockname()[1]
    known = {
        name: value for name, value in (environment or os.environ).items() if not name.startswith("TORCHELASTIC")
    }
    started: list[subprocess.Popen[bytes]] = []
    with _passed_on(started) as heard:
        try:
            for index in range(count):
                env = {**known, **variables(index, count, port)}
                started.append(subprocess.Popen(command, env=env))
                for number in heard:  # before this one was there
                    started[-1].send_signal(number)
            return _watch(started)
        finally:
            for process in started:
                if process.poll() is None:
                    process.kill()
                    process.wait()


def _watch(started: Sequence[subprocess.Popen[bytes]]) -> int:
    """Wait for all processes, of which one that fails ends the others; return the code of the first that failed."""
    code, until = 0, float("inf")
    while None in [process.poll() for process in started]:  # of each: a failure is seen while others run
        failed = [process.returncode for process in started if process.returncode]
        if failed and not code:
            code, until = failed[0], time.monotonic() + END_SECONDS
        if time.monotonic() > until:
            left = [(index, process) for index, process in enumerate(started) if process.poll() is None]
            names = ", ".join(f"process {index} of {len(started)} ({process.pid})" for index, process in left)
            print(f"parity: error: {names} did not end within {END_SECONDS:g} s: killed", file=sys.stderr, flush=True)
            for _, process in left:
                process.kill()
                process.wait()
        time.sleep(POLL_SECONDS)
    code = code or next((process.returncode for process in started if process.returncode), 0)
    return 128 - code if code < 0 else code


@contextmanager
def _passed_on(started: Sequence[subprocess.Popen[bytes]]) -> Iterator[list[int]]:
    """Pass signals to stop on to all processes while the block runs; yields those that came."""
    heard: list[int] = []

    def pass_on(number: int, frame: FrameType | None) -> None:
        del frame
        heard.append(number)
        for process in started:
            with suppress(ProcessLookupError):
                process.send_signal(number)

    before = {number: signal.signal(number, pass_on) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    try:
        yield heard
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
