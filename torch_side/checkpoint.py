"""Checkpoints of the PyTorch side: one file with the full training state, read by `weights_only=True`."""

from __future__ import annotations

import json
import os
from functools import partial
from pathlib import Path
from typing import Any

from parity import checkpoints, storage
from parity.checkpoints import DRAFT, LABEL, SaveUnderWay, Seal
from parity.runs import RunDirectory
from parity.state import TrainingState
from parity.twins import Layout
from torch_side import processes
from torch_side.formats.archive import places
from torch_side.formats.content import STATE, map_content, read_content, write_content
from torch_side.parts import cut, map_parts
from torch_side.placement import Placement
from torch_side.shard_reads import ShardRead, require_verified_by_first
from torch_side.shards import ShardSnapshot, write_shards
from torch_side.snapshot import Snapshot
from torch_side.state import LiveState, check_file_state, neutral_arrays

__all__ = ["Checkpoints"]


REMEMBERED = 8
"""Saves of which it is known who wrote what, for the copies of a run; they are sent soon, or by equal shares."""


class Checkpoints(checkpoints.Checkpoints[LiveState, dict[str, Any], Snapshot]):
    """The checkpoints of one run, each one file of `torch.save` and one of JSON.

    Args:
        layout: Layout of the run's state.
        directory: The run directory.
        spec_hash: Hash of the run: every seal has it, and a checkpoint with another is not restored.
        placement: Device that a restored state is put on.
    """

    side, meta = "torch", "meta.json"

    def __init__(self, layout: Layout, directory: Path, spec_hash: str, placement: Placement) -> None:
        spec = layout.spec
        super().__init__(RunDirectory(directory).store, spec.plan, spec_hash, spec.execution.save_priority)
        self._layout, self._placement = layout, placement
        self._written: dict[int, dict[int, int]] = {}
        """Step of the last saves to what this process wrote of each block of its file."""

    def written(self, step: int) -> dict[str, dict[int, int]]:
        """Return what this process wrote of a checkpoint that several have written."""
        blocks = self._written.get(step)
        return {} if blocks is None else {STATE: blocks}

    def _snapshot(self, state: LiveState, spare: Snapshot | None) -> Snapshot:
        return (Snapshot if state.parts is None else ShardSnapshot)(self._layout, state, spare)

    def _write(self, save: SaveUnderWay[Snapshot]) -> None:
        """Write both files into a draft, the state's digested on its way; several processes write it together."""
        mesh = self._placement.mesh
        if mesh is not None:
            commit = partial(self._commit, save, files={})
            self._written[save.step] = write_shards(
                save, self.store.path, self.meta, mesh.saves, lambda draft, at: commit(draft=draft, places=at)
            )
            self._written = {step: self._written[step] for step in sorted(self._written)[-REMEMBERED:]}
            return
        storage.make_directory(self.store.path)
        draft = self.store.path / f"{DRAFT}{save.step}-{os.getpid()}"
        with storage.named(draft, "mkdir"):
            draft.mkdir()
        digest = write_content(draft / STATE, {**save.snapshot.content, **save.label()})
        storage.write_file(draft / self.meta, json.dumps(save.meta()))
        found = places(draft, STATE, save.snapshot.records())
        self._commit(save, draft, {STATE: digest}, found)

    def _abort(self) -> None:
        """Remove what a failed save left; of several processes the first does, when none writes to it any more."""
        if processes.index() == 0:
            super()._abort()

    def _read(
        self, path: Path, state: LiveState, *, sealed: bool
    ) -> tuple[dict[str, Any], checkpoints.Neutral, checkpoints.Labels]:
        alone = self._placement.mesh is None
        content = read_content(path / STATE, self._placement.device) if alone else map_content(path / STATE)
        label = {name: content.pop(name) for name in LABEL if name in content}
        check_file_state(self._layout, state, content)
        neutral = neutral_arrays(self._layout, state.names, content)
        if state.parts is not None:
            content = map_parts(content, state.names, state.parts, cut)  # from here on, only what is held here
        return content, neutral, {STATE: label}

    def _verified(self, path: Path) -> Seal:
        mesh = self._placement.mesh
        return super()._verified(path) if mesh is None else require_verified_by_first(path, mesh.saves)

    def _require_sealed(
        self, seal: Seal | None, path: Path, state: LiveState, content: dict[str, Any], loaded: TrainingState
    ) -> None:
        mesh, parts = self._placement.mesh, state.parts
        if mesh is None or parts is None:
            super()._require_sealed(seal, path, state, content, loaded)
        elif seal is not None:
            ShardRead(
                path=path,
                file=STATE,
                layout=self._layout,
                names=state.names,
                parts=parts,
                mesh=mesh,
                content=content,
                scalars=loaded.scalars,
            ).require(seal)
