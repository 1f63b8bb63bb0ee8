"""Tensors that lie in several processes: which box of the whole is here, copied, and made again of other elements."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.distributed.tensor import DTensor
from torch.distributed.tensor._utils import compute_local_shape_and_global_offset

from parity.formats import Box

__all__ = ["box_of", "copy_of", "is_split", "laid_like", "local_of", "require_known"]


def is_split(value: Any) -> bool:
    """Return whether a tensor lies on more than one device, each of another process."""
    return isinstance(value, DTensor) and value.device_mesh.size() > 1


def require_known(value: DTensor) -> None:
    """Refuse a tensor of which no process holds a box.

    Raises:
        TypeError: It is a sum that was not added up, or the elements that are here do not lie together.
    """
    if any(placement.is_partial() for placement in value.placements):
        raise TypeError(f"is a DTensor of {value.placements}: a sum that was not added up; redistribute it first")
    box_of(value)


def box_of(value: DTensor) -> Box | None:
    """Return where the elements that are here lie in the whole: first and end along each axis.

    Placements split from left to right; those that PyTorch calls strided (FSDP2 on top of tensor parallel) after the
    others, from right to left. As `torch.chunk` does, the last parts are smaller, or empty.

    Returns:
        The box; None in a process that is not in the mesh.

    Raises:
        TypeError: PyTorch finds other elements here: they do not lie together.
    """
    mesh, shape = value.device_mesh, tuple(value.shape)
    at = mesh.get_coordinate()
    if at is None:
        return None
    axes = range(mesh.ndim)
    dims = [getattr(placement, "dim", None) for placement in value.placements]
    strided = [axis for axis in axes if hasattr(value.placements[axis], "split_factor")]
    box = [(0, size) for size in shape]
    for axis in [*(a for a in axes if a not in strided), *reversed(strided)]:
        if (dim := dims[axis]) is not None:
            low, high = box[dim]
            each = -(-(high - low) // mesh.size(axis))
            first = min(low + each * at[axis], high)
            box[dim] = (first, min(first + each, high))
    sizes, starts = compute_local_shape_and_global_offset(value.shape, mesh, value.placements)
    extents = tuple(high - low for low, high in box)
    here = all(extents) and tuple(starts) != tuple(low for low, _ in box)
    if tuple(sizes) != extents or tuple(value.to_local().shape) != extents or here:
        raise TypeError(
            f"is a DTensor of {list(shape)} placed as {value.placements}, of which the elements in this process "
            f"({list(sizes)} from {list(starts)}) are not the box {box}"
        )
    return tuple(box)


def copy_of(value: DTensor) -> tuple[str, bool]:
    """Return the name of the copy of the whole to which the elements here belong, and whether it is the first."""
    at: Sequence[int] = value.device_mesh.get_coordinate() or ()
    same = [n for n, placement in zip(at, value.placements, strict=False) if getattr(placement, "dim", None) is None]
    return ".".join(map(str, same)), not any(same)


def local_of(value: DTensor) -> Tensor:
    """Return the elements that are here, in the memory of the tensor."""
    return value.detach().to_local()


def laid_like(like: DTensor, local: Tensor, device: torch.device | None = None) -> DTensor:
    """Return a tensor that lies as another one does, with other elements here.

    Args:
        like: The other tensor; its elements are not looked at.
        local: The elements.
        device: Where they go; None for the device of the mesh.
    """
    where = device or torch.device(like.device_mesh.device_type)
    made: DTensor = torch.empty_like(like.detach(), dtype=local.dtype, device=where)  # keeps uneven placements
    made.to_local().copy_(local)
    return made
