"""Reads of untrusted files: regular files only, of a bounded size, and JSON of bounded content.

A checkpoint or a result may come from anyone, so a read must end, fit into memory and never block.
"""

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
"""Largest size of a JSON file of a checkpoint, in bytes; a leaf of a seal takes about 200."""

MAX_VALUES = 2_000_000
"""Largest number of values in one JSON file; as Python objects they take some 30 times their bytes."""


def open_regular(path: Path) -> int:
    """Open a regular file for reading, and return its file descriptor.

    Raises:
        OSError: It cannot be opened, is a link, or is not a regular file; a pipe does not block.
    """
    handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise OSError(f"{path} is not a regular file")
    return handle


def read_bytes(path: Path, most: int | None = MAX_BYTES, failure: type[ParityError] = CheckpointError) -> bytes:
    """Return the content of a regular file.

    Args:
        path: The file; a link is refused.
        most: Largest size in bytes; None for no limit, for files of a run that grow with its steps.
        failure: Class of the error to raise.

    Raises:
        ParityError: An instance of `failure`: the file cannot be read, or is larger than `most`.
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
    """Return the content of a file that a user names; links are followed, unlike in a checkpoint.

    Args:
        path: The file.
        most: Largest size in bytes.

    Raises:
        OSError: It cannot be read, is larger, or is not a regular file: a pipe could block, a device never ends.
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


def parse_json(data: bytes, path: Path | str, failure: type[ParityError] = CheckpointError) -> dict[str, Any]:
    """Return the JSON object that a file holds, within the bounds of `read_json`.

    Args:
        data: Content of the file.
        path: The file, for messages.
        failure: Class of the error to raise.

    Raises:
        ParityError: An instance of `failure`: the data are no JSON object, have too many values, a name twice, or a
            number that is not finite.

    Example:
        >>> parse_json(b'{"step": 3}', Path("meta.json"))
        {'step': 3}
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
