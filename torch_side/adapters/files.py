"""Checkpoint files of PyTorch, read to compare what two runs saved."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import numpy as np
import torch

__all__ = ["is_part", "read_saved"]

_PLAIN = [np.ndarray, np.dtype, *{type(np.dtype(kind)) for kind in "?bhilqBHILQfde"}]
"""What files hold beside tensors: NumPy arrays, as in the state of its generator."""


_RECONSTRUCT = np.ndarray(0).__reduce__()[0]
"""The function by which NumPy's arrays are unpickled; it makes an empty one."""

_ONE_AT_A_TIME = threading.Lock()
"""Scenarios of a check read side by side; the first that is done would take what is safe from the others, whose files
would be compared as archives of bytes then."""


def read_saved(path: Path) -> Any:
    """Return what `torch.save` or safetensors wrote; None for another kind of file.

    Raises:
        UnpicklingError: The file holds objects that would run code to be read.
    """
    if not path.is_file():
        return None
    with path.open("rb") as file:
        start = file.read(4)
    if start[:2] == b"PK":
        with _ONE_AT_A_TIME, torch.serialization.safe_globals([*_PLAIN, _RECONSTRUCT]):
            return torch.load(path, map_location="cpu", weights_only=True)
    if path.suffix == ".safetensors":
        from safetensors import safe_open
        from safetensors.torch import load_file

        with safe_open(path, "pt") as opened:
            words = opened.metadata()
        return load_file(path) | ({"__metadata__": words} if words else {})
    return None


def is_part(folder: Path, path: Path) -> bool:
    """Tell whether a file is part of what a directory was read as: none is read as a whole."""
    return False
