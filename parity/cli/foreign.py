"""`parity verify` and `parity path` for checkpoints of other tools: what is known, and what nothing can prove."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from rich.console import Console
from rich.text import Text

from parity.checkpoints import (
    FILE,
    RUN,
    Verified,
    describe,
    followed,
    read_seal,
    run_of,
    seal_beside,
    verify,
    verify_file,
)
from parity.checkpoints.remote import name_of
from parity.convert import choose, prove, with_checksums
from parity.errors import CheckpointError, DamagedError
from parity.formats import is_checkpoint
from parity.policy import Which
from parity.report import clean
from parity.results import EXIT_CODES
from parity.runs import RunDirectory

__all__ = [
    "checkpoints_in",
    "has_seal",
    "is_foreign",
    "is_other_tools",
    "print_foreign_path",
    "verify_foreign",
    "verify_sealed",
]


def is_foreign(path: Path) -> bool:
    """Return whether a path is a checkpoint that has no seal of ours and lies in no run of ours."""
    if os.path.lexists(path / FILE) or run_of(path) is not None or _is_run(path):
        return False
    return path.exists() and (path.is_file() or is_checkpoint(path))


def is_other_tools(path: Path) -> bool:
    """Return whether a directory is no run of ours, not even a damaged one, and has something in it."""
    return path.is_dir() and not _is_run(path) and any(path.iterdir())


def verify_foreign(console: Console, path: Path) -> int:
    """Print what the format of a checkpoint can prove and what it cannot.

    Args:
        console: Takes the lines.
        path: A checkpoint of another tool.

    Returns:
        1 where it is damaged; 5 where it holds nothing that can be read; 4 otherwise, as nothing but a seal proves
        that it is whole.

    Raises:
        CheckpointError: There is none of a known format, or its structure cannot be read.
    """
    found = prove(path)
    if found.faults:
        console.print(Text.assemble(("damaged", "bold red"), f"    {clean(name_of(path))}"), soft_wrap=True)
        for name, problem in found.faults:
            console.print(Text(clean(f"  {name}: {problem}")), soft_wrap=True)
        return EXIT_CODES["broken"]
    if not found.arrays and not found.values:
        print(f"parity: {name_of(path)} holds nothing that can be read: nothing was verified", file=sys.stderr)
        for what in found.unread:
            print(f"parity: {clean(what)}", file=sys.stderr)
        return EXIT_CODES["empty"]
    size = f"{found.format}, {found.arrays:,} arrays, {found.nbytes:,} bytes"
    console.print(Text.assemble(("unverified", "yellow"), f" {clean(name_of(path))}: {size}"), soft_wrap=True)
    fits = f"; {found.checked} fits" if found.checked else "; the format has no checksum to compare with"
    console.print(Text(f"  read: its structure is whole{fits}"), soft_wrap=True)
    for what in found.unread:
        console.print(Text(clean(f"  not read: {what}, which only its code could rebuild")), soft_wrap=True)
    console.print(Text(f"  unknown: {found.unproven}"), soft_wrap=True)
    return EXIT_CODES["inconclusive"]


def print_foreign_path(folder: Path, which: Which, *, unread: bool = False) -> int:
    """Print the best, the latest or a numbered checkpoint in a directory of another tool; why goes to stderr.

    Args:
        folder: The directory, which holds several checkpoints.
        which: The best, the latest, or the number in its name.
        unread: Whether a seal is taken as it is; otherwise every byte is compared with it.

    Returns:
        0.

    Raises:
        DamagedError: It is not what was sealed.
        CheckpointError: The directory is a checkpoint itself, or the one that was asked for cannot be told; see
            `parity.convert.choose`.
    """
    if is_checkpoint(folder) and not any(map(is_checkpoint, folder.iterdir())):
        raise CheckpointError(f"{folder} is a single checkpoint; give the directory that holds several")
    path, why = choose(folder, which)
    if not has_seal(path):
        state = "that it is whole is unknown: it has no seal"
    elif unread:
        state = "--unread did not compare it with its seal"
    else:
        found = verify_sealed(path)
        if not found.whole:
            raise DamagedError(f"{path} is not what was sealed:", describe(found.faults))
        state = "every byte is as it was sealed"
    print(path)
    print(f"parity: {clean(why)}; {state}", file=sys.stderr)
    return 0


def checkpoints_in(folder: Path) -> tuple[list[Path], list[str]]:
    """Return the checkpoints of other tools that lie in a directory by themselves, and the names of all else.

    A file that was sealed counts, whatever became of it.
    """
    found: list[Path] = []
    others: list[str] = []
    for one in sorted(folder.iterdir()):
        if one.name.startswith("."):
            continue
        if has_seal(one) or is_checkpoint(one):
            found.append(one)
        else:
            others.append(one.name)
    return found, others


def has_seal(path: Path) -> bool:
    """Return whether there is a seal in a directory, or beside a file."""
    return os.path.lexists(path / FILE) if path.is_dir() else os.path.lexists(seal_beside(path))


def verify_sealed(path: Path) -> Verified:
    """Compare a checkpoint with its seal, and with the checksums that its format has."""
    path = followed(path)
    return with_checksums(verify(path) if path.is_dir() else verify_file(path))


def _is_run(path: Path) -> bool:
    """Return whether a path is a run or a manager of ours, or what is left of one.

    Other tools call a folder of checkpoints `checkpoints` too: it is theirs where it holds some, and none has a
    seal that a save of ours wrote.
    """
    if RunDirectory(path).exists or any(os.path.lexists(path / name) for name in RUN):
        return True
    held = path / "checkpoints"
    if not os.path.lexists(held) or not held.is_dir():
        return os.path.lexists(held)
    entries = list(held.iterdir())
    return any(map(_is_sealed_by_us, entries)) or not any(map(is_checkpoint, entries))


def _is_sealed_by_us(step: Path) -> bool:
    if not os.path.lexists(step / FILE):
        return False
    try:
        return not read_seal(step).foreign
    except CheckpointError:
        return True  # whose it was is not known: what is left of a run is none of another tool
