"""Whether the files of a seal were written after it, told without reading any of them.

A file that a loop overwrites has the same name and the same size each time, and the seal beside it is that of another
one. Then equal seals say nothing about what lies there now, and the files are read.
"""

from __future__ import annotations

import os
from pathlib import Path

from parity.checkpoints.seal import Seal

__all__ = ["untouched_since"]


def untouched_since(seal: Seal, root: Path, place: Path) -> bool:
    """Return whether all files of a seal have their sealed sizes, and none was written after the seal was.

    Both times are of the file system that has them, so that no clock of another machine matters. A copy that sets new
    times in any order is not taken for what was sealed, which costs a reading; a bit that flips on the disk changes
    no time, and only reading finds it.

    Args:
        seal: The seal.
        root: The directory that its names start from.
        place: The file of the seal.
    """
    try:
        written = os.lstat(place).st_mtime_ns
        for name, file in seal.files.items():
            status = os.lstat(root / name)
            if status.st_size != file.size or status.st_mtime_ns > written:
                return False
    except OSError:
        return False
    return True
