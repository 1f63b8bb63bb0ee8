"""Processes of JAX that save or restore one tree together, and what they tell each other beside the computation.

The thread that computes goes through the devices. A thread beside it may not: collectives of two threads would meet
in another order in each process. It goes through the key-value store of JAX's coordination service, as Orbax does.
"""

from __future__ import annotations

import json
from typing import Any

import jax
import orbax.checkpoint as ocp

from jax_side.processes import exchange
from parity.errors import CheckpointError

__all__ = ["JaxGroup"]

WAIT_SECONDS = 1800
"""Longest wait for the value of another process, which may be writing: that of Gloo's groups in PyTorch. One that was
killed is noticed earlier, by the heartbeat of JAX."""

PIECE = 1 << 20
"""Bytes of one entry of the store: a message of gRPC has at most 4 MiB, unless it is told otherwise."""

_next = [0]
"""The number of the next group, as this process knows it."""


class JaxGroup:
    """All processes of JAX, for the thread that computes.

    Its number is agreed on: a process that has raised where others have not may have made fewer groups than they.
    """

    def __init__(self) -> None:
        self._number = _next[0]
        self._beside: _BesideGroup | None = None

    @property
    def beside(self) -> _BesideGroup:
        """Return the same processes for the thread that writes; asked for after a first exchange."""
        if self._beside is None:
            self._beside = _BesideGroup(f"parity/saves/{self._number}")
        return self._beside

    @property
    def index(self) -> int:
        """Return the number of this process."""
        return jax.process_index()

    @property
    def count(self) -> int:
        """Return the number of processes."""
        return jax.process_count()

    def exchange(self, value: Any, /) -> list[Any]:
        """Return the values of all processes, in their order; each gives one, which must be JSON."""
        every = exchange([self._number, value])
        self._number = max(number for number, _ in every)
        _next[0] = max(_next[0], self._number + 1)
        return [given for _, given in every]


class _BesideGroup:
    """The processes of a group for one other thread of each.

    Args:
        name: Begins the keys; the same in all processes, and no other group's.
    """

    beside = None

    def __init__(self, name: str) -> None:
        self.index, self.count = jax.process_index(), jax.process_count()
        self._name, self._rounds = name, 0
        self._held: list[str] = []
        """Keys of this process that the others have yet to read."""

    def exchange(self, value: Any, /) -> list[Any]:
        """Return the values of all processes, in their order; each gives one, which must be JSON.

        Raises:
            CheckpointError: A process is gone, or did not come.
        """
        client = ocp.multihost.get_jax_distributed_client()
        prefix, self._rounds = f"{self._name}/{self._rounds}", self._rounds + 1
        data = json.dumps(value).encode()
        pieces = [data[at : at + PIECE] for at in range(0, len(data), PIECE)]
        own = {f"{prefix}/{self.index}/{number}": piece for number, piece in enumerate(pieces)}
        found = []
        try:
            for number, (key, piece) in enumerate(own.items()):
                client.key_value_set_bytes(key, piece if number else f"{len(pieces)}:".encode() + piece)
            for index in range(self.count):
                found.append(json.loads(data if index == self.index else self._read(client, f"{prefix}/{index}")))
            for key in self._held:  # who gave a value to this round has read those of the one before
                client.key_value_delete(key)
        except (jax.errors.JaxRuntimeError, ValueError) as error:
            raise CheckpointError(
                f"process {self.index}: one of {self.count} processes that save together is gone, or did not come: "
                f"{' '.join(str(error).split())[:300]}"
            ) from error
        self._held = list(own)
        return found

    def _read(self, client: Any, prefix: str) -> bytes:
        count, _, data = client.blocking_key_value_get_bytes(f"{prefix}/0", WAIT_SECONDS * 1000).partition(b":")
        rest = [
            client.blocking_key_value_get_bytes(f"{prefix}/{number}", WAIT_SECONDS * 1000)
            for number in range(1, int(count))
        ]
        return b"".join([data, *rest])
