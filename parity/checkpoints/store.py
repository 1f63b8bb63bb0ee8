"""The checkpoints of one run on disk: list them, choose one, point to the latest and the best, evict, set aside.

A store knows a directory, the seals in it and the policy; what best is measured by comes with each call. Only seals
decide which checkpoints count; a framework is never asked.

checkpoints/<step>/   latest.json  best.json   [metrics.jsonl]
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Container, Iterable, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from pathlib import Path

from parity import policy
from parity.checkpoints.meanwhile import ATTEMPTS, identities
from parity.checkpoints.pointers import read_pointer, write_pointers
from parity.checkpoints.seal import FILE, Seal, examine, read_seal
from parity.contract import RunPlan
from parity.errors import CheckpointError, RunDirectoryError, UnsealedError, explain
from parity.policy import Saved, Which
from parity.storage import (
    REMOVED,
    append,
    fsync_directory,
    fsync_files,
    make_directory,
    move,
    plain,
    read_lines,
    remove_tree,
)

__all__ = ["DRAFT", "CheckpointStore", "Scan"]

DRAFT = ".draft-"
"""Prefix of the directory that a save is written to before it gets its final name."""


@dataclass(frozen=True, kw_only=True)
class Scan:
    """Every entry of `checkpoints/`, sorted by whether it counts."""

    whole: list[Saved]
    """Checkpoints that count, by step: a valid seal, and every file there with its size."""
    unsealed: list[Saved] = field(default_factory=list)
    """Checkpoints without a seal, by step: never picked unless asked for by step, never evicted."""
    unfinished: list[tuple[str, str]] = field(default_factory=list)
    """Leftovers of saves that never completed, with the reason."""
    damaged: list[tuple[str, str]] = field(default_factory=list)
    """Directories with a final name that do not count, with the reason."""

    def found(self) -> list[tuple[str, str]]:
        """Return everything that does not count, with the reason."""
        unsealed = [
            (str(s.step), f"has no seal: {FILE} is missing; --resume {s.step} takes it unverified")
            for s in self.unsealed
        ]
        return self.damaged + self.unfinished + unsealed

    def without(self, step: int, why: str) -> Scan:
        """Return the scan with a checkpoint moved to the damaged ones: only reading every byte showed it.

        Args:
            step: Its step.
            why: What is wrong with it, as a phrase.
        """
        whole = [saved for saved in self.whole if saved.step != step]
        return replace(self, whole=whole, damaged=[*self.damaged, (str(step), why)])


class CheckpointStore:
    """The checkpoints of one run; every process that works on the run opens its own.

    Example:
        >>> import tempfile
        >>> from parity.checkpoints import commit
        >>> with tempfile.TemporaryDirectory() as home:
        ...     store = CheckpointStore(Path(home))
        ...     for step, metric in ((100, 0.9), (200, 0.8)):
        ...         (draft := store.path / f"{DRAFT}{step}").mkdir(parents=True)
        ...         seal = Seal(step=step, metric=metric, saved_at=0.0, side="mine", spec_hash="a1")
        ...         _ = commit(draft, store.path / str(step), seal)
        ...     plan = RunPlan(steps=200, save_every=100)  # of a loss: smaller is better
        ...     print([saved.step for saved in store.scan().whole], store.choose(store.scan(), "best", plan))
        [100, 200] 200
    """

    def __init__(self, home: Path, *, records: Sequence[Path] = (), drafts: Sequence[str] = ()) -> None:
        """Name the files; nothing is read or written yet.

        Args:
            home: The run directory.
            records: Files that must be durable before a checkpoint is; see `sync`.
            drafts: Patterns, as of `fnmatch`, of names that the trainer's own format leaves in `checkpoints/` when a
                save is cut short. Names that begin with `DRAFT` are known.
        """
        self.home, self.path = home, home / "checkpoints"
        self.metrics = home / "metrics.jsonl"
        self._records = tuple(records)
        self._leftovers = (f"{DRAFT}*", f"{REMOVED}*", *drafts)

    def steps(self) -> list[int]:
        """Return the steps that have an entry, whole or not, in ascending order."""
        return sorted(int(name) for name in self._names() if _is_step(name))

    def scan(self, examine: Callable[[Path], Seal] = examine) -> Scan:
        """Return every entry of `checkpoints/`, and whether it counts.

        Where another process saves and removes meanwhile, the entries are looked at again: a checkpoint that went
        away between its name and its files is no damaged one, and the one that took its place is not missed.

        Args:
            examine: Returns the seal of a checkpoint, or raises CheckpointError that says why it does not count.

        Raises:
            RunDirectoryError: A row of `metrics.jsonl` is no metric.
        """
        for _ in range(ATTEMPTS):
            before = identities(self.path)
            found = self._scan(examine)
            if identities(self.path) == before:
                break
        return found

    def _scan(self, examine: Callable[[Path], Seal]) -> Scan:
        whole, unsealed, damaged = [], [], []
        unfinished = [
            (name, "has not got its final name: the save was cut short, or is under way")
            for name in self._names()
            if not _is_step(name)
        ]
        later = self.late_metrics()
        for step in self.steps():
            try:
                seal = examine(self.path / str(step))
                metric = later.get((seal.step, seal.saved_at), seal.metric)
                whole.append(Saved(step=seal.step, metric=metric, saved_at=seal.saved_at))
            except UnsealedError:
                unsealed.append(Saved(step=step, metric=None))
            except CheckpointError as error:
                damaged.append((str(step), str(error)))
            except OSError as error:  # a file went away after it was listed
                damaged.append((str(step), f"{error.filename} cannot be read: {error.strerror or error}"))
        return Scan(whole=whole, unsealed=unsealed, unfinished=unfinished, damaged=damaged)

    def choose(self, scan: Scan, which: Which, plan: RunPlan, *, or_next: bool = False) -> int:
        """Return the step of the checkpoint that is asked for.

        Args:
            scan: What is there.
            which: The newest, the best, or a step.
            plan: What best is measured by.
            or_next: Whether the next whole checkpoint is taken where the newest or the best is damaged or gone.

        Raises:
            CheckpointError: It is not there, or not whole; the message lists what was found and why it does not
                count, and which whole one there is.
        """
        if isinstance(which, int):
            chosen = next((s for s in (*scan.whole, *scan.unsealed) if s.step == which), None)
        else:
            chosen = _pick(scan.whole, which, plan)
            if chosen is not None and not or_next:
                self._require_named(scan, which, plan, chosen)
        if chosen is None:
            have = ", ".join(str(s.step) for s in scan.whole) or "none"
            what = f"checkpoint of step {which}" if isinstance(which, int) else f"{which} checkpoint"
            raise CheckpointError(f"no whole {what} in {self.path} (whole steps: {have})", scan.found())
        return chosen.step

    def point(self, scan: Scan, plan: RunPlan, keep: Container[int] | None = None) -> None:
        """Replace `latest.json` and `best.json` by what a scan found, each atomically.

        Args:
            scan: What is there.
            plan: What best is measured by.
            keep: The steps that are not about to be removed, if some are: pointers name only those.
        """
        whole = [saved for saved in scan.whole if keep is None or saved.step in keep]
        write_pointers(self.home, whole, plan.mode)

    def pointed(self, name: str) -> Saved | None:
        """Return the checkpoint that `latest.json` or `best.json` names, if it is there."""
        saved = read_pointer(self.home / f"{name}.json")
        return saved if saved is not None and (self.path / str(saved.step)).is_dir() else None

    def pointed_step(self, name: str) -> int | None:
        """Return the step that a pointer names, there or not."""
        saved = read_pointer(self.home / f"{name}.json")
        return None if saved is None else saved.step

    def note_metric(self, step: int, metric: float, plan: RunPlan) -> None:
        """Give a checkpoint a metric that was measured after it was saved; the last one given counts.

        The checkpoint stays as it was sealed; the metric goes to `metrics.jsonl`. May be called while the run is
        trained: what is kept is decided anew at its next save.

        Args:
            step: The step of the checkpoint.
            metric: Its metric; one that is not finite counts as not measured.
            plan: What best is measured by.

        Raises:
            CheckpointError: There is no whole checkpoint of this step (evicted, perhaps).
            RunDirectoryError: A row of `metrics.jsonl` is no metric.
            OSError: It cannot be written.
        """
        whole = self.scan().whole
        saved = next((s for s in whole if s.step == step), None)
        if saved is None:
            have = ", ".join(str(s.step) for s in whole) or "none"
            raise CheckpointError(f"no whole checkpoint of step {step} in {self.path} (whole steps: {have})")
        row = {"step": step, "saved_at": saved.saved_at, "metric": plain(float(metric))}
        append(self.metrics, [json.dumps(row)])
        self.point(self.scan(), plan)

    def late_metrics(self) -> dict[tuple[int, float], float]:
        """Return (step, time of its save) to metric: a step saved anew after a resume is another checkpoint.

        Raises:
            RunDirectoryError: A row of `metrics.jsonl` is no metric.
        """
        try:
            return {(row["step"], row["saved_at"]): float(row["metric"]) for row in read_lines(self.metrics)}
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            raise RunDirectoryError(
                f"{self.metrics}: a row is no metric ({explain(error)}); restore or remove it"
            ) from error

    def sync(self) -> None:
        """Make the records durable: a checkpoint must not outlive the records of the steps before it."""
        fsync_files(self._records)
        fsync_directory(self.home)

    def evict(self, step: int) -> None:
        """Remove a checkpoint that the policy no longer keeps; a kill leaves all of it, or a leftover.

        Raises:
            OSError: It could not be removed.
        """
        remove_tree(self.path / str(step))

    def clean(self) -> list[str]:
        """Remove the leftovers of saves and removals that were cut short; return their names. Only the writer may.

        Raises:
            OSError: They cannot be removed.
        """
        removed = []
        for name in self._names():
            if any(fnmatchcase(name, pattern) for pattern in self._leftovers):
                entry = self.path / name
                shutil.rmtree(entry) if entry.is_dir() and not entry.is_symlink() else entry.unlink()
                removed.append(name)
        return removed

    def set_aside(self, names: list[str], folder: Path) -> list[str]:
        """Move checkpoints to a folder, durably, and return their names; nothing in the folder is replaced.

        Args:
            names: Names of their directories, which are steps; the newest is moved first.
            folder: Where they go; made if there is none. One whose name is taken there gets a number after it.

        Raises:
            OSError: One could not be moved.
        """
        for name in sorted(names, key=int, reverse=True):  # a kill between leaves no older one as the latest
            make_directory(folder)
            taken = sum(entry.name.partition(".")[0] == name for entry in folder.iterdir())
            move(self.path / name, folder / (f"{name}.{taken}" if taken else name))
        return names

    def _names(self) -> list[str]:
        return sorted(entry.name for entry in self.path.iterdir()) if self.path.is_dir() else []

    def _require_named(self, scan: Scan, which: Which, plan: RunPlan, chosen: Saved) -> None:
        """Raise CheckpointError unless the newest, or best, of all that the run saved is the one that was chosen."""
        pointed = read_pointer(self.home / f"{which}.json")
        candidates = [*scan.whole, *([pointed] if pointed else []), *self._damaged(scan)]
        named = _pick({s.step: s for s in reversed(candidates)}.values(), which, plan)
        if named is None or named.step == chosen.step:
            return
        why = dict(scan.found()).get(str(named.step), f"is not in {self.path}, though {which}.json names it")
        value = {s.step: "" if s.metric is None else f" ({plan.metric} {s.metric:.6g})" for s in (named, chosen)}
        raise CheckpointError(
            f"the {which} checkpoint of {self.home} is of step {named.step}{value[named.step]} and is not whole; "
            f"the next one that is: step {chosen.step}{value[chosen.step]}; --or-next takes it",
            [(str(named.step), why)],
        )

    def _damaged(self, scan: Scan) -> list[Saved]:
        """Return what the damaged checkpoints were saved as, as far as their seals can be read."""
        out = []
        later = self.late_metrics()
        for name, _ in scan.damaged:
            try:
                seal = read_seal(self.path / name)
                metric = later.get((int(name), seal.saved_at), seal.metric)
            except CheckpointError:
                metric = None
            out.append(Saved(step=int(name), metric=metric))
        return out


def _pick(saved: Iterable[Saved], which: Which, plan: RunPlan) -> Saved | None:
    return policy.latest(saved) if which == "latest" else policy.best(saved, plan.mode)


def _is_step(name: str) -> bool:
    """Return whether a name is a step as it is written: no sign, no leading zero, ASCII digits only."""
    return name.isascii() and name.isdigit() and name == str(int(name))
