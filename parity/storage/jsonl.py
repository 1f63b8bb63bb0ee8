"""Files of JSON lines: append all or nothing, read what a crash left, repair it; valid JSON for every float."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from parity.errors import RunDirectoryError
from parity.storage.atomic import named, replace_file
from parity.storage.untrusted import read_bytes

__all__ = ["append", "mend", "plain", "read_lines"]


def append(path: Path, lines: Iterable[str]) -> None:
    """Append lines to a file, all or none of them.

    Raises:
        OSError: They could not be written; a part that was is cut off again, so that no torn line stays inside.
    """
    data = "".join(line + "\n" for line in lines).encode()
    if not data:
        return
    with named(path):
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        try:
            size = _cut_torn_line(handle)
            try:
                while data:
                    data = data[os.write(handle, data) :]
            except OSError:
                os.ftruncate(handle, size)
                raise
        finally:
            os.close(handle)


def _cut_torn_line(handle: int) -> int:
    """Return the size of a file of lines, after cutting off a last one that a failed write left without its end."""
    size = os.fstat(handle).st_size
    if size and os.pread(handle, 1, size - 1) != b"\n":
        tail = os.pread(handle, min(size, 1 << 20), max(0, size - (1 << 20)))
        size -= len(tail) - (tail.rfind(b"\n") + 1)
        os.ftruncate(handle, size)
    return size


def read_lines(path: Path) -> list[dict[str, Any]]:
    """Return the JSON objects of a file, without a torn last line; an absent file has none.

    Raises:
        RunDirectoryError: A line other than the last is not a JSON object.
    """
    if not path.exists():
        return []
    lines = read_bytes(path, None, RunDirectoryError).split(b"\n")
    out = []
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            value = json.loads(line.decode("utf-8"))
            if not isinstance(value, dict):
                raise ValueError("not an object")
        except (ValueError, RecursionError) as error:
            if number == len(lines):  # no newline behind it: the write was cut short by a kill
                break
            raise RunDirectoryError(f"{path} line {number}: {error}; restore or remove this line") from error
        out.append(value)
    return out


def mend(path: Path) -> int:
    """Make a file of lines readable again after a crash; return how many lines were set aside.

    A torn last line is cut off, so that the next append starts a line of its own. Unreadable lines inside (a power
    loss can leave zeros where a block never reached the disk) go to `<name>.damaged`; all others stay.
    """
    if not path.exists():
        return 0
    data = read_bytes(path, None, RunDirectoryError)
    whole = data[: data.rfind(b"\n") + 1]
    lines = whole.split(b"\n")[:-1]
    good = [line for line in lines if not line.strip() or _is_object(line)]
    if len(good) < len(lines):
        with path.with_name(path.name + ".damaged").open("ab") as file:
            file.write(b"".join(line + b"\n" for line in lines if line.strip() and not _is_object(line)))
        replace_file(path, "".join(line.decode() + "\n" for line in good))
    elif len(whole) < len(data):
        os.truncate(path, len(whole))
    return len(lines) - len(good)


def _is_object(line: bytes) -> bool:
    try:
        return isinstance(json.loads(line.decode("utf-8")), dict)
    except (ValueError, RecursionError):
        return False


def plain(value: Any) -> Any:
    """Return a value as valid JSON has it: non-finite floats become the strings `inf`, `-inf` and `nan`."""
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value
