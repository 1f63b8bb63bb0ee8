"""Rank: the place of one process among several that train together, as the process itself learns of it."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Protocol

from parity.checks.running.meeting import HOST

__all__ = ["Meeting", "Rank", "free_ports", "place_of", "standing_as"]


class Meeting(Protocol):
    """Where all ranks wait for each other, such as a `MeetingPoint`."""

    def wait(self, timeout: float | None = None) -> int:
        """Return when every rank has come."""


@dataclass(frozen=True, kw_only=True)
class Rank:
    """One of the processes that train together."""

    number: int
    """From 0."""
    count: int
    ports: tuple[int, int] | None
    """Ports on which rank 0 may listen: of PyTorch's store and of JAX's coordinator; None where a launcher has told
    the process its place."""
    meeting: Meeting

    def environment(self) -> dict[str, str]:
        """Return the variables by which `torchrun` tells a process its place, and JAX where its coordinator is.

        Source: PyTorch documentation, "torchrun (Elastic Launch)", environment variables; the documentation of
        `jax.distributed.initialize`, which takes the coordinator from JAX_COORDINATOR_ADDRESS and the two numbers as
        arguments.
        """
        if self.ports is None:
            return {}
        return {
            **place_of(self.number, self.count),
            "MASTER_ADDR": HOST,
            "MASTER_PORT": str(self.ports[0]),
            "JAX_COORDINATOR_ADDRESS": f"{HOST}:{self.ports[1]}",
        }


def place_of(number: int, count: int) -> dict[str, str]:
    """Return those variables of a rank that are the same in all runs of a check.

    Args:
        number: Of the rank, from 0.
        count: Number of ranks.
    """
    return {
        "RANK": str(number),
        "LOCAL_RANK": str(number),
        "GROUP_RANK": "0",
        "WORLD_SIZE": str(count),
        "LOCAL_WORLD_SIZE": str(count),
        # as torchrun does, unless it is set: each process would take every processor
        "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", "1"),
    }


_ONE_AT_A_TIME = threading.Lock()
"""The environment is this process's own: two ranks that start at once would get each other's place."""


@contextmanager
def standing_as(wanted: Mapping[str, str]) -> Iterator[None]:
    """Let the processes that are started meanwhile begin with the variables of a rank.

    Args:
        wanted: The variables; none change nothing.
    """
    with _ONE_AT_A_TIME:
        before = {name: os.environ.get(name) for name in wanted}
        os.environ.update(wanted)
        try:
            yield
        finally:
            for name, value in before.items():
                if value is None:
                    del os.environ[name]
                else:
                    os.environ[name] = value


def free_ports() -> tuple[int, int]:
    """Return two ports of this machine that nobody listens on now."""
    with ExitStack() as stack:
        both = [stack.enter_context(socket.socket()) for _ in range(2)]
        for one in both:
            one.bind((HOST, 0))
        return both[0].getsockname()[1], both[1].getsockname()[1]
