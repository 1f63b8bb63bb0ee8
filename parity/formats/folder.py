"""Files of a checkpoint that is a directory: named by what may come from anyone, so they must lie in it."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from parity.errors import CheckpointError
from parity.storage import read_bytes

__all__ = ["inside", "read_settings"]


def inside(folder: Path, name: object, holds: int | None = None) -> Path:
    """Return a file of a directory by its name.

    Links must stay within the directory; those of Hugging Face's cache lead from a snapshot to the blobs beside.

    Args:
        folder: The directory.
        name: As the checkpoint gives it.
        holds: How many arrays are in the file, if known, for the message.

    Raises:
        CheckpointError: It is no file name, is missing, or leads out of the directory.
    """
    if not isinstance(name, str) or Path(name).name != name or name in ("", ".", "..") or "\0" in name:
        raise CheckpointError(f"{folder} names the file {name!r}, which is not in it")
    path = folder / name
    if not path.exists():
        lost = "" if holds is None else f": {holds} array{'s are' if holds != 1 else ' is'} in it"
        state = "a link that leads nowhere" if os.path.lexists(path) else "missing"
        raise CheckpointError(f"{folder} names the file {name}, which is {state}{lost}")
    allowed = [os.path.realpath(folder)]
    for parent in folder.absolute().parents:
        if parent.name == "snapshots":
            allowed.append(os.path.realpath(parent.parent / "blobs"))
    if os.path.dirname(os.path.realpath(path)) not in allowed:
        raise CheckpointError(f"{path} is a link out of the directory, to {os.path.realpath(path)}")
    return path


def read_settings(path: Path) -> Any:
    """Return the JSON of a file of bounded size; unlike in our own files, numbers may be NaN or infinite.

    Raises:
        CheckpointError: It cannot be read, or is no JSON.
    """
    try:
        return json.loads(read_bytes(Path(os.path.realpath(path))))
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"{path} cannot be read: {error}") from error
