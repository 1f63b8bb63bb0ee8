"""Checkpoints: the base of what saves and restores the state of a run, everything about it that is not a file format.

A side writes a draft and reads a directory. What is verified and when, what a seal holds, and the order in which a
checkpoint becomes durable, is pointed to and pushes older ones out stand here, once for every side.
"""

from __future__ import annotations

import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Generic, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from parity import policy, storage
from parity.checkpoints.label import label_of, require_labels
from parity.checkpoints.ranges import ByteRange
from parity.checkpoints.seal import Seal, after_save, commit, require_own
from parity.checkpoints.store import CheckpointStore
from parity.checkpoints.verify import Restored, read_meta, require_sealed, require_verified
from parity.contract import RunPlan
from parity.environment import versions
from parity.errors import CheckpointError, SaveError, StateError
from parity.policy import Which
from parity.state import TrainingState, leaf_digests, memory_orders
from parity.storage import Background, FileDigest, Priority, list_files, plain

__all__ = ["Checkpoints", "Labels", "Neutral", "SaveUnderWay", "fitting"]

Neutral = tuple[dict[str, NDArray[np.generic]], dict[str, Any]]
"""Neutral leaf to array, and neutral leaf to scalar."""

Labels = dict[str, Mapping[str, Any]]
"""File of a checkpoint to the mapping in it that has the fields of its label."""


class StateCopy(Protocol):
    """A copy of a state, beside which training continues."""

    @property
    def size(self) -> int:
        """Return the bytes of its arrays."""

    def neutral(self) -> Neutral:
        """Return the neutral arrays, and those scalars that live with them."""


State = TypeVar("State")
Content = TypeVar("Content")
Copy = TypeVar("Copy", bound=StateCopy)


@dataclass(frozen=True, kw_only=True)
class SaveUnderWay(Generic[Copy]):
    """A save under way: everything that its seal needs to know."""

    step: int
    metric: float | None
    saved_at: float
    """Seconds since the epoch."""
    snapshot: Copy
    scalars: Mapping[str, Any]
    """The host's half of the neutral state."""
    _leaves: dict[str, str] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def meta(self) -> dict[str, Any]:
        """Return what the JSON file of the checkpoint holds."""
        return {**self.label(), "metric": plain(self.metric), "scalars": self.scalars}

    def label(self) -> dict[str, Any]:
        """Return the label of each file of the checkpoint: step, epoch, best metric and resolved config."""
        return label_of(self.scalars)

    def leaves(self) -> dict[str, str]:
        """Return the digest of every leaf; made once, by whichever thread asks first."""
        with self._lock:
            if not self._leaves:
                arrays, counts = self.snapshot.neutral()
                neutral = TrainingState(arrays=arrays, scalars={**self.scalars, **counts})
                self._leaves.update(leaf_digests(neutral, memory_orders(neutral)))
            return self._leaves

    def put_leaves(self, leaves: Mapping[str, str]) -> None:
        """Take the digests of leaves of which several processes have digested parts; `leaves` returns them then."""
        with self._lock:
            self._leaves.update(leaves)

    def seal(
        self,
        side: str,
        spec_hash: str,
        files: Mapping[str, FileDigest],
        places: Mapping[str, tuple[ByteRange, ...]],
    ) -> Seal:
        """Return the seal of the checkpoint, for `commit`.

        Args:
            side: Name of the side that saves.
            spec_hash: Hash of the run.
            files: Digests of those of the files that were digested while they were written.
            places: Neutral leaf to where its bytes lie.
        """
        return Seal(
            step=self.step,
            metric=None if self.metric is None else float(self.metric),
            saved_at=self.saved_at,
            side=side,
            spec_hash=spec_hash,
            versions=versions(),
            files=files,
            leaves=self.leaves(),
            places=places,
        )


