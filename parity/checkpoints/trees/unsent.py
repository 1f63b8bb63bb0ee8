"""The checkpoints of a manager at a store: each is written on this machine, sent in the background, and removed here.

What the store refuses is kept here and sent again with each save, as the copies of a run are: training goes on, the
next save warns, and `wait` and `close`, which promise that it is there, try once more and raise.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from parity import policy, storage
from parity.checkpoints import CheckpointStore, SaveUnderWay, after_save, commit
from parity.checkpoints.ranges import ByteRange
from parity.checkpoints.trees.checkpoints import TreeCheckpoints
from parity.checkpoints.trees.form import TreeForm
from parity.checkpoints.trees.snapshot import TreeSnapshot
from parity.checkpoints.trees.stored import StoredTrees
from parity.contract import RunPlan
from parity.errors import CheckpointError, SaveError, StoreError
from parity.policy import Saved
from parity.storage import FileDigest

__all__ = ["StoredCheckpoints"]


class StoredCheckpoints(TreeCheckpoints):
    """The checkpoints of a manager at a store.

    Args:
        form: What the framework saves, and in which files.
        store: Where they are written.
        plan: Which of them stay there.
        stored: The place, which is open before the first save.
    """

    def __init__(self, form: TreeForm, store: CheckpointStore, plan: RunPlan, stored: StoredTrees) -> None:
        super().__init__(form, store, plan)
        self._stored = stored
        self._unsent: dict[int, Saved] = {}
        """What is whole here and not there; touched by the thread that writes, or while there is none."""
        self._why = ""
        """Why the last try to send failed; empty where it did not."""
        self._warned = False

    def save(
        self,
        step: int,
        state: Any,
        scalars: Mapping[str, Any],
        metric: float | None,
        saved_at: float | None = None,
    ) -> None:
        """Copy the state; it is written and sent in the background, with what was not sent before.

        Raises:
            CheckpointError: There is a checkpoint of this step already.
            SaveError: The save before failed, and not because the store refused it.
        """
        self.due()
        if step in {saved.step for saved in self._stored.whole()}:
            raise CheckpointError(f"{self._stored.url} has step {step} already; it is not overwritten")
        if step in self._unsent:  # saved once more, after it was said not to be there
            self._forget(step)
        if self._unsent and not self._warned:
            self._warned = True
            warnings.warn(self._missing(), RuntimeWarning, stacklevel=3)
        super().save(step, state, scalars, metric, saved_at)

    def due(self) -> None:
        """Wait until the save under way has ended; what it could not send is sent with the next one.

        Raises:
            SaveError: It failed, and not because the store refused it.
        """
        self._background.due()
        super().wait()

    def take_spare(self) -> TreeSnapshot | None:
        """Wait as `due` does, and return the snapshot of the last save, whose buffers are free."""
        super().wait()
        spare, self._spare = self._spare, None
        return spare

    def wait(self) -> None:
        """Return when every save is at the store; what was not sent is tried once more.

        Raises:
            SaveError: One failed, or the store refused again.
        """
        super().wait()
        if not self._unsent:
            return
        newest = max(self._unsent)
        try:
            self._send()
        except SaveError:
            raise
        except Exception as error:
            raise SaveError(newest, self._reason(error, newest)) from error
        if self._unsent:
            raise SaveError(max(self._unsent), self._missing())

    def close(self) -> None:
        """Wait; what is not sent then stays on this machine until somebody saves to the place from here.

        Raises:
            SaveError: As of `wait`.
        """
        try:
            super().close()
        finally:
            self._unsent = {}

    def _commit(
        self,
        save: SaveUnderWay[TreeSnapshot],
        draft: Path,
        files: Mapping[str, FileDigest],
        places: Mapping[str, tuple[ByteRange, ...]],
    ) -> None:
        path = self.store.path / str(save.step)
        try:
            commit(draft, path, save.seal(self.side, self.spec_hash, files, places))
        except SaveError as error:  # of a directory of this machine: there it is saved, at the store it is not
            self._forget(save.step)
            raise SaveError(save.step, storage.reason(error.__cause__ or error)) from error
        self._unsent[save.step] = Saved(step=save.step, metric=save.metric, saved_at=save.saved_at)
        self._send()

    def _send(self) -> None:
        """Send what is not there, the newest first, and remove there what the rules no longer keep.

        Raises:
            ParityError: It cannot be sent at all: it is damaged, or another process saves there by now.
        """
        newest = max(self._unsent)
        kept = policy.kept([*self._stored.whole(), *self._unsent.values()], self.plan.keep)
        for step in sorted(self._unsent, reverse=True):
            if step in kept:
                try:
                    self._stored.send(self.store.path / str(step), self._unsent[step].metric)
                except StoreError as error:
                    self._why = storage.reason(error)
                    return
                except BaseException:
                    self._forget(step)
                    raise
            self._forget(step)
        self._committed, self._why, self._warned = True, "", False
        with after_save(newest):
            self._stored.retain(self.plan.keep)

    def _forget(self, step: int) -> None:
        """Remove what was written here."""
        self._unsent.pop(step, None)
        with suppress(OSError):  # the next that opens the place removes it
            self.store.evict(step)

    def _missing(self) -> str:
        steps = ", ".join(map(str, sorted(self._unsent)))
        return f"{self._why}; step {steps} is kept in {self.store.path} and sent with the next save"
