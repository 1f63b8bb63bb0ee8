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

from parity import policy, storage
from parity.checkpoints import DRAFT, CheckpointStore, read_pointer, read_seal, steadily
from parity.checkpoints.trees.checkpoints import TREES, TreeCheckpoints
from parity.checkpoints.trees.fit import Reference, RestoredTree, RestoreRequest
from parity.checkpoints.trees.form import TreeForm
from parity.checkpoints.trees.joint import snapshot_joint
from parity.checkpoints.trees.reading import is_described
from parity.checkpoints.trees.rules import RuleLike
from parity.checkpoints.trees.single import restore_from
from parity.checkpoints.trees.snapshot import TreeSnapshot
from parity.checkpoints.trees.stored import StoredTrees
from parity.checkpoints.trees.together import TOGETHER_AT_A_STORE, SavingGroup, agree, attempt
from parity.checkpoints.trees.unsent import StoredCheckpoints
from parity.contract import RunPlan
from parity.errors import CheckpointError, UnknownNameError
from parity.policy import Rules, Saved
from parity.storage import WriterLock, local_path
from parity.storage.stores import is_url, parse_url

__all__ = ["CheckpointManager", "is_managed"]

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


class CheckpointManager(ABC):
    """Checkpoints by step, each of named items; a context manager.

    One process at a time saves to a directory, or several together (docs/scale.md); any number restore. A save copies
    the items and returns; a thread writes them, and the next save, `wait` or `close` raises what went wrong. What is
    under way when a process is killed is lost; when `wait` has returned, it is durable.

    Args:
        directory: A local directory; it need not exist. Checkpoints are `checkpoints/<step>` in it. Or the URL of a
            place at a store, whole or absent there too (docs/remote.md): one process saves there, by a lease, and a
            save is done when the store has it.
        keep: Which checkpoints stay, and whether a larger or a smaller metric is better; by default the three newest
            and the one of the smallest metric. `Rules(keep_latest=2)` asks for no best, and takes no metric.
        save_interval_steps: `save` saves steps that are multiples of it, and the first one of an empty directory, as
            Orbax does; it returns at once for others.

    Raises:
        RunDirectoryError: The directory is a URL of another kind.
        MissingPackageError: It is a URL, and obstore is not installed.
        ValueError: The interval is below 1.
    """

    def __init__(
        self, directory: str | os.PathLike[str], *, keep: Rules = KEEP, save_interval_steps: int = 1
    ) -> None:
        self._interval = operator.index(save_interval_steps)
        if self._interval < 1:
            raise ValueError(f"save_interval_steps must be at least 1, got {save_interval_steps}")
        self._plan = RunPlan(steps=policy.INT32, save_every=1, metric="metric", keep=keep)
        self._stored = StoredTrees(parse_url(os.fspath(directory)), TREES) if is_url(directory) else None
        self.directory = local_path(directory).absolute() if self._stored is None else self._stored.home
        """Where checkpoints are written; of a place at a store, before each is sent."""
        self._store = CheckpointStore(self.directory)
        self._checkpoints = (
            TreeCheckpoints(self._form(), self._store, self._plan)
            if self._stored is None
            else StoredCheckpoints(self._form(), self._store, self._plan, self._stored)
        )
        self._lock: WriterLock | None = None
        self._holds_some = False
        """Whether there is a checkpoint, as far as is known: a store is not asked at every step."""

    def should_save(self, step: int) -> bool:
        """Return whether `save` saves a step: it is a multiple of the interval, or the first one there is.

        Raises:
            CheckpointError: It is no number of steps.
            StoreError: The store refused or was not reached.
            TypeError: It is no integer.
        """
        if _number(step) % self._interval == 0:
            return True
        self._holds_some = self._holds_some or bool(self._steps())
        return not self._holds_some

    def save(self, step: int, items: Mapping[str, Any], metric: float | None = None, *, force: bool = False) -> bool:
        """Save items as the checkpoint of a step; returns when they are copied.

        Args:
            step: Completed steps; a step is saved once.
            items: Name of an item to any tree that `save` takes. One of dicts with keys of text, lists and finite
                scalars alone is written as JSON.
            metric: What the best checkpoint is judged by, if it was measured.
            force: Whether the step is saved although it is not one of the interval.

        Returns:
            Whether it is saved: false where `should_save` says so.

        Raises:
            CheckpointError: There is a checkpoint of this step; the rules would remove it at once, as newer ones are
                there; the step or the name of an item cannot be used; something in the items cannot be saved (each
                leaf is named); a metric is given, and the rules have no mode; or the directory cannot be written to.
            LockedError: Another process, or another manager of this one, saves to the directory.
            SaveError: The save before failed. At a store, one that it refused or that did not reach it is kept on
                this machine, warned of, and sent with this one.
            StoreError: The store refused or was not reached, before anything was copied.
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
        value = None if metric is None else float(metric)
        if (group := self._form().group(dict(items))) is not None:
            self._save_jointly(number, items, value, group)
            return True
        self._open()
        spare = self._checkpoints.take_spare()  # the save before is in its place now
        self._checkpoints.group = None
        self._require_kept(number, value)
        snapshot = TreeSnapshot(self._form(), dict(items), items=True, spare=spare)
        self._checkpoints.save(number, snapshot, {"counters.step": number, **snapshot.scalars()}, value)
        self._holds_some = True
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
        return [saved.step for saved in self._whole()]

    def latest_step(self) -> int | None:
        """Return the step of the newest whole checkpoint; None if there is none."""
        return _step_of(policy.latest(self._whole()))

    def best_step(self) -> int | None:
        """Return the step of the best whole checkpoint; None if none has a finite metric."""
        return _step_of(policy.best(self._whole(), self._plan.mode))

    def wait(self) -> None:
        """Return when the last save is durable; at a store, what it did not take is tried once more.

        Raises:
            SaveError: It failed; raised once. Or the store still does not take it.
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
            if self._stored is not None:
                self._stored.close()
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
        if self._stored is not None:
            with self._stored.fetched(which, self._plan.mode) as (home, step):
                return _read(TreeCheckpoints(form, CheckpointStore(home), self._plan), step, request)
        if (group := form.group(request.like)) is not None:
            return restore_from(form, self._store.path / str(self._chosen(which, group)), request)
        reader = TreeCheckpoints(form, self._store, self._plan)
        return steadily(self._store.path, which, lambda: _read(reader, which, request))

    def _save_jointly(self, step: int, items: Mapping[str, Any], metric: float | None, group: SavingGroup) -> None:
        """Save items with other processes; process 0 has the lock, and decides what stays."""
        if self._stored is not None:
            raise CheckpointError(f"{self._stored.url}: {TOGETHER_AT_A_STORE}")
        spare = self._checkpoints.take_spare()
        self._checkpoints.group = group  # no thread has that of the save before any more

        def check() -> None:
            self._open()
            if (self._store.path / str(step)).exists():
                raise CheckpointError(f"{self._store.path / str(step)} exists already; it is not overwritten")
            self._require_kept(step, metric)

        given = {"the directory": str(self.directory), "the step": str(step), "the metric": repr(metric)}
        snapshot, token = snapshot_joint(self._form(), dict(items), group, given, check, items=True, spare=spare)
        self._checkpoints.draft = f"{DRAFT}{step}-{token}"
        self._checkpoints.save(step, snapshot, {"counters.step": step, **snapshot.scalars()}, metric)
        self._holds_some = True

    def _chosen(self, which: policy.Which, group: SavingGroup) -> int:
        """Return the step that process 0 chooses, for all."""

        def choose() -> int:
            return self._store.choose(self._store.scan(), which, self._plan) if group.index == 0 else 0

        agree(group, "restore", {"the directory": str(self.directory), "the checkpoint": str(which)})
        step: int = group.exchange(attempt(group, choose))[0]
        return step

    def _whole(self) -> list[Saved]:
        """Return the checkpoints that count: by their seals, or those that the head of a place at a store names."""
        return self._store.scan().whole if self._stored is None else self._stored.whole()

    def _steps(self) -> list[int]:
        """Return the steps that have an entry, whole or not."""
        return self._store.steps() if self._stored is None else [saved.step for saved in self._stored.whole()]

    def _require_kept(self, step: int, metric: float | None) -> None:
        """Refuse a step that the rules would remove as soon as it is saved; only an older one can be such."""
        if not any(other > step for other in self._steps()):
            return
        whole, rules = self._whole(), self._plan.keep
        new = policy.Saved(step=step, metric=metric, saved_at=time.time())
        if step in policy.kept([*(saved for saved in whole if saved.step != step), new], rules):
            return
        newer = [saved.step for saved in whole if saved.step > step]
        where = self._store.path if self._stored is None else self._stored.url
        raise CheckpointError(
            f"step {step} is older than {', '.join(map(str, newer[-5:]))} in {where}, and would be "
            f"removed as soon as it is saved: {rules}; move the newer ones away, save to another directory, or keep "
            f"more: keep_latest={len(newer) + 1}"
        )

    def _open(self) -> None:
        """Become the one that saves, and remove what a save that was killed left."""
        if self._lock is None:
            try:
                storage.make_directory(self.directory)
                lock = WriterLock(self.directory).__enter__()
            except OSError as error:
                raise CheckpointError(f"{self.directory} cannot be saved to: {storage.reason(error)}") from error
            try:
                self._store.clean()
                if self._stored is not None:
                    self._stored.open(self._plan.mode)
            except OSError as error:
                lock.__exit__(None, None, None)
                raise CheckpointError(f"{self.directory} cannot be saved to: {storage.reason(error)}") from error
            except BaseException:
                lock.__exit__(None, None, None)
                raise
            self._lock = lock


def _read(reader: TreeCheckpoints, which: policy.Which, request: RestoreRequest) -> RestoredTree:
    found = reader.restore(which, request)
    assert found.seal is not None
    return found.state.finish(found.step, found.seal.metric)


def _number(step: int) -> int:
    """Return a step as an integer."""
    number = operator.index(step)
    if not 0 <= number <= policy.INT32 or isinstance(step, bool):
        raise CheckpointError(f"step {step!r} is no number of completed steps (0 to {policy.INT32})")
    return number


def _step_of(saved: policy.Saved | None) -> int | None:
    return None if saved is None else saved.step
