"""Checkpoint files of PyTorch, read to compare what two runs saved."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

__all__ = ["read_saved"]


def read_saved(path: Path) -> Any:
    """Return what `torch.save` or safetensors wrote; None for another kind of file.

    The file is the trainer's own, of a moment ago: unpickling runs what its own `torch.load` runs.
    """
    if not path.is_file():
        return None
    with path.open("rb") as file:
        start = file.read(4)
    if start[:2] == b"PK":
        return torch.load(path, map_location="cpu", weights_only=False)
    if path.suffix == ".safetensors":
        from safetensors.torch import load_file

        return load_file(path)
    return None
