"""Several JAX processes: their place from the environment, and JAX's own runtime between them."""

from __future__ import annotations

import os
import socket
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import jax
import numpy as np
import orbax.checkpoint as ocp
from jax.experimental import multihost_utils

from parity.contract import Place, gather_values
from parity.errors import SpecError
from parity.spec import RunSpec

__all__ = ["barrier", "environment", "exchange", "place", "start", "stop"]

ADDRESS, COUNT, INDEX = "JAX_COORDINATOR_ADDRESS", "JAX_NUM_PROCESSES", "JAX_PROCESS_ID"
"""`jax.distributed.initialize` reads the first itself; the others are what launchers of JAX jobs set (jax 0.10 takes
them as arguments)."""

environment = {"XLA_PYTHON_CLIENT_PREALLOCATE": "false", ADDRESS: None, COUNT: None, INDEX: None}
"""Variables of a process that a check starts: name to value, None for one that is removed. It trains alone, even if
a launcher gave this one a place; and two run at once, of which none may take most of a GPU's memory at its start."""

START_SECONDS = 60
"""Longest JAX may take to connect processes that are all there."""

STOP_SECONDS = 30
"""Longest JAX may take to disconnect them; they have agreed to before."""


def place() -> Place | None:
    """Return the place of this process among several, or None if the environment names none.

    Raises:
        SpecError: The environment names only a part of it.
    """
    found = {name: os.environ.get(name, "") for name in (ADDRESS, COUNT, INDEX)}
    if not any(found.values()):
        return None
    for name, value in found.items():
        if not value:
            given = ", ".join(f"{k}={v}" for k, v in found.items() if v)
            raise SpecError(name, f"is not set, but {given} is; several processes need all three, one needs none")
    count = _number(COUNT, found[COUNT], 1)
    index = _number(INDEX, found[INDEX], 0)
    host, _, port = found[ADDRESS].rpartition(":")
    if not host or not port.isdigit() or not 0 < int(port) < 1 << 16:
        raise SpecError(ADDRESS, f"expected host:port of process 0, got {found[ADDRESS]!r}")
    if index >= count:
        raise SpecError(INDEX, f"expected 0 to {count - 1} (of {COUNT}={count}), got {index}")
    return Place(address=found[ADDRESS], index=index, count=count) if count > 1 else None


def start(place: Place, spec: RunSpec) -> None:
    """Connect JAX's processes, which are all there; call before the first use of a device.

    On CPU, every process forces its share of the devices. JAX's own handler of SIGTERM is left out: it would take the
    signal, and report it only to code that asks.

    Args:
        place: That of this process.
        spec: The run, whose mesh says how many devices all processes bring together.

    Raises:
        SpecError: The devices of the mesh cannot be shared evenly.
    """
    if (devices := spec.mesh.devices) % place.count:
        problem = f"{devices} is no multiple of {place.count}, the number of processes"
        raise SpecError(
            "mesh.data" if devices == spec.mesh.data else "mesh", f"{problem}, each of which brings as many devices"
        )
    if spec.mesh.processes not in (1, place.count):
        raise SpecError("mesh.processes", f"{spec.mesh.processes} asked for, the run was started as {place.count}")
    jax.config.update("jax_enable_preemption_service", False)
    jax.config.update("jax_num_cpu_devices", devices // place.count)
    jax.config.update("jax_cpu_enable_async_dispatch", False)  # as `numerics.configure` does for one process
    address = place.address if place.index == 0 else _Relay(place).address
    jax.distributed.initialize(
        address,
        place.count,
        place.index,
        initialization_timeout=START_SECONDS,
        shutdown_timeout_seconds=STOP_SECONDS,
    )


def stop() -> None:
    """Disconnect JAX's processes; all of them do, and none uses a device afterwards."""
    jax.distributed.shutdown()


def exchange(value: Any) -> list[Any]:
    """Return the values of all processes, in their order; each gives one, which must be JSON.

    Args:
        value: That of this process; all call it, and in the thread that computes.
    """
    return [value] if jax.process_count() == 1 else gather_values(value, _gathered)


def _gathered(data: bytes, size: int) -> list[bytes]:
    """Return so many bytes of each process, or up to twice as many: each length is a program of its own."""
    room = 1 << (size - 1).bit_length()
    given = np.frombuffer(data[:room].ljust(room, b"\0"), np.uint8)
    return [row.tobytes() for row in np.asarray(multihost_utils.process_allgather(given))]


def barrier() -> Callable[..., None]:
    """Return the barrier of a save's threads: a process whose part has failed does not wait in it.

    Orbax 0.12 waits for the other processes while the error passes through its `finally`, for twenty minutes, and
    the error is not reported before.

    Returns:
        A function as Orbax calls it, with `key` and `timeout_ms`; it raises again the error that is being handled
        where it is called.
    """
    wait = ocp.multihost.get_barrier_sync_fn()

    def sync(*, key: str, timeout_ms: int) -> None:
        if (error := sys.exc_info()[1]) is not None:
            raise error
        wait(key=key, timeout_ms=timeout_ms)

    return sync


class _Relay:
    """Stands between JAX and its coordinator in process 0, and keeps silent when that is gone.

    JAX's client aborts its process with a stack trace the moment it loses the coordinator, and the callback it has
    for that ends in std::bad_cast (jax 0.10.2). So it never loses it: `parity.runs` knows of the loss itself.
    """

    def __init__(self, place: Place) -> None:
        self._coordinator = (place.host, place.port)
        self._server = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._server.getsockname()[1]}"
        _thread(self._accept)

    def _accept(self) -> None:
        while True:
            near, _ = self._server.accept()
            _thread(self._relay, near)

    def _relay(self, near: socket.socket) -> None:
        until = time.monotonic() + START_SECONDS
        while True:  # the coordinator starts when process 0 has closed its own listener
            try:
                far = socket.create_connection(self._coordinator, timeout=1.0)
                break
            except OSError:
                if time.monotonic() > until:
                    near.close()
                    return
                time.sleep(0.05)
        far.settimeout(None)
        with near, far:
            back = _thread(_copy, far, near)
            _copy(near, far)
            with suppress(OSError):  # JAX has left
                far.shutdown(socket.SHUT_RDWR)
            back.join()


def _copy(source: socket.socket, target: socket.socket) -> None:
    with suppress(OSError):
        while data := source.recv(1 << 16):
            target.sendall(data)


def _thread(work: Callable[..., None], *args: socket.socket) -> threading.Thread:
    thread = threading.Thread(target=work, args=args, daemon=True)
    thread.start()
    return thread


def _number(name: str, text: str, least: int) -> int:
    if not text.isascii() or not text.isdigit() or int(text) < least:
        raise SpecError(name, f"expected an integer of at least {least}, got {text!r}")
    return int(text)
