"""The run directory: what lies where, which checkpoints count, and what happens to those left behind.

spec.toml  steps.jsonl  validations.jsonl  attempts.jsonl  [states.jsonl]
checkpoints/<step>/   latest.json  best.json   abandoned/<attempt>/
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from parity import policy
from parity.curves import append, mend, plain, read_lines
from parity.errors import CheckpointError, RunDirectoryError, SpecMismatchError
from parity.spec import RunSpec
from parity.specfile import differences, from_toml, to_toml
from parity.trainer import Which

__all__ = ["RunDirectory", "Scan", "fsync_directory", "replace_file"]


@dataclass(frozen=True, kw_only=True)
class Scan:
    """What a look at `checkpoints/` found."""

    whole: list[policy.Saved]
    """Checkpoints that count, by step."""
    unfinished: list[tuple[str, str]] = field(default_factory=list)
    """Leftovers of saves that never completed, with the reason."""
    damaged: list[tuple[str, str]] = field(default_factory=list)
    """Directories with a final name that do not count, with the reason."""


class RunDirectory:
    """One run on disk; every process that works on the run opens it anew."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.checkpoints = path / "checkpoints"
        self.steps = path / "steps.jsonl"
        self.validations = path / "validations.jsonl"
        self.attempts = path / "attempts.jsonl"
        self.states = path / "states.jsonl"

    @property
    def exists(self) -> bool:
        """Tell whether a run was started here."""
        return (self.path / "spec.toml").exists()

    def open(self, spec: RunSpec, side: str) -> None:
        """Create the run, or check that it is the same one.

        Raises:
            SpecMismatchError: The run was started with another spec, in a field that may not change.
            RunDirectoryError: The run belongs to the other side, or the directory holds something else.
        """
        if not self.exists:
            if self.path.exists() and {p.name for p in self.path.iterdir()} - {"side", "checkpoints"}:
                raise RunDirectoryError(f"{self.path} is not empty and holds no run; choose another --dir")
            self.checkpoints.mkdir(parents=True, exist_ok=True)
            replace_file(self.path / "side", side + "\n")
            replace_file(self.path / "spec.toml", to_toml(spec))
            return
        found = (self.path / "side").read_text().strip()
        if found != side:
            raise RunDirectoryError(f"{self.path} holds a run of side {found!r}, not {side!r}; choose another --dir")
        changed = differences(self.spec(), spec)
        if changed:
            raise SpecMismatchError(changed)
        replace_file(self.path / "spec.toml", to_toml(spec))  # steps and intervals may have changed
        for file in (self.steps, self.validations, self.attempts, self.states):
            mend(file)

    def spec(self) -> RunSpec:
        """Return the spec the run was last started with."""
        return from_toml((self.path / "spec.toml").read_text(encoding="utf-8"))

    def next_attempt(self) -> int:
        """Return the number of process starts so far."""
        return len(read_lines(self.attempts))

    def begin_attempt(self, attempt: int, resumed_from: int | None, topology: dict[str, Any]) -> None:
        """Write down a process start."""
        row = {"attempt": attempt, "pid": os.getpid(), "resumed_from": resumed_from, "topology": topology}
        append(self.attempts, [json.dumps(row)])

    def scan(self, examine: Callable[[Path], float | None]) -> Scan:
        """Look at every entry of `checkpoints/` and say whether it counts.

        Args:
            examine: Returns the metric of a whole checkpoint, or raises CheckpointError saying why it is not.
        """
        whole, unfinished, damaged = [], [], []
        for entry in sorted(self.checkpoints.iterdir()) if self.checkpoints.is_dir() else []:
            if not _is_step(entry.name):
                unfinished.append((entry.name, "has not got its final name: the save was cut short"))
                continue
            try:
                whole.append(policy.Saved(step=int(entry.name), metric=examine(entry)))
            except CheckpointError as error:
                damaged.append((entry.name, str(error)))
        return Scan(whole=sorted(whole, key=lambda s: s.step), unfinished=unfinished, damaged=damaged)

    def choose(self, scan: Scan, which: Which, metric: str) -> int:
        """Return the step of the checkpoint to resume from.

        Raises:
            CheckpointError: There is none; the message lists what was found and why it does not count.
        """
        if which == "latest":
            chosen = policy.latest(scan.whole)
        elif which == "best":
            chosen = policy.best(scan.whole, policy.mode_of(metric))
        else:
            chosen = next((s for s in scan.whole if s.step == which), None)
        if chosen is None:
            have = ", ".join(str(s.step) for s in scan.whole) or "none"
            what = f"checkpoint of step {which}" if isinstance(which, int) else f"{which} checkpoint"
            raise CheckpointError(
                f"no whole {what} in {self.checkpoints} (whole steps: {have})", scan.damaged + scan.unfinished
            )
        return chosen.step

    def abandon_after(self, step: int, attempt: int, *, records: bool) -> list[str]:
        """Move the checkpoints after a step to `abandoned/<attempt>/`; return their names.

        Args:
            step: The step that is gone on from.
            attempt: Names the folder.
            records: Whether the records after the step go too: yes when an older checkpoint was chosen; no
                when a kill left them behind the newest one, since a higher attempt replaces them.
        """
        moved = []
        steps = sorted((e for e in self.checkpoints.iterdir() if _is_step(e.name)), key=lambda e: -int(e.name))
        for entry in steps:  # newest first: a kill between leaves no older one as the latest
            if int(entry.name) > step:
                target = self.path / "abandoned" / str(attempt) / entry.name
                target.parent.mkdir(parents=True, exist_ok=True)
                entry.rename(target)
                moved.append(entry.name)
        if records:
            for file in (self.steps, self.validations):
                rows = read_lines(file)
                late = [json.dumps(row) for row in rows if row["step"] > step]
                if not late:
                    continue
                (self.path / "abandoned" / str(attempt)).mkdir(parents=True, exist_ok=True)
                append(self.path / "abandoned" / str(attempt) / file.name, late)
                replace_file(file, "".join(json.dumps(row) + "\n" for row in rows if row["step"] <= step))
        return moved

    def point(self, scan: Scan, metric: str) -> None:
        """Replace `latest.json` and `best.json` by what a scan found, each atomically."""
        for name, saved in (
            ("latest", policy.latest(scan.whole)),
            ("best", policy.best(scan.whole, policy.mode_of(metric))),
        ):
            target = self.path / f"{name}.json"
            if saved is None:
                target.unlink(missing_ok=True)
                continue
            value = {"step": saved.step, "metric": plain(saved.metric), "path": f"checkpoints/{saved.step}"}
            text = json.dumps(value) + "\n"
            if not target.exists() or target.read_text() != text:
                replace_file(target, text)


def _is_step(name: str) -> bool:
    """Tell whether a name is a step as we write it: no sign, no leading zero, no foreign digits."""
    return name.isascii() and name.isdigit() and name == str(int(name))


def replace_file(path: Path, text: str) -> None:
    """Replace a file so that a reader, or a crash, sees the old text or the new one and nothing between."""
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    with draft.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    draft.rename(path)
    fsync_directory(path.parent)


def fsync_directory(path: Path) -> None:
    """Make the entries of a directory durable."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
