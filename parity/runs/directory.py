"""The run directory: what lies where, which checkpoints count, and what happens to those left behind.

spec.toml  steps.jsonl  validations.jsonl  attempts.jsonl  [states.jsonl  metrics.jsonl]
checkpoints/<step>/   latest.json  best.json   abandoned/<attempt>/   lock
"""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Callable, Container, Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from parity import policy
from parity.checkpoints import FILE as SEAL
from parity.checkpoints import Seal, examine, read_pointer, read_seal, write_pointers
from parity.contract import StepRecord, Validation, read_records
from parity.errors import CheckpointError, RunDirectoryError, SpecMismatchError, UnsealedError
from parity.policy import Which
from parity.spec import RunSpec, differences, from_toml, to_toml
from parity.storage import (
    REMOVED,
    append,
    fsync_directory,
    fsync_files,
    local_path,
    make_directory,
    move,
    plain,
    read_bytes,
    read_lines,
    remove_tree,
    repair,
    replace_file,
)

__all__ = ["DRAFT", "RunDirectory", "Scan"]

DRAFT = ".draft-"
"""Prefix of the directory a PyTorch save is written to before it gets its final name."""
ORBAX_DRAFT = ".orbax-checkpoint-tmp"
"""Orbax's own suffix for the same."""


@dataclass(frozen=True, kw_only=True)
class Scan:
    """What a look at `checkpoints/` found."""

    whole: list[policy.Saved]
    """Checkpoints that count, by step: a valid seal, and every file there with its size."""
    foreign: list[policy.Saved] = field(default_factory=list)
    """Checkpoints without a seal, by step: never picked unless asked for by step, never evicted."""
    unfinished: list[tuple[str, str]] = field(default_factory=list)
    """Leftovers of saves that never completed, with the reason."""
    damaged: list[tuple[str, str]] = field(default_factory=list)
    """Directories with a final name that do not count, with the reason."""

    def found(self) -> list[tuple[str, str]]:
        """Return everything that does not count, with the reason."""
        unsealed = [
            (str(s.step), f"has no seal: {SEAL} is missing; --resume {s.step} takes it unverified")
            for s in self.foreign
        ]
        return self.damaged + self.unfinished + unsealed

    def without(self, step: int, why: str) -> Scan:
        """Return the scan with a checkpoint moved to the damaged ones: only reading every byte showed it."""
        whole = [saved for saved in self.whole if saved.step != step]
        return replace(self, whole=whole, damaged=[*self.damaged, (str(step), why)])


