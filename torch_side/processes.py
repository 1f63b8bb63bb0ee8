"""Several PyTorch processes: their place from the environment, and torch.distributed between them.

`torchrun` and `parity launch` set the same variables. What processes tell each other here is JSON, never pickled.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

from parity.contract import Place
from parity.errors import SpecError
from parity.spec import RunSpec
from torch_side.formats.group import gather_json, scatter_json

__all__ = [
    "count",
    "environment",
    "exchange",
    "index",
    "local_index",
    "needed",
    "place",
    "scatter",
    "start",
    "started",
    "stop",
]

ADDRESS, PORT, COUNT, INDEX = "MASTER_ADDR", "MASTER_PORT", "WORLD_SIZE", "RANK"
LOCAL_INDEX, LOCAL_COUNT = "LOCAL_RANK", "LOCAL_WORLD_SIZE"
AGENT = "TORCHELASTIC_USE_AGENT_STORE"
"""What torchrun sets where it listens at the address itself."""

environment: dict[str, str | None] = dict.fromkeys(
    (ADDRESS, PORT, COUNT, INDEX, LOCAL_INDEX, LOCAL_COUNT, AGENT, "TORCHELASTIC_RESTART_COUNT")
)
"""Variables of a process that a check starts: it trains alone, even if a launcher gave this one a place."""

_connected: list[Place] = []
"""The place that `start` connected; a process group that someone else made is none of the twins' business."""

STORE_SECONDS = 300
"""Longest the processes of a run wait for each other at torchrun's store, as `parity.runs` waits."""

COLLECTIVE_SECONDS = 600
"""Longest a collective may take: a process that is stopped, not gone, ends the others after it."""


def place() -> Place | None:
    """Return the place of this process among several, or None if the environment names none.

    Under torchrun the port is taken by its agent, so process 0 chooses another one and publishes it there.

    Raises:
        SpecError: The environment names only a part of it.
    """
    found = _named()
    if found is None or found.count == 1:
        return None
    if os.environ.get(AGENT) != "True":
        return found
    return replace(found, address=_published(found))


def started() -> int:
    """Return how many processes the launcher of this one started; 1 where there is none.

    Raises:
        SpecError: The environment names only a part of this process's place.
    """
    found = _named()
    return 1 if found is None else found.count


def needed(spec: RunSpec) -> int:
    """Return how many processes a run needs: one for each device of its mesh."""
    return spec.mesh.devices


def start(place: Place, spec: RunSpec) -> None:
    """Connect PyTorch's processes, which are all there; call before the first use of a device.

    Args:
        place: That of this process.
        spec: The run, whose mesh says how many devices all processes bring together.

    Raises:
        SpecError: There are not as many processes as devices in the mesh, or not as many GPUs here as processes.
    """
    _require_count(spec, place.count)
    seconds = timedelta(seconds=COLLECTIVE_SECONDS)
    if torch.cuda.is_available():
        here = int(os.environ.get(LOCAL_COUNT) or 1)
        if local_index() >= torch.cuda.device_count():
            gpus = f"{torch.cuda.device_count()} GPUs here for process {local_index()} of {here} of this machine"
            raise SpecError("mesh", f"{gpus}; start fewer, or set CUDA_VISIBLE_DEVICES= to train on CPUs")
        torch.cuda.set_device(local_index())
    backend = "cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo"
    dist.init_process_group(backend, store=_store(place), rank=place.index, world_size=place.count, timeout=seconds)
    _connected.append(place)


def stop() -> None:
    """Disconnect PyTorch's processes; all of them do, and none uses a collective afterwards."""
    _connected.clear()
    dist.destroy_process_group()


def count() -> int:
    """Return the number of processes that are connected; 1 for a process alone."""
    return _connected[0].count if _connected else 1


def index() -> int:
    """Return the index of this process among them."""
    return _connected[0].index if _connected else 0


def local_index() -> int:
    """Return the index of this process among those of this machine: that of its GPU."""
    return int(os.environ.get(LOCAL_INDEX) or 0)


def exchange(value: Any, group: dist.ProcessGroup | None = None, *, to_first: bool = False) -> list[Any]:
    """Return the values of all processes, in their order; each gives one, which must be JSON.

    Args:
        value: That of this process.
        group: A group of all of them that has gloo; by default that of every collective.
        to_first: Whether process 0 alone is given them; the others get an empty list.

    Raises:
        RuntimeError: A process is gone.
    """
    if count() == 1:
        return [value]
    return gather_json(value, group, count(), first=index() == 0 if to_first else None)


