"""A file mapped into memory for reading: its pages belong to the system, so arrays of any size cost nothing.

Its first bytes alone are read to recognise it.
"""

from __future__ import annotations

import mmap
import os
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from parity.errors import CheckpointError
from parity.storage import open_regular

__all__ = ["map_file", "read_head"]


def map_file(path: Path) -> NDArray[Any]:
    """Return the bytes of a regular file as a read-only array that is mapped, not read.

    Links are followed, as Hugging Face's cache is made of them.

    Raises:
        CheckpointError: It is no regular file, or cannot be read.
    """
    try:
        with os.fdopen(open_regular(Path(os.path.realpath(path))), "rb") as file:
            if not os.fstat(file.fileno()).st_size:
                return np.zeros(0, np.uint8)
            return np.frombuffer(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ), np.uint8)
    except (OSError, ValueError) as error:
        raise CheckpointError(f"{path} cannot be read: {getattr(error, 'strerror', None) or error}") from error


def read_head(path: Path, most: int) -> bytes:
    """Return the first bytes of a file, to recognise it; none of what is no regular file.

    Raises:
        OSError: It cannot be read.
    """
    if not path.is_file():
        return b""
    with path.open("rb") as file:
        return file.read(most)
