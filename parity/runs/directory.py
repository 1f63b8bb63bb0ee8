"""The run directory: where everything of a run lies, which run it is, its process starts, and what a resume abandons.

spec.toml  side  steps.jsonl  validations.jsonl  attempts.jsonl  [states.jsonl  metrics.jsonl]
checkpoints/<step>/   latest.json  best.json   abandoned/<attempt>/   lock
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from parity.checkpoints import CheckpointStore
from parity.contract import RunIdentity, StepRecord, Validation, read_records
from parity.errors import RunDirectoryError, SpecMismatchError
from parity.storage import (
    append,
    fsync_files,
    local_path,
    make_directory,
    read_bytes,
    read_lines,
    repair,
    replace_file,
)

__all__ = ["RunDirectory"]


class RunDirectory:
    """One run on disk; every process that works on the run opens its own."""

    def __init__(self, path: Path, *, drafts: Sequence[str] = ()) -> None:
        """Name the files; nothing is read or written yet.

        Args:
            path: A local directory, which need not exist.
            drafts: As of `CheckpointStore`.
        """
        self.path = path = local_path(path)
        self.steps = path / "steps.jsonl"
        self.validations = path / "validations.jsonl"
        self.attempts = path / "attempts.jsonl"
        self.states = path / "states.jsonl"
        self.metrics = path / "metrics.jsonl"
        self._records = (self.steps, self.validations, self.attempts, self.states, self.metrics)
        self.store = CheckpointStore(path, records=self._records, drafts=drafts)
        self.checkpoints = self.store.path

    @property
    def exists(self) -> bool:
        """Whether a run was started here."""
        return (self.path / "spec.toml").exists()

    def require_free(self) -> None:
        """Refuse a directory that holds something else than a run.

        Raises:
            RunDirectoryError: It holds other files, or records or checkpoints without their `spec.toml`.
        """
        ours = {"side", "checkpoints", "lock"}  # what is there of a start that was cut short
        if self.exists or not self.path.exists():
            return
        others = {entry.name for entry in self.path.iterdir() if not _DRAFT.fullmatch(entry.name)} - ours
        remains = self._is_remains()
        if self.exists:  # asked last: another process may have started a run here since, and its lock says so better
            return
        if remains:
            raise RunDirectoryError(self.no_run())
        if others:
            raise RunDirectoryError(f"{self.path} is not empty and holds no run; choose another --dir")

    def no_run(self) -> str:
        """Return why there is no run here: nothing of one, or all but its `spec.toml`."""
        if self._is_remains():
            return (
                f"{self.path / 'spec.toml'} is missing, though records or checkpoints of a run are there; restore it "
                "(each checkpoint has its text as `config.spec` in meta.json or meta/metadata)"
            )
        return f"{self.path} holds no run: it has no spec.toml"

    def _is_remains(self) -> bool:
        """Return whether records or checkpoints of a run are here without its `spec.toml`."""
        found = bool(self.store.steps()) or any(file.exists() for file in (self.steps, self.attempts))
        return found and not self.exists

    def open(self, identity: RunIdentity, side: str) -> None:
        """Create the run, or check that it is the same one.

        Args:
            identity: The run that is to be trained.
            side: Name of the side that trains it.

        Raises:
            SpecMismatchError: The run that is here differs in a field that may not change.
            RunDirectoryError: It belongs to another side, or the directory holds something else.
        """
        if not self.exists:
            self.require_free()
            make_directory(self.checkpoints)
            replace_file(self.path / "side", side + "\n")
            replace_file(self.path / "spec.toml", identity.text)
            return
        found = _read_text(self.path / "side").strip()
        if found != side:
            raise RunDirectoryError(
                f"{self.path} holds a run of side {found[:20]!r}, not {side!r}; choose another --dir"
            )
        changed = identity.differences(self.identity_text())
        if changed:
            raise SpecMismatchError(changed)
        replace_file(self.path / "spec.toml", identity.text)  # steps and intervals may have changed

    def identity_text(self) -> str:
        """Return the text of the identity that the run was last started with.

        Raises:
            RunDirectoryError: It cannot be read.
        """
        return _read_text(self.path / "spec.toml")

    def spec_hash(self) -> str | None:
        """Return the hash of the run's identity and data, as its last process recorded it; None if none did."""
        known = (row.get("spec_hash") for row in reversed(read_lines(self.attempts)))
        return next((value for value in known if isinstance(value, str)), None)

    def repair(self) -> list[str]:
        """Make the records readable after a crash; return a sentence for each file that lost lines."""
        lines = []
        for file in self._records:
            if count := repair(file):
                what = "1 unreadable line" if count == 1 else f"{count} unreadable lines"
                lines.append(f"moved {what} of {file.name} to {file.name}.damaged")
        return lines

    def next_attempt(self) -> int:
        """Return the number of the next process start, one above that of the last."""
        last = read_lines(self.attempts)[-1:]
        return max([len(last), *(row["attempt"] + 1 for row in last if type(row.get("attempt")) is int)])

    def begin_attempt(
        self, attempt: int, resumed_from: int | None, topology: dict[str, Any], **more: int | str | None
    ) -> None:
        """Record a process start.

        Args:
            attempt: Its number.
            resumed_from: The step of the checkpoint that it begins from; None for a start from step 0.
            topology: What bitwise equality depends on beside the run itself.
            more: Further fields of the record; those that are None are left out.
        """
        row: dict[str, Any] = {"attempt": attempt, "pid": os.getpid(), "resumed_from": resumed_from}
        row["topology"] = topology
        row |= {name: value for name, value in more.items() if value is not None}
        append(self.attempts, [json.dumps(row)])
        fsync_files([self.attempts])

    def clean(self) -> list[str]:
        """Remove the leftovers of saves, removals and replaced files that were cut short; return their names.

        Only the writer may.

        Raises:
            OSError: They cannot be removed.
        """
        removed = self.store.clean()
        for entry in self.path.iterdir():
            if _DRAFT.fullmatch(entry.name):
                entry.unlink()
                removed.append(entry.name)
        return removed

    def abandoned(self, attempt: int) -> Path:
        """Return the folder for what a process start moves out of the run."""
        return self.path / "abandoned" / str(attempt)

    def abandon_after(self, step: int, attempt: int, *, records: bool) -> list[str]:
        """Move the checkpoints after a step to `abandoned/<attempt>/`; return their names.

        Args:
            step: The step that the run continues from.
            attempt: Names the folder.
            records: Whether the records after the step are moved too: yes where an older checkpoint was chosen; no
                where a kill left them after the newest one, since those of a higher attempt replace them.
        """
        if records:  # read before anything is moved: a record that cannot be read costs nothing
            read_records(self.steps, StepRecord)
            read_records(self.validations, Validation)
        home = self.abandoned(attempt)
        moved = self.store.set_aside([str(later) for later in self.store.steps() if later > step], home)
        if records:
            for file in (self.steps, self.validations):
                rows = read_lines(file)
                late = [json.dumps(row) for row in rows if row["step"] > step]
                if not late:
                    continue
                make_directory(home)
                append(home / file.name, late)
                replace_file(file, "".join(json.dumps(row) + "\n" for row in rows if row["step"] <= step))
        return moved


_DRAFT = re.compile(r"\.(latest\.json|best\.json|spec\.toml|side|steps\.jsonl|validations\.jsonl)\.[0-9]+")


def _read_text(path: Path) -> str:
    try:
        return read_bytes(path, failure=RunDirectoryError).decode("utf-8-sig")
    except ValueError as error:
        raise RunDirectoryError(f"{path} cannot be read: {error}") from error
