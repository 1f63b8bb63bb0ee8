"""The checkpoints of a manager: each a snapshot of named items, written and read by the files of one framework."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from parity import checkpoints, storage
from parity.checkpoints import DRAFT, ByteRange, CheckpointStore, Labels, Neutral, SaveUnderWay
from parity.checkpoints.trees.form import JointWrite, TreeForm
from parity.checkpoints.trees.joint import write_joint
from parity.checkpoints.trees.reading import Pending, read_tree
from parity.checkpoints.trees.snapshot import META, TreeSnapshot
from parity.checkpoints.trees.together import SavingGroup
from parity.contract import RunPlan
from parity.errors import UnsealedError
from parity.storage import FileDigest

__all__ = ["TREES", "TreeCheckpoints"]

TREES = "trees"
"""What the seal of a manager's checkpoint has in place of the hash of a run."""


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
        self.group: SavingGroup | None = None
        """The processes that save together; None where this one does it alone."""
        self.draft = ""
        """The name of the directory that they write to: one that failed may still be written to."""

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

    def _start(self, save: SaveUnderWay[TreeSnapshot]) -> None:
        if self.group is None:
            super()._start(save)
            return
        # A thread is handed its group: `self.group` may be that of the next save by the time that a slow one runs.
        draft, group = self.store.path / self.draft, self.group.beside
        with _told(group):
            begun = save.snapshot.begin_together(draft)
        run = partial(self._run_together, save, draft, begun, group)
        try:
            self._background.start(run, f"save-{save.step}", save.snapshot.size)
        except OSError:  # no thread can be had, and those of the other processes wait for this one
            run()

    def _run_together(
        self, save: SaveUnderWay[TreeSnapshot], draft: Path, begun: JointWrite, group: SavingGroup
    ) -> None:
        def finish(files: Mapping[str, FileDigest], places: Mapping[str, tuple[ByteRange, ...]]) -> None:
            self._commit(save, draft, files, places)

        with _told(group):
            with self._failing(save):
                write_joint(self._form, save, save.meta(), draft, begun, group, finish)
            group.close()
        self._spare = save.snapshot

    def _abort(self) -> None:
        """Remove what a failed save left; of several processes the first does, when none writes to it any more."""
        if self.group is None or self.group.index == 0:
            super()._abort()

    def _read(self, path: Path, state: Any, *, sealed: bool) -> tuple[Pending, Neutral, Labels]:
        if not sealed:
            raise UnsealedError(f"{path} has no seal, and nothing else proves that it is whole")
        pending = read_tree(self._form, path, state)
        return pending, pending.neutral(), {}

    def _reason(self, error: Exception, step: int) -> str:
        return self._form.reason(error, self.store.path / str(step))


@contextmanager
def _told(group: SavingGroup) -> Iterator[None]:
    """Tell the other processes of what ends this one's part of a save, as their threads wait for it."""
    try:
        yield
    except BaseException as error:
        group.close(str(error) or type(error).__name__)
        raise
