"""Leaves of PyTorch's tensors: what they hold, where, and which of them are one memory."""

from __future__ import annotations

import ctypes
import functools
from typing import Any

import torch
from torch import nn

from parity.capture import Extent, Leaf, Role, Walk, component_from_name, digest_of, is_of_user, role_of_array

__all__ = ["add_tensor", "copy_of", "processes_of", "show_attributes", "show_hooks", "tensor", "tensor_leaf"]


def tensor_leaf(value: torch.Tensor, role: Role, component: str) -> Leaf:
    """Return the leaf of a tensor: dtype, shape, device, order of axes if it is not C order, digest of its bytes.

    Args:
        value: The tensor; of one without axes the value itself stands for the digest.
        role: Role of the leaf.
        component: What it is in the field's words, such as `model.params`.

    Numerics: No copy for a dense tensor in memory of the host, in any order of axes; a device's is copied to the
    host, one with gaps made dense.
    """
    value = value.detach()
    kind = f"{str(value.dtype).removeprefix('torch.')}[{'x'.join(map(str, value.shape))}]"
    local = getattr(value, "to_local", None)
    if local is not None and hasattr(value, "placements"):
        kind, value = f"{kind}{value.placements!r}", local()
    if value.layout != torch.strided or value.is_quantized:
        value, kind = value.dequantize() if value.is_quantized else value.to_dense(), f"{kind}@{value.layout}"
    if value.device.type == "meta":
        return Leaf(role, component, f"{kind}@meta", "")
    if _is_freed(value):
        return Leaf(role, component, f"{kind}@freed", "")
    if value.ndim == 0:
        return Leaf(role, component, kind, repr(value.item()))
    if value.device.type != "cpu":
        kind, value = f"{kind}@{value.device}", value.cpu()
    if not value.is_contiguous():
        order = sorted(range(value.ndim), key=lambda axis: (-value.stride(axis), axis))
        kind = f"{kind}@{','.join(map(str, order))}"
        value = value.permute(order).contiguous()  # a view where the tensor is dense
    if value.is_conj() or value.is_neg():
        value = value.resolve_conj().resolve_neg()
    return Leaf(role, component, kind, digest_of(_bytes(value)))


def processes_of(value: torch.Tensor) -> frozenset[int]:
    """Return the processes of a distributed tensor's mesh; none of any other tensor."""
    mesh = getattr(value, "device_mesh", None)
    return frozenset() if mesh is None else frozenset(mesh.mesh.flatten().tolist())


def _bytes(value: torch.Tensor) -> Any:
    """Return the memory of a contiguous tensor; not by `numpy()`, which would forbid its owner to resize it."""
    if not value.numel():
        return b""
    flat = value.reshape(-1).view(torch.uint8)
    if type(flat) is not torch.Tensor:
        return flat.clone().numpy().data
    return (ctypes.c_char * flat.numel()).from_address(flat.data_ptr())


def _is_freed(value: torch.Tensor) -> bool:
    """Return whether the memory of a tensor was given back, as FSDP does with what it gathered."""
    if type(value) is not torch.Tensor or value.layout != torch.strided or not value.numel():
        return False
    last = value.storage_offset() + sum((n - 1) * step for n, step in zip(value.shape, value.stride(), strict=True))
    return value.untyped_storage().nbytes() < (last + 1) * value.element_size()


def _values(value: torch.Tensor) -> Any:
    """Return a copy of a tensor's values as NumPy has them; narrow floats as float32."""
    value = value.detach().cpu()
    if hasattr(value, "to_local"):
        value = value.to_local()
    if value.layout != torch.strided or value.is_quantized:
        value = value.dequantize() if value.is_quantized else value.to_dense()
    plain = value.float() if value.dtype.is_floating_point and value.dtype.itemsize < 4 else value
    return plain.clone().numpy()


