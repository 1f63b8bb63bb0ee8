"""The checkpoints of a manager: each a snapshot of named items, written and read by the files of one framework."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from parity import checkpoints, storage
from parity.checkpoints import DRAFT, CheckpointStore, Labels, Neutral, SaveUnderWay
from parity.checkpoints.trees.form import TreeForm
from parity.checkpoints.trees.reading import Pending, read_tree
from parity.checkpoints.trees.snapshot import META, TreeSnapshot
from parity.contract import RunPlan
from parity.errors import UnsealedError

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
