"""The checkpoints of a manager: each a snapshot of named items, written and read by the files of one framework."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from parity import checkpoints, storage
from parity.checkpoints import DRAFT, ByteRange, CheckpointStore, Labels, Neutral, SaveUnderWay
from parity.checkpoints.trees.form import TreeForm
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
        if self.group is not None:
            self._write_together(save, draft.name, self.group.beside or self.group)
            return
        files, places = save.snapshot.write(draft, save.meta(), save.leaves())
        self._commit(save, draft, files, places)

    def _write_together(self, save: SaveUnderWay[TreeSnapshot], name: str, group: SavingGroup) -> None:
        draft = self.store.path / group.exchange(name)[0]

        def finish(files: Mapping[str, FileDigest], places: Mapping[str, tuple[ByteRange, ...]]) -> None:
            self._commit(save, draft, files, places)

        write_joint(self._form, save, save.meta(), draft, group, finish)

    def _start(self, save: SaveUnderWay[TreeSnapshot]) -> None:
        if self.group is None or self.group.beside is not None:
            super()._start(save)
        else:  # what these processes tell each other goes through the thread that computes
            self._run(save)

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
