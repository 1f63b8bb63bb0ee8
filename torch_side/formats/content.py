"""The content of a `torch.save` file: digested while it is written, and loaded without code after a look at it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from parity import storage
from parity.errors import CheckpointError
from parity.storage import DigestWriter, FileDigest, ParallelReader
from torch_side.formats.archive import read_records
from torch_side.formats.pickled import GLOBALS

__all__ = ["STATE", "lay_out_content", "load_content", "load_mapped", "map_content", "read_content", "write_content"]

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
    content = load_content(file, device, GLOBALS)
    if not isinstance(content, dict):
        raise CheckpointError(f"{file} holds a {type(content).__name__}, and no mapping")
    return content


def load_content(file: Path, device: torch.device, names: re.Pattern[str]) -> Any:
    """Return what a file of `torch.save` holds, a mapping or not, after it was looked at; no code of it is run.

    Args:
        file: The file.
        device: Where its tensors go.
        names: The names that its pickle may ask for.

    Raises:
        CheckpointError: It is no such file.
    """
    try:
        read_records(file, names)  # what is no archive of torch.save never reaches torch.load
        with ParallelReader(file) as opened:
            return torch.load(opened, map_location=device, weights_only=True)
    except CheckpointError:
        raise
    except Exception as error:  # torch.load leaks a dozen kinds of error for malformed files (pytorch#127525)
        raise CheckpointError(f"{file} cannot be loaded: {error}") from error


def write_content(file: Path, content: Any) -> FileDigest:
    """Write a new file with `torch.save`, and return its digest.

    Args:
        file: The file.
        content: What `torch.save` is given.

    Raises:
        OSError: It cannot be written.
    """
    with storage.named(file), file.open("wb") as opened, _no_checksums():
        writer = DigestWriter(opened)
        try:
            torch.save(content, writer)
        except Exception as error:
            raise writer.failure or error from error
    return writer.result()


def lay_out_content(file: Path, content: Any) -> None:
    """Write a new file as `write_content` does, with room in place of the bytes of tensors.

    Args:
        file: The file.
        content: What `torch.save` is given; the memory of its tensors is not read.

    Raises:
        OSError: It cannot be written.
    """
    with storage.named(file), file.open("wb") as opened, _no_checksums(), torch.serialization.skip_data():
        torch.save(content, opened)


def map_content(file: Path) -> dict[str, Any]:
    """Return what a file of `torch.save` holds as `read_content` does, its tensors mapped: read where they are used.

    Args:
        file: The file.

    Raises:
        CheckpointError: It is no such file, or holds no mapping.
    """
    content = load_mapped(file, GLOBALS)
    if not isinstance(content, dict):
        raise CheckpointError(f"{file} holds a {type(content).__name__}, and no mapping")
    return content


def load_mapped(file: Path, names: re.Pattern[str]) -> Any:
    """Return what a file of `torch.save` holds as `load_content` does, its tensors mapped: read where they are used.

    Args:
        file: The file.
        names: The names that its pickle may ask for.

    Raises:
        CheckpointError: It is no such file.
    """
    try:
        read_records(file, names)
        return torch.load(file, map_location="cpu", weights_only=True, mmap=True)
    except CheckpointError:
        raise
    except Exception as error:  # as in `load_content`
        raise CheckpointError(f"{file} cannot be loaded: {error}") from error


@contextmanager
def _no_checksums() -> Iterator[None]:
    """Save without the CRC-32 of each record: torch.load never looks at it, and it takes longer than the writing."""
    before = torch.serialization.get_crc32_options()
    torch.serialization.set_crc32_options(False)
    try:
        yield
    finally:
        torch.serialization.set_crc32_options(before)
