"""Seals for checkpoints of other tools: the digest of every file, written after the tool has saved them.

Such a seal says what the files held when they were sealed; what they held when they were saved, nobody knows. It lies
in a directory as `seal.json`, and beside a file as `.NAME.seal.json`. Files are digested at the speed of reading, by
several threads, in pieces of 1 MiB.
"""

from __future__ import annotations

import os
import stat
import time
from pathlib import Path
from typing import NamedTuple

from parity import storage
from parity.checkpoints import (
    FILE,
    FOREIGN,
    LONE,
    RUN,
    Seal,
    describe,
    read_seal,
    run_of,
    seal_beside,
    seal_text,
    verify,
    verify_file,
)
from parity.environment import versions
from parity.errors import CheckpointError
from parity.formats import leaves, recognise, steps_of
from parity.storage import digest_files, list_files

__all__ = [
    "FilesThen",
    "look",
    "require_foreign_seal",
    "require_seal",
    "seal_checkpoint",
    "write_seal",
]


class _MarkOfFile(NamedTuple):
    """What tells a file from what is written in its place later."""

    size: int
    inode: int
    changed: int
    """Nanoseconds of the last change of content or name."""


class FilesThen(NamedTuple):
    """The files of a checkpoint as they stand at one moment."""

    root: Path
    place: Path
    """Where the seal goes."""
    marks: dict[str, _MarkOfFile]


def seal_checkpoint(path: Path, *, replace: bool = False) -> Seal:
    """Seal a checkpoint of another tool now, and return its seal.

    Args:
        path: A file or a directory of a format that `parity inspect` knows.
        replace: Whether a seal that does not fit what is there any more is replaced.

    Raises:
        CheckpointError: As of `look`; or there is a seal already that does not fit; or a file changed meanwhile.
        OSError: A file cannot be read, or the seal cannot be written.
    """
    listing = look(path)
    if os.path.lexists(listing.place):
        found = verify(path) if path.is_dir() else verify_file(path)
        if found.whole and found.seal is not None:
            return found.seal
        if not replace:
            rows = describe(found.faults)
            raise CheckpointError(
                f"{path} has a seal that does not fit: it is damaged, or was written anew since; --replace seals "
                "what is there now",
                rows,
            )
        if path.is_dir():
            require_foreign_seal(path)
    return write_seal(path, listing)


def require_seal(path: Path) -> None:
    """Check that a path is one checkpoint that can be sealed.

    Raises:
        CheckpointError: It is of no known format, holds several, or belongs to a run or a manager of ours.
    """
    if path.is_symlink():
        raise CheckpointError(f"{path} is a link; seal what it leads to: {os.path.realpath(path)}")
    if (home := run_of(path)) is not None:
        raise CheckpointError(f"{path} belongs to {home}, whose saves are sealed by the one that saves")
    if any(os.path.lexists(path / name) for name in RUN):
        raise CheckpointError(f"{path} is the directory of a run or a manager, whose checkpoints have seals")
    if steps := steps_of(path):
        raise CheckpointError(f"{path} holds {len(steps)} checkpoints; seal one of them, such as {steps[-1]}")


def require_foreign_seal(path: Path) -> None:
    """Refuse to replace a seal that a save of ours wrote: its digests of leaves would be lost.

    Raises:
        CheckpointError: It is one.
    """
    try:
        old = read_seal(path)
    except CheckpointError:
        return  # it says nothing any more
    if not old.foreign:
        raise CheckpointError(
            f"{path} was sealed by the side {old.side!r} as it was saved; that seal is not replaced"
        )


def look(path: Path) -> FilesThen:
    """Return what is there now; only its description is read.

    Raises:
        CheckpointError: There is no checkpoint that can be sealed; as of `require_seal`, or it holds nothing, or a
            part of it is a link.
    """
    require_seal(path)
    known = recognise(path)
    found = known.open(path)  # what cannot be opened is no checkpoint, however well it would be sealed
    if all(isinstance(leaf, dict | list | tuple) for _, leaf in leaves(found.tree)):
        raise CheckpointError(f"{path} holds nothing: there is nothing to seal")
    if path.is_dir():
        names = [name for name in list_files(path) if name != FILE]
        return FilesThen(path, path / FILE, _marks(path, names))
    names = [path.name, *(known.beside(path) if known.beside else ())]
    return FilesThen(path.parent, seal_beside(path), _marks(path.parent, names))


def _marks(root: Path, names: list[str]) -> dict[str, _MarkOfFile]:
    found = {}
    for name in names:
        with storage.named(root / name, "read"):
            status = os.lstat(root / name)
        if not stat.S_ISREG(status.st_mode):
            raise CheckpointError(f"{root / name} is a link or no regular file; a sealed checkpoint holds neither")
        found[name] = _MarkOfFile(status.st_size, status.st_ino, max(status.st_mtime_ns, status.st_ctime_ns))
    return found


def write_seal(path: Path, listing: FilesThen) -> Seal:
    """Digest the files of a listing and write the seal, unless one changed since.

    Raises:
        CheckpointError: A file changed.
        OSError: A file cannot be read, or the seal cannot be written.
    """
    files = digest_files(listing.root, listing.marks)
    _require_same(path, listing)
    made = Seal(
        step=0,
        metric=None,
        saved_at=time.time(),
        side=FOREIGN,
        spec_hash=LONE,
        versions=versions(("parity-suite",)),
        files=dict(sorted(files.items())),
    )
    storage.replace_file(listing.place, seal_text(made))
    return made


def _require_same(path: Path, listing: FilesThen) -> None:
    """Raise CheckpointError if a file of a checkpoint came, went or changed since it was listed."""
    now = [name for name in list_files(path) if name != FILE] if path.is_dir() else list(listing.marks)
    try:
        same = set(now) == set(listing.marks) and _marks(listing.root, now) == listing.marks
    except (OSError, CheckpointError):
        same = False
    if not same:
        raise CheckpointError(f"{path} changed while it was sealed; seal it when its save is complete")
