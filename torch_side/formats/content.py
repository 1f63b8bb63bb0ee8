"""The content of a `torch.save` file: loaded after the archive was looked at, and never with code."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from parity.errors import CheckpointError
from parity.storage import ParallelReader
from torch_side.formats.archive import read_records

__all__ = ["STATE", "read_content"]

STATE = "state.pt"
"""The file of a checkpoint that holds its state."""


def read_content(file: Path, device: torch.device) -> dict[str, Any]:
    """Return what a file of `torch.save` holds, after it was looked at; no code of it is run.

    Args:
        file: The file.
        device: Where its tensors go.

    Raises:
        CheckpointError: It is no such file, or holds no mapping.
    """
    try:
        read_records(file)  # what is no archive of torch.save never reaches torch.load
        with ParallelReader(file) as opened:
            content = torch.load(opened, map_location=device, weights_only=True)
    except CheckpointError:
        raise
    except Exception as error:  # torch.load leaks a dozen kinds of error for malformed files (pytorch#127525)
        raise CheckpointError(f"{file} cannot be loaded: {error}") from error
    if not isinstance(content, dict):
        raise CheckpointError(f"{file} holds a {type(content).__name__}, and no mapping")
    return content