class Checkpoints(ABC, Generic[State, Content, Copy]):
    """The checkpoints of one run: at most one save is under way, in a thread of its own.

    Args:
        store: Where they are.
        plan: Which of them stay, and what best is measured by.
        spec_hash: Hash of the run: every seal has it, and a checkpoint with another is not restored.
        priority: Priority of the threads that write.
    """

    side: str
    """Name of the framework, for seals."""
    meta: ClassVar[str]
    """The JSON file of a checkpoint, below its directory; `scalars` in it is the host's half of the state."""
    partial: ClassVar[bool] = False
    """Whether only those leaves of a checkpoint are read that the state asks for."""

    def __init__(self, store: CheckpointStore, plan: RunPlan, spec_hash: str, priority: Priority) -> None:
        self.store, self.plan, self.spec_hash = store, plan, spec_hash
        self._background = Background(priority)
        self._spare: Copy | None = None
        """The snapshot of the save before, whose buffers the next one takes over."""
        self._committed = False
        """Whether the last save has its final name; the background writes it, and `wait` comes before it is read."""

    def save(
        self,
        step: int,
        state: State,
        scalars: Mapping[str, Any],
        metric: float | None,
        saved_at: float | None = None,
    ) -> None:
        """Copy the state and write it in the background, after the save before has finished.

        Args:
            step: Completed steps.
            state: The side's live state; it may change as soon as this returns.
            scalars: The host's half of the neutral state.
            metric: Validation metric of this step, or None.
            saved_at: The time that the seal records, seconds since the epoch; None for now.

        Raises:
            CheckpointError: There is a checkpoint of this step already.
            SaveError: The save before failed; or this one, where it is not written in the background.
        """
        self.due()
        if (self.store.path / str(step)).exists():
            raise CheckpointError(f"{self.store.path / str(step)} exists already; it is not overwritten")
        snapshot, self._spare = self._snapshot(state, self._spare), None
        self._committed = False
        at = time.time() if saved_at is None else saved_at
        self._start(SaveUnderWay(step=step, metric=metric, saved_at=at, snapshot=snapshot, scalars=scalars))

    def restore(self, which: Which, state: State) -> Restored[Content]:
        """Read a checkpoint after its bytes were verified, and verify every leaf that was read; changes no state.

        One without a seal is read unverified, if it is named by its step.

        Args:
            which: The newest, the best, or a step.
            state: The side's live state: it gives structure, dtypes and devices.

        Returns:
            Its step, its content in the framework's own terms, the JSON scalars saved with it, and its seal.

        Raises:
            DamagedError: It is not what was sealed.
            OtherRunError: It is of another run.
            CheckpointError: There is none, it does not fit the state, or a file points outside of the checkpoint.
            SaveError: The save under way failed.
        """
        self.wait()
        scan = self.store.scan()  # a framework's own list is not asked
        step = self.store.choose(scan, which, self.plan)
        path = self.store.path / str(step)
        seal = None if step in {saved.step for saved in scan.unsealed} else self._verified(path)
        if seal is not None:
            require_own(seal, self.spec_hash)
            if seal.side != self.side:
                raise CheckpointError(f"{path} was saved by the side {seal.side!r}; {self.side!r} cannot read it")
        meta = read_meta(path / self.meta)
        scalars: dict[str, Any] = meta["scalars"]
        list_files(path)  # refuses links, where there is no seal to do so
        with fitting(step):
            content, (arrays, counts), labels = self._read(path, state, sealed=seal is not None)
            loaded = TrainingState(arrays=arrays, scalars={**scalars, **counts})
            self._require_sealed(seal, path, state, content, loaded)
        require_labels(path, self.meta, {self.meta: meta, **labels}, scalars)
        return Restored(step, content, scalars, seal)

    def _verified(self, path: Path) -> Seal:
        """Return the seal of a checkpoint that is whole to the last byte.

        Raises:
            DamagedError: It is not.
        """
        return require_verified(path)

    def _require_sealed(
        self, seal: Seal | None, path: Path, state: State, content: Content, loaded: TrainingState
    ) -> None:
        """Check that what was loaded is, leaf by leaf, what was sealed.

        Args:
            seal: The seal; None where there is none to compare with.
            path: The checkpoint.
            state: As of `_read`.
            content: What `_read` returned.
            loaded: The same in neutral form.

        Raises:
            CheckpointError: A leaf differs.
        """
        del path, state, content
        require_sealed(seal, loaded, partial=self.partial)

    def due(self) -> None:
        """Wait as `wait` does, because the next save is due; if it has to, saves are slower than they come.

        Those that follow then have the priority of the caller.

        Raises:
            SaveError: The save under way failed; raised once.
        """
        self._background.due()
        self.wait()

    def wait(self) -> None:
        """Return when the save under way is durable.

        Raises:
            SaveError: It failed; raised once.
        """
        self._background.wait()

    def written(self, step: int) -> Mapping[str, Mapping[int, int]]:
        """Return what this process wrote of a checkpoint that several have written.

        Args:
            step: Of the checkpoint.

        Returns:
            File of it to the number of each block of `BLOCK` bytes to the bytes that this process wrote; nothing
            where that is not known.
        """
        del step
        return {}

    def close(self) -> None:
        """Wait, and release what is held.

        Raises:
            SaveError: The save under way failed.
        """
        self.wait()

    def _start(self, save: SaveUnderWay[Copy]) -> None:
        self._background.start(partial(self._run, save), f"save-{save.step}", save.snapshot.size)

    def _run(self, save: SaveUnderWay[Copy]) -> None:
        with self._failing(save):
            self._write(save)
        self._spare = save.snapshot

    @contextmanager
    def _failing(self, save: SaveUnderWay[Copy]) -> Iterator[None]:
        """Clean up after what fails in the block, and raise it as the failure of a save."""
        try:
            yield
        except Exception as error:
            self._abort()
            if isinstance(error, SaveError):  # of what follows a save
                raise
            raise SaveError(save.step, self._reason(error, save.step), saved=self._committed) from error

    def _abort(self) -> None:
        """Remove what a failed save left: it takes up room on a disk that may be full."""
        with suppress(OSError):
            self.store.clean()

    def _commit(
        self,
        save: SaveUnderWay[Copy],
        draft: Path,
        files: Mapping[str, FileDigest],
        places: Mapping[str, tuple[ByteRange, ...]],
    ) -> None:
        """Seal a finished draft, give it its final name, point to it, and evict what the policy no longer keeps.

        Args:
            save: What was written.
            draft: The finished draft, beside its final place.
            files: Digests of those of its files that were digested while they were written.
            places: Neutral leaf to where its bytes lie.
        """
        seal = save.seal(self.side, self.spec_hash, files, places)
        self.store.sync()
        commit(draft, self.store.path / str(save.step), seal)
        self._committed = True
        with after_save(save.step):
            self._retain()

    def _retain(self) -> None:
        """Point to the latest and the best of what stays, and evict what the policy no longer keeps."""
        scan = self.store.scan()
        keep = policy.kept(scan.whole, self.plan.keep)
        self.store.point(scan, self.plan, keep)
        for saved in scan.whole:
            if saved.step not in keep:
                self.store.evict(saved.step)

    def _reason(self, error: Exception, step: int) -> str:
        """Return in one line why a save of a step failed: operation, file and the system's reason."""
        del step
        return storage.reason(error)

    @abstractmethod
    def _snapshot(self, state: State, spare: Copy | None) -> Copy:
        """Return a copy of a state, in the buffers of a spare one if there is one."""

    @abstractmethod
    def _write(self, save: SaveUnderWay[Copy]) -> None:
        """Write a draft and have it committed; returns when both are done."""

    @abstractmethod
    def _read(self, path: Path, state: State, *, sealed: bool) -> tuple[Content, Neutral, Labels]:
        """Read a checkpoint whose bytes were verified, if it is sealed, and check that it fits a state.

        Args:
            path: The checkpoint.
            state: Gives structure, dtypes and devices; it is not changed.
            sealed: Whether every leaf that is returned is compared with a seal.

        Returns:
            Its content, the same as neutral arrays and scalars, which may be views, and the labels of its files.

        Raises:
            CheckpointError: It cannot be read.
            StateError: It does not fit.
        """


@contextmanager
def fitting(step: int) -> Iterator[None]:
    """Raise a StateError of the block as the CheckpointError that a checkpoint does not fit its run.

    Args:
        step: The step of the checkpoint, for the message.

    Raises:
        CheckpointError: The block raised a StateError, which is its cause.
    """
    try:
        yield
    except StateError as error:
        raise CheckpointError(f"checkpoint of step {step} does not fit this run: {error}") from error
