"""A manager of checkpoints with named items: saved in the background, sealed, kept by the policy of every run."""

from __future__ import annotations

import operator
import os
import re
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

from parity import checkpoints, policy, storage
from parity.checkpoints import (
    DRAFT,
    CheckpointStore,
    Labels,
    Neutral,
    SaveUnderWay,
    read_pointer,
    read_seal,
    steadily,
)
from parity.checkpoints.trees.fit import Reference, RestoredTree, RestoreRequest
from parity.checkpoints.trees.form import TreeForm
from parity.checkpoints.trees.reading import Pending, is_described, read_tree
from parity.checkpoints.trees.rules import RuleLike
from parity.checkpoints.trees.snapshot import META, TreeSnapshot
from parity.contract import RunPlan
from parity.errors import CheckpointError, UnknownNameError, UnsealedError
from parity.policy import Rules
from parity.storage import WriterLock, local_path

__all__ = ["TREES", "CheckpointManager", "TreeCheckpoints", "is_managed"]

TREES = "trees"
"""What the seal of a manager's checkpoint has in place of the hash of a run."""

KEEP = Rules(mode="min")

RESERVED = ("counters", "meta", "seal")
"""Names of the files of a checkpoint, and of what its seal knows besides the items."""
_ITEM = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,99}")


def is_managed(directory: Path) -> bool:
    """Return whether a directory is that of a manager, as its newest checkpoint that can be read says."""
    store = CheckpointStore(directory)
    if os.path.lexists(directory / "spec.toml"):
        return False
    try:
        steps = store.steps()
    except OSError:
        return False
    if not steps and not any(os.path.lexists(directory / name) for name in ("steps.jsonl", "attempts.jsonl")):
        return read_pointer(directory / "latest.json") is not None  # all of them are gone, and were there
    for step in reversed(steps):
        path = store.path / str(step)
        with suppress(CheckpointError):
            return read_seal(path).spec_hash == TREES
        if is_described(path):
            return True
    return False


class TreeCheckpoints(checkpoints.Checkpoints[Any, Pending, TreeSnapshot]):
    """The checkpoints of one manager; a state is a snapshot to save, or a request to restore.

    Args:
        form: What the framework saves, and in which files.
        store: Where they are.
        plan: Which of them stay, and what best is measured by.
    """

    meta = META
    partial = True

    def __init__(self, form: TreeForm, store: CheckpointStore, plan: RunPlan) -> None:
        super().__init__(store, plan, TREES, "idle")
        self.side, self._form = form.side, form

    def take_spare(self) -> TreeSnapshot | None:
        """Wait, and return the snapshot of the last save, whose buffers are free."""
        self.wait()
        spare, self._spare = self._spare, None
        return spare

    def _snapshot(self, state: Any, spare: TreeSnapshot | None) -> TreeSnapshot:
        del spare
        assert isinstance(state, TreeSnapshot)
        return state

    def _write(self, save: SaveUnderWay[TreeSnapshot]) -> None:
        storage.make_directory(self.store.path)
        draft = self.store.path / f"{DRAFT}{save.step}-{os.getpid()}"
        files, places = save.snapshot.write(draft, save.meta(), save.leaves())
        self._commit(save, draft, files, places)

    def _read(self, path: Path, state: Any, *, sealed: bool) -> tuple[Pending, Neutral, Labels]:
        if not sealed:
            raise UnsealedError(f"{path} has no seal, and nothing else proves that it is whole")
        pending = read_tree(self._form, path, state)
        return pending, pending.neutral(), {}

    def _reason(self, error: Exception, step: int) -> str:
        return self._form.reason(error, self.store.path / str(step))


