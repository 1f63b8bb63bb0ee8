"""Files of JSON lines: append all lines or none, read a file that a crash cut short, repair one.

Each line is one JSON object and ends with a newline. A last line without its newline is incomplete: a crash
interrupted the write, and every function here ignores or removes it.
"""

from __future__ import annotations

import codecs
import json
import math
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from parity.errors import RunDirectoryError
from parity.storage.atomic import named, replace_file
from parity.storage.untrusted import read_bytes

__all__ = ["append", "plain", "read_lines", "repair"]


def append(path: Path, lines: Iterable[str]) -> None:
    """Append lines to a file, all or none of them; an incomplete last line is removed first.

    Args:
        path: The file; created where it does not exist.
        lines: Lines of JSON without their newlines.

    Raises:
        OSError: They could not be written; what was written of them is removed again.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as home:
        ...     file = Path(home, "steps.jsonl")
        ...     append(file, ['{"step": 1}'])
        ...     with file.open("a") as cut:  # by a kill
        ...         _ = cut.write('{"st')
        ...     append(file, ['{"step": 2}'])
        ...     print(read_lines(file))
        [{'step': 1}, {'step': 2}]
    """
    data = "".join(line + "\n" for line in lines).encode()
    if not data:
        return
    with named(path):
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        try:
            size = _cut_incomplete_line(handle)
            try:
                while data:
                    data = data[os.write(handle, data) :]
            except OSError:
                os.ftruncate(handle, size)
                raise
        finally:
            os.close(handle)


def _cut_incomplete_line(handle: int) -> int:
    """Remove a last line without its newline, and return the size of the file in bytes."""
    size = os.fstat(handle).st_size
    if size and os.pread(handle, 1, size - 1) != b"\n":
        tail = os.pread(handle, min(size, 1 << 20), max(0, size - (1 << 20)))
        size -= len(tail) - (tail.rfind(b"\n") + 1)
        os.ftruncate(handle, size)
    return size


def read_lines(path: Path) -> list[dict[str, Any]]:
    """Return the JSON objects of a file, without an incomplete last line; a file that does not exist has none.

    Raises:
        RunDirectoryError: The file cannot be read, or a line other than the last is not a JSON object; the message
            names the line.
    """
    if not path.exists():
        return []
    lines = read_bytes(path, None, RunDirectoryError).removeprefix(codecs.BOM_UTF8).split(b"\n")
    out = []
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            value = json.loads(line.decode("utf-8"))
            if not isinstance(value, dict):
                raise ValueError("not an object")
        except (ValueError, RecursionError) as error:
            if number == len(lines):  # no newline after it: a kill interrupted the write
                break
            raise RunDirectoryError(f"{path} line {number}: {error}; restore or remove this line") from error
        out.append(value)
    return out


def repair(path: Path) -> int:
    """Make a file of lines readable after a crash, and return how many unreadable lines were moved out of it.

    An incomplete last line is removed, so that the next append starts a new line. Unreadable lines before it are
    moved to `<name>.damaged` (a power loss can leave zeros where a block never reached the disk). All other lines
    stay.

    Raises:
        RunDirectoryError: The file cannot be read.
        OSError: It cannot be written.
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
        return isinstance(json.loads(line.decode("utf-8-sig")), dict)
    except (ValueError, RecursionError):
        return False


def plain(value: Any) -> Any:
    """Return a value for valid JSON: non-finite floats become the strings `inf`, `-inf` and `nan`, tuples lists.

    Example:
        >>> plain({"loss": float("nan"), "steps": (1, 2)})
        {'loss': 'nan', 'steps': [1, 2]}
    """
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value
