"""Paths of the local file system, the only storage for which the guarantees of `atomic` hold."""

from __future__ import annotations

import os
import re
from pathlib import Path

from parity.errors import RunDirectoryError

__all__ = ["local_path"]

_URL = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):/")
"""Start of a URL; one slash is enough, because Path("s3://bucket/run") is s3:/bucket/run. One letter is a drive."""


def local_path(path: str | os.PathLike[str]) -> Path:
    """Return a path; refuse a URL, which would otherwise become a local directory named `s3:`.

    Files survive a crash because a rename is atomic and fsync makes it durable. Object stores offer neither.

    Args:
        path: A path of a local or mounted file system, absolute or relative.

    Raises:
        RunDirectoryError: The path is a URL.

    Example:
        >>> local_path("runs/lr:0.1").name
        'lr:0.1'
    """
    text = os.fspath(path)
    if found := _URL.match(text):
        shown = f"{found[0]}/..." if set("@?#:") & set(text[found.end() :]) else text  # a key may stand there
        raise RunDirectoryError(
            f"{shown} is a URL ({found[1]}), not a local path; remote storage is not supported here: give a path of "
            "a local or mounted file system (docs/remote.md says what takes s3:// and gs://)"
        )
    return Path(path)