def _memory(value: torch.Tensor) -> Any:
    """Return what two tensors of the same memory and shape share."""
    dense = type(value) in (torch.Tensor, nn.Parameter, nn.Buffer) and value.layout == torch.strided
    if not dense or value.numel() == 0 or value.device.type == "meta":
        return id(value)
    return ("tensor", str(value.device), value.data_ptr(), tuple(value.shape), value.stride(), value.dtype)


def add_tensor(walk: Walk, path: str, value: torch.Tensor, role: Role, component: str, tie: str = "") -> None:
    """Add the leaf of a tensor, or of an alias where it is the memory of one that was seen.

    Args:
        walk: Takes the leaf.
        path: Where the trainer keeps it.
        value: The tensor; its values are copied when they are asked for.
        role: Role of the leaf.
        component: What it is in the field's words.
        tie: Component of the leaf that says that two paths are one memory; by default that of the tensor.
    """
    if walk.is_new(path, value, tie or component, _memory(value)):
        walk.add(path, tensor_leaf(value, role, component), lambda: _values(value))
        walk.copied(path, copy_of(value), _extent(value))


def _extent(value: torch.Tensor) -> Extent | None:
    """Return which elements of a distributed tensor are here; None of any other, and where they are no box."""
    if not hasattr(value, "placements") or any(placed.is_partial() for placed in value.placements):
        return None
    from torch_side.formats.dtensors import box_of  # a DTensor is there: its module has been imported

    try:
        box = box_of(value)
    except TypeError:
        return None
    return None if box is None else Extent(tuple(value.shape), (box,))


def copy_of(value: torch.Tensor) -> str:
    """Return what all copies of a distributed tensor's part in this process give; empty of any other tensor.

    Processes at one place along the axes of the mesh that split it hold the same part: that is what a replicated
    placement says (`torch.distributed.tensor`, torch 2.13). A partial sum is not held alike.
    """
    placements = getattr(value, "placements", None)
    if placements is None or any(placed.is_partial() for placed in placements):
        return ""
    mesh = value.device_mesh
    at = mesh.get_coordinate()
    if at is None:  # this process holds nothing of it
        return ""
    part = [None if placed.is_replicate() else where for placed, where in zip(placements, at, strict=True)]
    return f"{mesh.mesh.tolist()} {placements!r} {part}"


def tensor(walk: Walk, path: str, value: torch.Tensor) -> None:
    """Show a tensor that is no part of a module or an optimizer, by its name, and its gradient."""
    component = component_from_name(path)
    role = role_of_array(value.ndim or (value.is_leaf and value.requires_grad))
    if isinstance(value, nn.Parameter):
        role, component = "state", component if component == "ema" else "model.params"
    add_tensor(walk, path, value, role, component)
    if value.is_leaf and value.grad is not None:
        add_tensor(walk, f"{path}.grad", value.grad, "gradient", "gradients")
    show_attributes(walk, path, value)


def show_attributes(walk: Walk, path: str, value: torch.Tensor) -> None:
    """Show what a user put on a tensor, and what the hooks on it hold.

    Args:
        walk: Takes it.
        path: Path of the tensor.
        value: The tensor.
    """
    for name, held in list((getattr(value, "__dict__", None) or {}).items()):
        if not name.startswith("_"):  # PyTorch's own are private
            walk.visit(f"{path}.{name}", held)
    for name in ("_backward_hooks", "_post_accumulate_grad_hooks"):
        show_hooks(walk, f"{path}.{name}", getattr(value, name, None))


def show_hooks(walk: Walk, path: str, hooks: Any) -> None:
    """Show what hooks of the user hold; their keys count all hooks of a process, so they go by their order.

    Args:
        walk: Takes it.
        path: Path of the hooks.
        hooks: Number to function, or None.
    """
    for at, hook in enumerate(list(hooks.values()) if isinstance(hooks, dict) else ()):
        inner = hook.func if isinstance(hook, functools.partial) else getattr(hook, "__func__", hook)
        if is_of_user(getattr(inner, "__module__", None) or type(inner).__module__):
            walk.visit(f"{path}[{at}]", hook)
