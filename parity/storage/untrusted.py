"""Read files that anybody may have written: regular files only, of a bounded size, JSON of bounded content."""

from __future__ import annotations

import errno
import json
import math
import os
import stat
from pathlib import Path
from typing import Any

from parity.errors import CheckpointError, ParityError

__all__ = ["MAX_BYTES", "open_regular", "parse_json", "read_bytes", "read_given", "read_json"]

MAX_BYTES = 64 << 20
"""Longest JSON file of a checkpoint; a leaf of a seal takes about 200 bytes."""

MAX_VALUES = 2_000_000
"""Most values in one JSON file: as objects they take some 30 times their bytes."""


def open_regular(path: Path) -> int:
    """Open a regular file for reading, never a link, and never waiting for the other end of a pipe."""
    handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise OSError(f"{path} is no regular file")
    return handle


def read_bytes(path: Path, most: int | None = MAX_BYTES, failure: type[ParityError] = CheckpointError) -> bytes:
    """Return what a regular file holds.

    Args:
        path: The file.
        most: Longest it may be, or None for a file of our own that grows with the run.
        failure: What to raise.
    """
    try:
        handle = open_regular(path)
        with os.fdopen(handle, "rb") as file:
            data = file.read() if most is None else file.read(most + 1)
    except (OSError, ValueError) as error:
        raise failure(f"{path} cannot be read: {getattr(error, 'strerror', None) or error}") from error
    if most is not None and len(data) > most:
        raise failure(f"{path} is longer than {most} bytes")
    return data


def read_given(path: Path, most: int) -> bytes:
    """Return what a file holds that a user names; unlike the files of a checkpoint, it may be reached by links.

    Args:
        path: The file.
        most: Longest it may be, in bytes.

    Raises:
        OSError: It cannot be read, is longer, or is no regular file: a pipe would be waited for, a device never ends.
    """
    with os.fdopen(open_regular(Path(os.path.realpath(path))), "rb") as file:
        size = os.fstat(file.fileno()).st_size
        data = file.read(most + 1) if size <= most else b""
    if size > most or len(data) > most:
        raise OSError(errno.EFBIG, f"is longer than {most:,} bytes", str(path))
    return data


def read_json(path: Path) -> dict[str, Any]:
    """Read a JSON object of bounded size, without duplicate names and without `NaN` or `Infinity`.

    Raises:
        CheckpointError: The file cannot be read, has more than `MAX_BYTES` or `MAX_VALUES`, or holds anything else.
    """
    return parse_json(read_bytes(path), path)


def parse_json(data: bytes, path: Path, failure: type[ParityError] = CheckpointError) -> dict[str, Any]:
    """Return the JSON object that a file holds, within the bounds of `read_json`.

    Args:
        data: Content of the file.
        path: The file, for messages.
        failure: What to raise.
    """
    if sum(map(data.count, (b",", b"[", b"{"))) > MAX_VALUES:
        raise failure(f"{path} holds more than {MAX_VALUES} values")
    try:
        value = json.loads(
            data.decode("utf-8"), object_pairs_hook=_unique, parse_float=_finite, parse_constant=_refuse
        )
    except (ValueError, RecursionError) as error:
        raise failure(f"{path} cannot be read: {error}") from error
    if not isinstance(value, dict):
        raise failure(f"{path} cannot be read: expected an object, got {type(value).__name__}")
    return value


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) != len(pairs):
        raise ValueError("a name occurs twice")
    return value


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"{text} is no finite number")
    return value


def _refuse(token: str) -> None:
    raise ValueError(f"{token} is not JSON")
