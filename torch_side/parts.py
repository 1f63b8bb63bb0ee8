"""Parts of a state: what one process of several holds of each parameter, and of what the optimizer keeps for it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.tensor import DTensor

from parity.formats import Box
from parity.spec import MESH_AXES
from torch_side.formats.dtensors import box_of
from torch_side.mesh import Mesh

__all__ = ["Held", "cut", "gathered", "map_parts", "part_of", "tensors_of"]


@dataclass(frozen=True)
class Held:
    """What this process holds of a parameter."""

    shape: tuple[int, ...]
    """Of the whole parameter."""
    box: Box
    """Where its elements are in the whole: first and end along each axis."""
    local: nn.Parameter
    """Its elements: what the optimizer trains, in the memory of the module's own parameter."""
    split: tuple[str, ...]
    """Axes of the mesh along which it is split; along the others each process has the same elements."""
    writes: bool
    """Whether this process writes it into checkpoints, of those that hold the same elements."""


def part_of(number: int, shape: tuple[int, ...], p: nn.Parameter, mesh: Mesh) -> Held:
    """Return the part of a parameter that is here; `model` split it before `fsdp` did.

    Args:
        number: Place of the parameter in the model: which of the processes that hold the same elements writes it.
        shape: Of the whole.
        p: The parameter, a DTensor where it is split.
        mesh: The devices.
    """
    box, split = tuple((0, size) for size in shape), []
    if isinstance(p, DTensor):
        here = box_of(p)
        assert here is not None, f"{shape}: this process is not in {p.device_mesh}"
        box = here
        placed: Mapping[str, Any] = dict(zip(p.device_mesh.mesh_dim_names or (), p.placements, strict=True))
        # of Shard, and of _StridedShard, which is not a Shard (torch 2.13)
        split = [axis for axis in reversed(MESH_AXES) if getattr(placed.get(axis), "dim", None) is not None]
    local = nn.Parameter(p.to_local().detach()) if isinstance(p, DTensor) else p
    same = [axis for axis in MESH_AXES if axis not in split]
    holders, own = 1, 0
    for axis in same:
        holders, own = holders * mesh.size(axis), own * mesh.size(axis) + mesh.at(axis)
    return Held(shape, box, local, tuple(split), number % holders == own)


def map_parts(
    content: Mapping[str, Any],
    names: Sequence[str],
    parts: Mapping[str, Held],
    change: Callable[[Tensor, Held], Tensor],
) -> dict[str, Any]:
    """Return the file form of a state with a change made to every tensor of which a process holds a part.

    These are the parameters, and what has their shape in the optimizer; all else is the same in every process.

    Args:
        content: What `file_state` returned, or a file holds.
        names: Parameter names in the order in which the optimizer numbers them.
        parts: Parameter name to its part.
        change: Given a tensor and its part.
    """
    model = {name: change(value, parts[name]) if name in parts else value for name, value in content["model"].items()}
    entries = {
        number: {
            key: change(value, parts[names[number]]) if isinstance(value, Tensor) and value.ndim else value
            for key, value in entry.items()
        }
        for number, entry in content["optimizer"]["state"].items()
    }
    return {**content, "model": model, "optimizer": {**content["optimizer"], "state": entries}}


def cut(value: Tensor, part: Held) -> Tensor:
    """Return a copy of the elements of a whole tensor that a process holds; one that is cut already, as it is.

    Args:
        value: Of the shape of the whole, or of the part.
        part: What this process holds.
    """
    if value.shape == part.local.shape != part.shape:
        return value
    return value[tuple(slice(low, high) for low, high in part.box)].clone()


def gathered(value: Tensor, part: Held) -> Tensor:
    """Return a whole tensor from the parts of all processes, each of which calls this.

    Args:
        value: What this process holds, of the shape of the part.
        part: Which part that is.

    Numerics: bits are moved: they are added up as bytes of which all but one are zero, where numbers would lose the
    sign of a zero.
    """
    whole = torch.zeros(part.shape, dtype=value.dtype, device=value.device)
    if part.writes:
        whole[tuple(slice(low, high) for low, high in part.box)] = value.detach()
    dist.all_reduce(whole.view(-1).view(torch.uint8))
    return whole


def tensors_of(content: Any) -> Iterator[Tensor]:
    """Yield the tensors of a content, each once, in the order in which pickling meets them."""
    seen: set[int] = set()

    def walk(value: Any) -> Iterator[Tensor]:
        if isinstance(value, Tensor):
            if id(value) not in seen:
                seen.add(id(value))
                yield value
        elif isinstance(value, dict | list | tuple):
            for item in value.values() if isinstance(value, dict) else value:
                yield from walk(item)

    return walk(content)
