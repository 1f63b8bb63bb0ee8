"""Temporary directories of this process, removed after use, and also when the process ends early by itself."""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

__all__ = ["remove_scratch", "scratch_directory"]

ATTEMPTS = 20
"""How often the removal of a directory is repeated while other threads still write to it."""

_open: set[Path] = set()


@contextmanager
def scratch_directory(prefix: str, parent: Path | None = None) -> Iterator[Path]:
    """Make a temporary directory and remove it afterwards.

    Args:
        prefix: What its name begins with.
        parent: Where it is made; by default where temporary files go.
    """
    with tempfile.TemporaryDirectory(prefix=prefix, dir=parent) as name:
        path = Path(name)
        _open.add(path)
        try:
            yield path
        finally:
            _open.discard(path)


def remove_scratch() -> None:
    """Remove every such directory now: for a process that ends without unwinding."""
    for path in list(_open):
        for _ in range(ATTEMPTS):
            shutil.rmtree(path, ignore_errors=True)
            if not path.exists():
                break
            time.sleep(0.01)
