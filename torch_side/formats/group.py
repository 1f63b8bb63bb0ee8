"""Processes of torch.distributed that save or restore one tree together; whoever made their process group."""

from __future__ import annotations

import json
import os
import weakref
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor, nn

from parity.contract import gather_values
from parity.errors import CheckpointError
from torch_side.formats.dtensors import is_split

__all__ = ["TorchGroup", "gather_json", "group_of", "scatter_json"]


def gather_json(value: Any, group: Any, count: int, *, first: bool | None = None) -> list[Any]:
    """Return the values of all processes, in their order; each gives one, which must be JSON.

    Args:
        value: That of this process.
        group: A group of all of them that has gloo; None for that of every collective.
        count: Number of processes.
        first: Whether this is the one process that is given them, the others an empty list; None where all are.

    Raises:
        RuntimeError: A process is gone.
    """

    def to_all(data: bytes, size: int) -> list[bytes]:
        given = _padded(data, size)
        rows = [torch.empty_like(given) for _ in range(count)]
        dist.all_gather(rows, given, group=group)
        return [row.numpy().tobytes() for row in rows]

    def to_first(data: bytes, size: int) -> list[bytes]:
        given = _padded(data, size)
        rows = [torch.empty_like(given) for _ in range(count)] if first else []
        dist.gather(given, rows or None, dst=0, group=group)
        return [row.numpy().tobytes() for row in rows]

    found = gather_values(value, to_all, None if first is None else to_first)
    return found if first is not False else []


def _padded(data: bytes, size: int) -> Tensor:
    """Return the first bytes of a text, and zeros where it is shorter."""
    return torch.from_numpy(np.frombuffer(bytearray(data[:size].ljust(size, b"\0")), np.uint8))


def scatter_json(values: Sequence[Any], group: Any) -> list[Any]:
    """Return what each process gave this one, in their order; each gives one value for every process, which is JSON.

    No process has more than what it gives and what it gets.

    Args:
        values: What this process gives each.
        group: A group of all of them that has gloo; None for that of every collective.

    Raises:
        RuntimeError: A process is gone.
    """
    texts = [json.dumps(value).encode() for value in values]
    given = torch.tensor([len(text) for text in texts])
    got = torch.empty_like(given)
    dist.all_to_all_single(got, given, group=group)
    sizes = got.tolist()
    data = torch.from_numpy(np.frombuffer(bytearray(b"".join(texts)), np.uint8))
    room = torch.empty(sum(sizes), dtype=torch.uint8)
    dist.all_to_all_single(room, data, sizes, given.tolist(), group=group)
    return [json.loads(part.numpy().tobytes()) for part in room.split(sizes)]


class TorchGroup:
    """All processes of the default process group, in a group of their own: collectives of two threads must not meet.

    It holds no group: one that outlives `destroy_process_group` ends with the interpreter, and its threads abort it.

    Args:
        group: The group.
        beside: One more, for the thread that writes beside the one that computes.
    """

    def __init__(self, group: Any, beside: Any = None) -> None:
        self._group = weakref.ref(group)
        self.index, self.count = dist.get_rank(), dist.get_world_size()
        self.beside: TorchGroup = self if beside is None else TorchGroup(beside)
        """The same processes for that thread."""

    def exchange(self, value: Any, /) -> list[Any]:
        """Return the values of all processes, in their order; each gives one, which must be JSON.

        Raises:
            CheckpointError: A process is gone.
        """
        if (group := self._group()) is None:
            raise CheckpointError("the process group was destroyed while processes saved or restored together")
        try:
            return gather_json(value, group, self.count)
        except RuntimeError as error:
            text = " ".join(str(error).split())
            raise CheckpointError(
                f"process {self.index}: one of {self.count} processes that save or restore together is gone, or did "
                f"not come: {text[:300]}"
            ) from error

    def close(self, why: str = "") -> None:
        """Do nothing: the next save has the same group, and who waits in it hears of a failure by Gloo alone."""


_made: list[tuple[Any, TorchGroup]] = []
"""The default group for which groups were made, as a weak reference, and what was made; at most one."""


def _all_processes() -> TorchGroup:
    """Return the processes of the default group; all of them call it at once, as making a group is a collective."""
    world = dist.group.WORLD
    if not _made or _made[0][0]() is not world:
        made = TorchGroup(dist.new_group(backend="gloo"), dist.new_group(backend="gloo"))
        _made[:] = [(weakref.ref(world), made)]
    return _made[0][1]


def group_of(tree: Any, together: bool | None) -> TorchGroup | None:
    """Return the processes that save or restore a tree together; None where this one does it alone.

    Args:
        tree: The tree, or a template.
        together: Whether all processes do; None for whether a tensor of the tree lies in several.

    Raises:
        CheckpointError: They are to act together, and torch.distributed has not connected them.
    """
    if together is False or (together is None and not _holds_split(tree)):
        return None
    if not (dist.is_available() and dist.is_initialized()):
        if int(os.environ.get("WORLD_SIZE") or 1) > 1:
            raise CheckpointError(
                f"together=True: WORLD_SIZE is {os.environ['WORLD_SIZE']}, and torch.distributed is not initialized; "
                "call torch.distributed.init_process_group() first"
            )
        return None
    return _all_processes() if dist.get_world_size() > 1 else None


def _holds_split(value: Any) -> bool:
    """Return whether a tensor of a tree lies in several processes; objects that hold state are asked for it."""
    return any(is_split(tensor) for tensor in _tensors(value, 0))


def _tensors(value: Any, depth: int) -> Iterator[Tensor]:
    """Yield tensors of a tree, of the containers in which sharded ones are found; the depth bounds circles."""
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, nn.Module):
        yield from value.state_dict().values()
    elif isinstance(value, torch.optim.Optimizer):
        for group in value.param_groups:
            yield from group["params"]
    elif depth < 100 and callable(getattr(value, "state_dict", None)) and not isinstance(value, type):
        yield from _tensors(value.state_dict(), depth + 1)
    elif depth < 100 and isinstance(value, Mapping | list | tuple):
        for item in value.values() if isinstance(value, Mapping) else value:
            yield from _tensors(item, depth + 1)
    elif depth < 100 and hasattr(value, "__dataclass_fields__") and not isinstance(value, type):
        for name in value.__dataclass_fields__:
            yield from _tensors(getattr(value, name), depth + 1)