class RunDirectory:
    """One run on disk; every process that works on the run opens it anew."""

    def __init__(self, path: Path) -> None:
        self.path = path = local_path(path)
        self.checkpoints = path / "checkpoints"
        self.steps = path / "steps.jsonl"
        self.validations = path / "validations.jsonl"
        self.attempts = path / "attempts.jsonl"
        self.states = path / "states.jsonl"
        self.metrics = path / "metrics.jsonl"
        self._records = (self.steps, self.validations, self.attempts, self.states, self.metrics)

    @property
    def exists(self) -> bool:
        """Tell whether a run was started here."""
        return (self.path / "spec.toml").exists()

    def require_free(self) -> None:
        """Raise RunDirectoryError if the directory holds something that is not a run of ours, or a part of one."""
        ours = {"side", "checkpoints", "lock"}  # what a start that was cut short leaves
        if self.exists or not self.path.exists():
            return
        if self._is_remains():
            raise RunDirectoryError(self.no_run())
        if {entry.name for entry in self.path.iterdir() if not _POINTER_DRAFT.fullmatch(entry.name)} - ours:
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
        """Tell whether records or checkpoints of a run are here without its spec."""
        if self.exists:
            return False
        saved = self.checkpoints.is_dir() and any(_is_step(entry.name) for entry in self.checkpoints.iterdir())
        return saved or any(file.exists() for file in (self.steps, self.attempts))

    def open(self, spec: RunSpec, side: str) -> None:
        """Create the run, or check that it is the same one.

        Raises:
            SpecMismatchError: The run was started with another spec, in a field that may not change.
            RunDirectoryError: The run belongs to the other side, or the directory holds something else.
        """
        if not self.exists:
            self.require_free()
            make_directory(self.checkpoints)
            replace_file(self.path / "side", side + "\n")
            replace_file(self.path / "spec.toml", to_toml(spec))
            return
        found = _read_text(self.path / "side").strip()
        if found != side:
            raise RunDirectoryError(
                f"{self.path} holds a run of side {found[:20]!r}, not {side!r}; choose another --dir"
            )
        changed = differences(self.spec(), spec)
        if changed:
            raise SpecMismatchError(changed)
        replace_file(self.path / "spec.toml", to_toml(spec))  # steps and intervals may have changed

    def spec(self) -> RunSpec:
        """Return the spec the run was last started with."""
        return from_toml(_read_text(self.path / "spec.toml"))

    def spec_hash(self) -> str | None:
        """Return the hash over what gives the run its meaning, as its last process wrote it down."""
        known = (row.get("spec_hash") for row in reversed(read_lines(self.attempts)))
        return next((value for value in known if isinstance(value, str)), None)

    def mend(self) -> list[str]:
        """Make the records readable after a crash; return a sentence for each file that lost lines."""
        said = []
        for file in self._records:
            if count := repair(file):
                said.append(f"{count} unreadable lines of {file.name} went to {file.name}.damaged")
        return said

    def sync(self) -> None:
        """Make the records durable: a checkpoint must not outlive the records of the steps before it."""
        fsync_files(self._records)
        fsync_directory(self.path)

    def next_attempt(self) -> int:
        """Return the number of the next process start, one above that of the last."""
        last = read_lines(self.attempts)[-1:]
        return max([len(last), *(row["attempt"] + 1 for row in last if type(row.get("attempt")) is int)])

    def begin_attempt(
        self, attempt: int, resumed_from: int | None, topology: dict[str, Any], **more: int | str | None
    ) -> None:
        """Write down a process start, with what else is known of it."""
        row: dict[str, Any] = {"attempt": attempt, "pid": os.getpid(), "resumed_from": resumed_from}
        row["topology"] = topology
        row |= {name: value for name, value in more.items() if value is not None}
        append(self.attempts, [json.dumps(row)])
        fsync_files([self.attempts])

    def scan(self, examine: Callable[[Path], Seal] = examine) -> Scan:
        """Look at every entry of `checkpoints/` and say whether it counts.

        Args:
            examine: Returns the seal of a checkpoint, or raises CheckpointError saying why it does not count.
        """
        whole, foreign, unfinished, damaged = [], [], [], []
        later = self.late_metrics()
        for entry in sorted(self.checkpoints.iterdir()) if self.checkpoints.is_dir() else []:
            if not _is_step(entry.name):
                unfinished.append((entry.name, "has not got its final name: the save was cut short"))
                continue
            try:
                seal = examine(entry)
                metric = later.get((seal.step, seal.saved_at), seal.metric)
                whole.append(policy.Saved(step=seal.step, metric=metric, saved_at=seal.saved_at))
            except UnsealedError:
                foreign.append(policy.Saved(step=int(entry.name), metric=None))
            except CheckpointError as error:
                damaged.append((entry.name, str(error)))
        return Scan(
            whole=sorted(whole, key=lambda s: s.step),
            foreign=sorted(foreign, key=lambda s: s.step),
            unfinished=unfinished,
            damaged=sorted(damaged, key=lambda d: int(d[0])),
        )

    def note_metric(self, step: int, metric: float) -> None:
        """Give a checkpoint a metric that was measured after it was saved; the last one given counts.

        The checkpoint stays as it was sealed; the metric goes to `metrics.jsonl`. May be called while the run is
        trained: what is kept is decided anew at its next save.

        Raises:
            CheckpointError: There is no whole checkpoint of this step (evicted, perhaps).
        """
        saved = next((s for s in self.scan().whole if s.step == step), None)
        if saved is None:
            have = ", ".join(str(s.step) for s in self.scan().whole) or "none"
            raise CheckpointError(f"no whole checkpoint of step {step} in {self.checkpoints} (whole steps: {have})")
        row = {"step": step, "saved_at": saved.saved_at, "metric": plain(float(metric))}
        append(self.metrics, [json.dumps(row)])
        self.point(self.scan(), self.spec().metric)

    def late_metrics(self) -> dict[tuple[int, float], float]:
        """Return (step, time of its save) to metric: a step saved anew after going back is another checkpoint."""
        try:
            return {(row["step"], row["saved_at"]): float(row["metric"]) for row in read_lines(self.metrics)}
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            raise RunDirectoryError(
                f"{self.metrics}: a row is no metric ({error!r}); restore or remove it"
            ) from error

    def clean(self) -> list[str]:
        """Remove what unfinished saves and removals left behind; return their names. Only the writer may.

        Raises:
            OSError: They cannot be removed.
        """
        removed = []
        for entry in sorted(self.checkpoints.iterdir()) if self.checkpoints.is_dir() else []:
            if entry.name.startswith((DRAFT, REMOVED)) or ORBAX_DRAFT in entry.name:
                shutil.rmtree(entry) if entry.is_dir() and not entry.is_symlink() else entry.unlink()
                removed.append(entry.name)
        for entry in self.path.iterdir():
            if _POINTER_DRAFT.fullmatch(entry.name):
                entry.unlink()
                removed.append(entry.name)
        return removed

    def evict(self, step: int) -> None:
        """Remove a checkpoint that the policy no longer keeps; a kill leaves all of it, or a leftover.

        Raises:
            OSError: It could not be removed.
        """
        remove_tree(self.checkpoints / str(step))

    def choose(self, scan: Scan, which: Which, metric: str, *, or_next: bool = False) -> int:
        """Return the step of the checkpoint that is asked for.

        Args:
            scan: What is there.
            which: The newest, the best, or a step.
            metric: What best is measured by.
            or_next: Whether the next whole checkpoint is taken where the newest or the best is damaged or gone.

        Raises:
            CheckpointError: It is not there, or not whole; the message lists what was found and why it does not
                count, and which whole one there is.
        """
        if isinstance(which, int):
            chosen = next((s for s in (*scan.whole, *scan.foreign) if s.step == which), None)
        else:
            chosen = _pick(scan.whole, which, metric)
            if chosen is not None and not or_next:
                self._require_named(scan, which, metric, chosen)
        if chosen is None:
            have = ", ".join(str(s.step) for s in scan.whole) or "none"
            what = f"checkpoint of step {which}" if isinstance(which, int) else f"{which} checkpoint"
            raise CheckpointError(f"no whole {what} in {self.checkpoints} (whole steps: {have})", scan.found())
        return chosen.step

    def _require_named(self, scan: Scan, which: Which, metric: str, chosen: policy.Saved) -> None:
        """Raise CheckpointError unless the newest, or best, of all that the run saved is the one that was chosen."""
        pointed = read_pointer(self.path / f"{which}.json")
        candidates = [*scan.whole, *([pointed] if pointed else []), *self._damaged(scan)]
        named = _pick({s.step: s for s in reversed(candidates)}.values(), which, metric)
        if named is None or named.step == chosen.step:
            return
        why = dict(scan.found()).get(str(named.step), f"is not in {self.checkpoints}, though {which}.json names it")
        value = {s.step: "" if s.metric is None else f" ({metric} {s.metric:.6g})" for s in (named, chosen)}
        raise CheckpointError(
            f"the {which} checkpoint of {self.path} is of step {named.step}{value[named.step]} and is not whole; "
            f"the next one that is: step {chosen.step}{value[chosen.step]}; --or-next takes it",
            [(str(named.step), why)],
        )

    def _damaged(self, scan: Scan) -> list[policy.Saved]:
        """Return what the damaged checkpoints were saved as, as far as their seals can be read."""
        out = []
        later = self.late_metrics()
        for name, _ in scan.damaged:
            try:
                seal = read_seal(self.checkpoints / name)
                metric = later.get((int(name), seal.saved_at), seal.metric)
            except CheckpointError:
                metric = None
            out.append(policy.Saved(step=int(name), metric=metric))
        return out

    def pointed(self, name: str) -> policy.Saved | None:
        """Return the checkpoint that `latest.json` or `best.json` names, if it is there."""
        saved = read_pointer(self.path / f"{name}.json")
        return saved if saved is not None and (self.checkpoints / str(saved.step)).is_dir() else None

    def pointed_step(self, name: str) -> int | None:
        """Return the step that a pointer names, there or not."""
        saved = read_pointer(self.path / f"{name}.json")
        return None if saved is None else saved.step

    def set_aside(self, names: list[str], attempt: int) -> list[str]:
        """Move checkpoints to `abandoned/<attempt>/`, durably, and return their names."""
        home = self.path / "abandoned" / str(attempt)
        for name in sorted(names, key=int, reverse=True):  # a kill between leaves no older one as the latest
            make_directory(home)
            taken = sum(entry.name.partition(".")[0] == name for entry in home.iterdir())
            move(self.checkpoints / name, home / (f"{name}.{taken}" if taken else name))
        return names

    def abandon_after(self, step: int, attempt: int, *, records: bool) -> list[str]:
        """Move the checkpoints after a step to `abandoned/<attempt>/`; return their names.

        Args:
            step: The step that is gone on from.
            attempt: Names the folder.
            records: Whether the records after the step go too: yes when an older checkpoint was chosen; no
                when a kill left them behind the newest one, since a higher attempt replaces them.
        """
        if records:  # read before anything is moved: a record that cannot be read costs nothing
            read_records(self.steps, StepRecord)
            read_records(self.validations, Validation)
        names = [e.name for e in self.checkpoints.iterdir() if _is_step(e.name) and int(e.name) > step]
        moved = self.set_aside(names, attempt)
        if records:
            for file in (self.steps, self.validations):
                rows = read_lines(file)
                late = [json.dumps(row) for row in rows if row["step"] > step]
                if not late:
                    continue
                home = self.path / "abandoned" / str(attempt)
                make_directory(home)
                append(home / file.name, late)
                replace_file(file, "".join(json.dumps(row) + "\n" for row in rows if row["step"] <= step))
        return moved

    def point(self, scan: Scan, metric: str, keep: Container[int] | None = None) -> None:
        """Replace `latest.json` and `best.json` by what a scan found, each atomically.

        Args:
            scan: What is there.
            metric: What best is measured by.
            keep: The steps that are not about to be removed, if some are: pointers name only those.
        """
        whole = [saved for saved in scan.whole if keep is None or saved.step in keep]
        write_pointers(self.path, whole, policy.mode_of(metric))


def _pick(saved: Iterable[policy.Saved], which: Which, metric: str) -> policy.Saved | None:
    return policy.latest(saved) if which == "latest" else policy.best(saved, policy.mode_of(metric))


_POINTER_DRAFT = re.compile(r"\.(latest\.json|best\.json|spec\.toml|side|steps\.jsonl|validations\.jsonl)\.[0-9]+")


def _read_text(path: Path) -> str:
    try:
        return read_bytes(path, failure=RunDirectoryError).decode("utf-8")
    except ValueError as error:
        raise RunDirectoryError(f"{path} cannot be read: {error}") from error


def _is_step(name: str) -> bool:
    """Tell whether a name is a step as we write it: no sign, no leading zero, no foreign digits."""
    return name.isascii() and name.isdigit() and name == str(int(name))
