"""A run that has nothing on this machine and is continued all the same: fetched from the store that has its copies.

It is put together beside its directory and renamed to it, so that a start that was killed leaves no half of a run.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from parity import policy
from parity.checkpoints.remote import RemoteHead, assemble_run, choose_row, fetch
from parity.errors import CheckpointError, DamagedError, RunDirectoryError
from parity.policy import Which
from parity.runs.resume import Log, ResumeChoice
from parity.storage.stores import Objects

__all__ = ["arrive"]

LEFT = {"side", "checkpoints", "lock"}
"""What is in the directory of a run whose start was cut short before it was one."""


def arrive(
    store: Objects,
    head: RemoteHead,
    directory: Path,
    resume: ResumeChoice,
    mode: policy.Mode | None,
    log: Log,
    *,
    or_next: bool = False,
) -> int | None:
    """Fetch a run with the checkpoint that it is to continue from; return its step, or None where there is none.

    Args:
        store: The prefix.
        head: Of the prefix.
        directory: The run directory, which holds nothing of a run.
        resume: What to continue from. With `auto` and `latest` the next older one takes the place of one that is
            damaged there.
        mode: By what the best one is the best.
        log: Takes one line for people.
        or_next: Whether that holds for the best one, too.

    Raises:
        CheckpointError: What was asked for is not there, or damaged.
        RunDirectoryError: Something else is in the directory.
        StoreError: The store refused or was not reached.
        OSError: It cannot be written.
    """
    which: Which = "latest" if resume == "auto" else resume  # type: ignore[assignment]
    if resume == "auto" and not head.checkpoints:
        return None
    _require_empty(directory)
    directory.parent.mkdir(parents=True, exist_ok=True)
    for left in directory.parent.glob(f".{directory.name}.arriving-*"):
        shutil.rmtree(left)
    home = directory.with_name(f".{directory.name}.arriving-{os.getpid()}")
    rows, damaged = dict(head.checkpoints), list[tuple[str, str]]()
    while True:
        try:
            row = choose_row(head.with_checkpoints(rows), which, mode, store)
        except CheckpointError as error:
            raise CheckpointError(str(error), damaged) from error
        try:
            home.mkdir()
            fetch(store, row, home)
            break
        except DamagedError as error:
            shutil.rmtree(home)
            if isinstance(which, int) or (which == "best" and not or_next):
                raise
            log(f"{store.url}: step {row.step} is damaged there, and the one before is taken: {error}")
            damaged.append((str(row.step), str(error)))
            del rows[row.step]
        except BaseException:
            shutil.rmtree(home, ignore_errors=True)
            raise
    if directory.exists():  # empty, or with what a start left that was cut short
        shutil.rmtree(directory)
    assemble_run(home, directory, row.step)
    log(f"fetched step {row.step} from {store.url}")
    return row.step


def _require_empty(directory: Path) -> None:
    """Refuse a directory that holds anything; remove what a start that was cut short left."""
    if not directory.exists():
        return
    names = {entry.name for entry in directory.iterdir()}
    held = directory / "checkpoints"
    if names - LEFT or (held.is_dir() and any(held.iterdir())):
        raise RunDirectoryError(f"{directory} is not empty and holds no run; choose another --dir")
