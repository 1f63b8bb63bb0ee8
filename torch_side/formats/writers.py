"""The formats that PyTorch's side writes, for conversions."""

from __future__ import annotations

from parity.formats import Writer
from torch_side.formats.write_dcp import DCP
from torch_side.formats.write_torch import TORCH_SAVE

__all__ = ["writers"]


def writers() -> tuple[Writer, ...]:
    """Return the writers of PyTorch's own formats."""
    return (TORCH_SAVE, DCP)