def scatter(values: Sequence[Any], group: dist.ProcessGroup | None = None) -> list[Any]:
    """Return what each process gave this one, in their order; each gives one value for every process, which is JSON.

    Args:
        values: What this process gives each.
        group: As of `exchange`.

    Raises:
        RuntimeError: A process is gone.
    """
    return list(values) if count() == 1 else scatter_json(values, group)


def _require_count(spec: RunSpec, processes: int) -> None:
    """Refuse a mesh that so many processes cannot drive, a device each."""
    mesh = spec.mesh
    if mesh.devices != processes:
        sizes = " x ".join(f"mesh.{axis} = {size}" for axis, size in mesh.sizes.items())
        problem = f"{sizes} are {mesh.devices} devices, and {processes} processes were started"
        raise SpecError("mesh", f"{problem}; a PyTorch process drives one device")
    if mesh.processes not in (1, processes):
        raise SpecError("mesh.processes", f"{mesh.processes} asked for, {processes} were started")


def _named() -> Place | None:
    """Return the place that the environment names, with the launcher's own address; None if it names none."""
    found = {name: os.environ.get(name, "") for name in (ADDRESS, PORT, COUNT, INDEX)}
    if not (found[COUNT] or found[INDEX]):  # clusters set the address for every job
        return None
    for name, value in found.items():
        if not value:
            given = ", ".join(f"{k}={v}" for k, v in found.items() if v)
            raise SpecError(name, f"is not set, but {given} is; several processes need all four, one needs none")
    number = _number(COUNT, found[COUNT], 1)
    rank = _number(INDEX, found[INDEX], 0)
    port = _number(PORT, found[PORT], 1)
    if rank >= number:
        raise SpecError(INDEX, f"expected 0 to {number - 1} (of {COUNT}={number}), got {rank}")
    return Place(address=f"{found[ADDRESS]}:{port}", index=rank, count=number)


def _agent_store(place: Place) -> dist.Store:
    """Return the store of torchrun's agent, which it keeps when it starts processes anew."""
    seconds = timedelta(seconds=STORE_SECONDS)
    return dist.PrefixStore("parity", dist.TCPStore(place.host, place.port, is_master=False, timeout=seconds))


def _store(place: Place) -> dist.Store:
    """Return the store by which the processes of a run find each other: that of torchrun, or one in process 0.

    In the store of an agent stand the addresses of earlier processes too, for which Gloo would wait (torch 2.13); the
    address of process 0, which no two starts have in common, parts them. How often torchrun started them anew would
    not: each agent counts by itself, and a change of their number is not counted.
    """
    named = _named()
    if os.environ.get(AGENT) == "True" and named is not None:
        return dist.PrefixStore(place.address, _agent_store(named))
    first = place.index == 0
    seconds = timedelta(seconds=STORE_SECONDS)
    return dist.TCPStore(place.host, place.port, place.count, first, timeout=seconds, wait_for_workers=False)


def _published(named: Place) -> str:
    """Return the address at which process 0 will listen, which it publishes in the store of torchrun's agent.

    The others may find there what a process 0 published that is gone: they take an address at which someone listens.

    Raises:
        SpecError: Nobody listens at a published address for `STORE_SECONDS`.
    """
    store = _agent_store(named)
    if named.index == 0:
        alone = os.environ.get(LOCAL_COUNT) == str(named.count)  # all on this machine: its name need not be known
        host = named.host if alone else socket.getfqdn()
        while True:
            with socket.create_server(("", 0)) as free:
                address = f"{host}:{free.getsockname()[1]}"
            if store.add(f"taken/{address}", 1) == 1:
                store.set("address", address)
                return address
    until = time.monotonic() + STORE_SECONDS
    while True:
        address = bytes(store.get("address")).decode()
        found = replace(named, address=address)
        try:
            socket.create_connection((found.host, found.port), timeout=1.0).close()
            return address
        except OSError as error:  # gone, or not listening yet
            if time.monotonic() > until:
                problem = f"process 0 of {named.count} does not answer at {address}: {error.strerror or error}"
                raise SpecError(ADDRESS, problem) from error
            time.sleep(0.1)


def _number(name: str, text: str, least: int) -> int:
    if not text.isascii() or not text.isdigit() or int(text) < least:
        raise SpecError(name, f"expected an integer of at least {least}, got {text!r}")
    return int(text)
