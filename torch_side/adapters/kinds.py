"""Kinds of PyTorch for the capture of live state: tensors and constants here; the others from beside."""

from __future__ import annotations

from typing import Any

import torch

from parity.capture import Walk, component_from_name, register
from torch_side.adapters.arrays import tensor
from torch_side.adapters.loaders import register_loaders
from torch_side.adapters.modules import register_modules
from torch_side.adapters.optimizers import register_optimizers
from torch_side.adapters.streams import register_streams
from torch_side.adapters.trainers import register_trainers

__all__ = ["install"]


def _constant(walk: Walk, path: str, value: Any) -> None:
    walk.leaf(path, str(value), component_from_name(path), "scalar")


def install() -> None:
    """Register the kinds; again is no harm."""
    register(torch.Tensor, tensor)
    for constant in (torch.device, torch.dtype, torch.Size, torch.memory_format, torch.layout):
        register(constant, _constant)
    register_optimizers()
    register_modules()
    register_streams()
    register_loaders()
    register_trainers()