class CheckpointManager(ABC):
    """Checkpoints by step, each of named items; a context manager.

    One process at a time saves to a directory; any number restore. A save copies the items and returns; a thread
    writes them, and the next save, `wait` or `close` raises what went wrong.

    Args:
        directory: A local directory; it need not exist. Checkpoints are `checkpoints/<step>` in it.
        keep: Which checkpoints stay, and whether a larger or a smaller metric is better; by default the three newest
            and the one of the smallest metric. `Rules(keep_latest=2)` asks for no best, and takes no metric.
        save_interval_steps: `save` saves steps that are multiples of it, and the first one of an empty directory, as
            Orbax does; it returns at once for others.

    Raises:
        RunDirectoryError: The directory is a URL.
        ValueError: The interval is below 1.
    """

    def __init__(
        self, directory: str | os.PathLike[str], *, keep: Rules = KEEP, save_interval_steps: int = 1
    ) -> None:
        self._interval = operator.index(save_interval_steps)
        if self._interval < 1:
            raise ValueError(f"save_interval_steps must be at least 1, got {save_interval_steps}")
        self.directory = local_path(directory).absolute()
        self._store = CheckpointStore(self.directory)
        self._plan = RunPlan(steps=policy.INT32, save_every=1, metric="metric", keep=keep)
        self._checkpoints = TreeCheckpoints(self._form(), self._store, self._plan)
        self._lock: WriterLock | None = None
        self._saved = False

    def should_save(self, step: int) -> bool:
        """Return whether `save` saves a step: it is a multiple of the interval, or the first one there is.

        Raises:
            CheckpointError: It is no number of steps.
            TypeError: It is no integer.
        """
        return _number(step) % self._interval == 0 or not (self._saved or self._store.steps())

    def save(self, step: int, items: Mapping[str, Any], metric: float | None = None, *, force: bool = False) -> bool:
        """Save items as the checkpoint of a step; returns when they are copied.

        Args:
            step: Completed steps; a step is saved once.
            items: Name of an item to any tree that `save` takes. One of dicts with keys of text, lists and finite
                scalars alone is written as JSON.
            metric: What the best checkpoint is judged by, if it was measured.
            force: Whether the step is saved although it is none of the interval.

        Returns:
            Whether it is saved: false where `should_save` says so.

        Raises:
            CheckpointError: There is a checkpoint of this step; the rules would remove it at once, as newer ones are
                there; the step or the name of an item cannot be used; something in the items cannot be saved (each
                leaf is named); a metric is given, and the rules have no mode; or the directory cannot be written to.
            LockedError: Another process, or another manager of this one, saves to the directory.
            SaveError: The save before failed.
            TypeError: The step is no integer.
        """
        number = _number(step)
        for name in items:
            if type(name) is not str or _ITEM.fullmatch(name) is None or name in RESERVED:
                raise CheckpointError(
                    f"{name!r} is no name of an item: letters, digits, - and _ make one, and "
                    f"{', '.join(RESERVED)} are taken"
                )
        if metric is not None and self._plan.mode is None:
            raise CheckpointError(
                f"metric {metric:g}: the rules do not say whether a larger or a smaller one is better; give "
                "keep=Rules(mode='max', ...), or 'min'"
            )
        if not force and not self.should_save(number):
            return False
        self._open()
        value = None if metric is None else float(metric)
        spare = self._checkpoints.take_spare()  # the save before is in its place now
        self._require_kept(number, value)
        snapshot = TreeSnapshot(self._form(), dict(items), items=True, spare=spare)
        self._checkpoints.save(number, snapshot, {"counters.step": number, **snapshot.scalars()}, value)
        self._saved = True
        return True

    def restore(
        self,
        which: policy.Which = "latest",
        like: Mapping[str, Any] | None = None,
        *,
        rules: RuleLike = (),
        allow_extra: bool = False,
        allow_missing: bool = False,
        cast: bool = False,
        reference: Reference = "exact",
    ) -> RestoredTree:
        """Restore items of a checkpoint, after every byte of it was compared with its seal.

        Args:
            which: `latest`, `best`, or a step.
            like: Item to its template; other items are not read, and are listed in `extra`. None for all items as
                plain containers and arrays.
            rules: As of `restore`; a name begins with that of its item.
            allow_extra: As of `restore`.
            allow_missing: As of `restore`.
            cast: As of `restore`.
            reference: As of `restore`.

        Returns:
            The items and everything in which they differed, with step and metric of the checkpoint.

        Raises:
            CheckpointError: There is no such checkpoint, or it does not fit; names each leaf.
            DamagedError: It is not what was sealed.
            UnknownNameError: `which` is neither `latest` nor `best` nor an integer.
            SaveError: The last save failed; nothing was restored.
        """
        like = None if like is None else dict(like)
        request = RestoreRequest(
            like=like,
            rules=rules,
            allow_extra=allow_extra,
            allow_missing=allow_missing,
            cast=cast,
            reference=reference,
        )
        return self._restored(self._form(), which, request)

    def all_steps(self) -> list[int]:
        """Return the steps of the whole checkpoints, in ascending order; without that of a save under way."""
        return [saved.step for saved in self._store.scan().whole]

    def latest_step(self) -> int | None:
        """Return the step of the newest whole checkpoint; None if there is none."""
        return _step_of(policy.latest(self._store.scan().whole))

    def best_step(self) -> int | None:
        """Return the step of the best whole checkpoint; None if none has a finite metric."""
        return _step_of(policy.best(self._store.scan().whole, self._plan.mode))

    def wait(self) -> None:
        """Return when the last save is durable.

        Raises:
            SaveError: It failed; raised once.
        """
        self._checkpoints.wait()

    def close(self) -> None:
        """Wait, and let others save to the directory.

        Raises:
            SaveError: The last save failed.
        """
        try:
            self._checkpoints.close()
        finally:
            lock, self._lock = self._lock, None
            if lock is not None:
                lock.__exit__(None, None, None)

    def __enter__(self) -> Self:
        """Return the manager."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close the manager."""
        self.close()

    @abstractmethod
    def _form(self) -> TreeForm:
        """Return the framework's part."""

    def _restored(self, form: TreeForm, which: policy.Which, request: RestoreRequest) -> RestoredTree:
        if which not in ("latest", "best") and type(which) is not int:
            raise UnknownNameError("checkpoint", str(which), ["latest", "best", "or a step, an integer"])
        self._checkpoints.wait()
        reader = TreeCheckpoints(form, self._store, self._plan)
        found = steadily(self._store.path, which, lambda: reader.restore(which, request))
        assert found.seal is not None
        return found.state.finish(found.step, found.seal.metric)

    def _require_kept(self, step: int, metric: float | None) -> None:
        """Refuse a step that the rules would remove as soon as it is saved; only an older one can be such."""
        if not any(other > step for other in self._store.steps()):
            return
        whole, rules = self._store.scan().whole, self._plan.keep
        new = policy.Saved(step=step, metric=metric, saved_at=time.time())
        if step in policy.kept([*(saved for saved in whole if saved.step != step), new], rules):
            return
        newer = [saved.step for saved in whole if saved.step > step]
        raise CheckpointError(
            f"step {step} is older than {', '.join(map(str, newer[-5:]))} in {self._store.path}, and would be "
            f"removed as soon as it is saved: {rules}; move the newer ones away, save to another directory, or keep "
            f"more: keep_latest={len(newer) + 1}"
        )

    def _open(self) -> None:
        """Become the one that saves, and remove what a save that was killed left."""
        if self._lock is None:
            try:
                storage.make_directory(self.directory)
                self._lock = WriterLock(self.directory).__enter__()
                self._store.clean()
            except OSError as error:
                raise CheckpointError(f"{self.directory} cannot be saved to: {storage.reason(error)}") from error


def _number(step: int) -> int:
    """Return a step as an integer."""
    number = operator.index(step)
    if not 0 <= number <= policy.INT32 or isinstance(step, bool):
        raise CheckpointError(f"step {step!r} is no number of completed steps (0 to {policy.INT32})")
    return number


def _step_of(saved: policy.Saved | None) -> int | None:
    return None if saved is None else saved.step
