"""Readers beside a writer: a checkpoint that the policy removes while it is read is not a damaged one.

A removal renames a directory first. So one that is still itself afterwards was there all the time, and what failed in
it is damage. The identity of a directory is its inode and the time of its last entry: a name alone may be that of
another one by then.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

from parity.errors import CheckpointError, ParityError
from parity.policy import Which

__all__ = ["ATTEMPTS", "identities", "identity", "steadily", "while_it_stays"]

ATTEMPTS = 20
"""Most readings of a directory in which others save. Of 3,187 beside a writer that never rests 28 failed once, so as
many failures in a row are no accident."""

Identity = tuple[int, int]
ReadResult = TypeVar("ReadResult")


def identity(path: Path) -> Identity | None:
    """Return what tells a directory or a file from a later one of its name; None where there is none."""
    try:
        found = os.stat(path, follow_symlinks=False)
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns


def identities(folder: Path) -> dict[str, Identity | None]:
    """Return the identity of each entry with the name of a step."""
    try:
        return {name: identity(folder / name) for name in os.listdir(folder) if name.isdecimal()}
    except OSError:
        return {}


@contextmanager
def while_it_stays(path: Path) -> Iterator[None]:
    """Say of what fails in the block that the checkpoint was replaced meanwhile, where it was.

    Args:
        path: The checkpoint that the block reads.

    Raises:
        CheckpointError: The block failed, and the checkpoint is gone or another one.
    """
    before = identity(path)
    try:
        yield
    except (ParityError, OSError) as error:
        now = identity(path)
        if before is None or now == before:
            raise
        raise CheckpointError(
            f"{path} was {'removed' if now is None else 'replaced'} while it was read: a process that saves there "
            "removes what its policy no longer keeps; this is no damage"
        ) from error


def steadily(folder: Path, which: Which, read: Callable[[], ReadResult]) -> ReadResult:
    """Return what reads a checkpoint among those in which another process saves; it is asked again while they change.

    Args:
        folder: The directory that has the checkpoints.
        which: What is read; a step is one checkpoint, for which no other can stand.
        read: Looks for the checkpoint anew, and reads it.

    Raises:
        CheckpointError: The step was removed or replaced meanwhile, or the directory changed at every reading.
        ParityError: What `read` raises while nothing changes.
        OSError: Likewise.
    """
    if isinstance(which, int):
        with while_it_stays(folder / str(which)):
            return read()
    for attempt in range(1, ATTEMPTS + 1):
        before = identities(folder)
        try:
            return read()
        except (ParityError, OSError) as error:
            if identities(folder) == before:
                raise
            if attempt == ATTEMPTS:
                raise CheckpointError(
                    f"{folder} changed at each of {ATTEMPTS} readings, so no {which} checkpoint was read; the last "
                    f"one said: {error}"
                ) from error
    raise AssertionError("unreachable")
