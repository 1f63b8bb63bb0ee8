"""Processes of JAX that save or restore one tree together, and what they tell each other.

The thread that computes goes through the devices. A thread beside it may not: collectives of two threads would meet
in another order in each process. It goes through the key-value store of JAX's coordination service, as Orbax does.

No two of those threads ever wait for each other in a circle: what they tell in a round hangs on the rounds before it
alone, never on what a loop does, and each save has keys of its own, by a number that the processes agreed on in the
thread that computes. Whoever waits looks from time to time whether the process that it waits for has given up.
"""

from __future__ import annotations

import itertools
import json
import time
from contextlib import suppress
from typing import Any

import jax
import orbax.checkpoint as ocp

from jax_side.processes import exchange
from parity.errors import CheckpointError

__all__ = ["JaxGroup"]

WAIT_SECONDS = 1800
"""Longest wait for the value of another process, which may be writing: that of Gloo's groups in PyTorch. One that was
killed is noticed earlier, by the heartbeat of JAX."""

LOOK_SECONDS = 5
"""Time between two looks at whether a process that is waited for has given up."""

PIECE = 1 << 20
"""Bytes of one entry of the store: a message of gRPC has at most 4 MiB, unless it is told otherwise."""

_numbers = itertools.count()
_under_way: set[int] = set()
"""Numbers of the groups that a thread of this process still uses."""
_made: list[int] = []
"""In process 0, numbers of the groups whose keys may be in the store."""
_over = [0]
"""In process 0, the lowest number of a group that a thread of some process may still use."""


class JaxGroup:
    """All processes of JAX, for the thread that computes.

    Its number is that of process 0: a process that has raised where others have not may have made fewer groups.
    """

    def __init__(self) -> None:
        self._number, self._agreed = next(_numbers), False
        self._beside: _BesideGroup | None = None

    @property
    def index(self) -> int:
        """Return the number of this process."""
        return jax.process_index()

    @property
    def count(self) -> int:
        """Return the number of processes."""
        return jax.process_count()

    @property
    def beside(self) -> _BesideGroup:
        """Return the same processes for the thread that writes; asked for after an exchange, in the loop's thread."""
        assert self._agreed, "exchange first"
        if self._beside is None:
            self._beside = _BesideGroup(self._number)
        return self._beside

    def exchange(self, value: Any, /) -> list[Any]:
        """Return the values of all processes, in their order; each gives one, which must be JSON."""
        every = exchange([self._number, min(_under_way, default=None), value])
        self._number, self._agreed = every[0][0], True
        _over[0] = min([low for _, low, _ in every if low is not None], default=self._number)
        return [given for *_, given in every]

    def close(self, why: str = "") -> None:
        """Do nothing: who waits in a collective of devices hears of a failure by JAX alone."""


class _BesideGroup:
    """The processes of a group for one other thread of each.

    Args:
        number: The number of the group: the same in all processes, and no other group's.
    """

    def __init__(self, number: int) -> None:
        self.index, self.count = jax.process_index(), jax.process_count()
        self._client = ocp.multihost.get_jax_distributed_client()
        self._number, self._name, self._rounds = number, _name(number), 0
        self._held: list[str] = []
        """Keys of this process that the others have yet to read."""
        _under_way.add(number)
        if self.index == 0:
            self._remove_read()
            _made.append(number)

    @property
    def beside(self) -> _BesideGroup:
        """Return itself: it is that of the other thread."""
        return self

    def exchange(self, value: Any, /) -> list[Any]:
        """Return the values of all processes, in their order; each gives one, which must be JSON.

        Raises:
            CheckpointError: A process is gone, has given up, or did not come.
        """
        prefix, self._rounds = f"{self._name}{self._rounds}", self._rounds + 1
        data = json.dumps(value).encode()
        pieces = [data[at : at + PIECE] for at in range(0, len(data), PIECE)]
        own = {f"{prefix}/{self.index}/{number}": piece for number, piece in enumerate(pieces)}
        found = []
        try:
            for number, (key, piece) in enumerate(own.items()):
                self._client.key_value_set_bytes(key, piece if number else f"{len(pieces)}:".encode() + piece)
            for index in range(self.count):
                found.append(json.loads(data if index == self.index else self._read(f"{prefix}/{index}", index)))
            for key in self._held:  # who gave a value to this round has read those of the one before
                self._client.key_value_delete(key)
        except (jax.errors.JaxRuntimeError, ValueError) as error:
            raise CheckpointError(
                f"process {self.index}: one of {self.count} processes that save together is gone, or did not come: "
                f"{' '.join(str(error).split())[:300]}"
            ) from error
        self._held = list(own)
        return found

    def close(self, why: str = "") -> None:
        """End what this thread tells the others.

        Args:
            why: What this process failed by, where others may be waiting for it.
        """
        with suppress(jax.errors.JaxRuntimeError):  # the others are gone, or JAX is
            if why:
                self._client.key_value_set_bytes(self._ended(self.index), why.encode(), allow_overwrite=True)
        _under_way.discard(self._number)

    def _remove_read(self) -> None:
        """Remove what groups before have left in the store, where no thread of any process uses them any more."""
        while _made and _made[0] < _over[0]:
            with suppress(jax.errors.JaxRuntimeError):  # it takes up some room, and no more
                self._client.key_value_delete(_name(_made.pop(0)))

    def _read(self, prefix: str, index: int) -> bytes:
        count, _, data = self._wait(f"{prefix}/0", index).partition(b":")
        rest = [self._wait(f"{prefix}/{number}", index) for number in range(1, int(count))]
        return b"".join([data, *rest])

    def _wait(self, key: str, index: int) -> bytes:
        """Return a value that a process gives; look meanwhile whether it has given up."""
        until = time.monotonic() + WAIT_SECONDS
        while True:
            try:
                value: bytes = self._client.blocking_key_value_get_bytes(key, LOOK_SECONDS * 1000)
                return value
            except jax.errors.JaxRuntimeError as error:
                if "DEADLINE_EXCEEDED" not in str(error) or time.monotonic() > until:
                    raise
            with suppress(jax.errors.JaxRuntimeError):  # it has not
                why = self._client.key_value_try_get_bytes(self._ended(index)).decode()
                raise CheckpointError(f"process {index}: {why}")

    def _ended(self, index: int) -> str:
        """Return the key under which a process says that it has given up."""
        return f"{self._name}ended/{index}"


def _name(number: int) -> str:
    """Return what the keys of a group begin with; the store removes them all by it."""
    return f"parity/saves/{number}/"
