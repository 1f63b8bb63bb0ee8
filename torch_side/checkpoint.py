"""Checkpoints of the PyTorch side: one file with the full training state, sealed, written in the background."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from parity import policy, storage
from parity.checkpoints import (
    DRAFT,
    Restored,
    Scan,
    Seal,
    after_save,
    commit,
    read_scalars,
    require_own,
    require_verified,
)
from parity.contract import TrainingState, leaf_digests
from parity.environment import versions
from parity.errors import CheckpointError, SaveError
from parity.policy import Which
from parity.runs import RunDirectory
from parity.spec import RunSpec
from parity.storage import Background, DigestWriter, ParallelReader, list_files, plain
from torch_side.formats.archive import read_records
from torch_side.seal import places
from torch_side.snapshot import Snapshot

if TYPE_CHECKING:
    from torch_side.train import TorchTrainer

__all__ = ["Checkpoints"]

STATE = "state.pt"
META = "meta.json"


@contextmanager
def _no_checksums() -> Iterator[None]:
    """Save without the CRC-32 of each record: torch.load never looks at it, and it takes longer than the writing."""
    before = torch.serialization.get_crc32_options()
    torch.serialization.set_crc32_options(False)
    try:
        yield
    finally:
        torch.serialization.set_crc32_options(before)


class Checkpoints:
    """The checkpoints of one run, under the same policy as the JAX side's."""

    def __init__(self, spec: RunSpec, directory: Path, spec_hash: str) -> None:
        self.spec, self.spec_hash = spec, spec_hash
        self.store = RunDirectory(directory).store
        self._background = Background(spec.execution.save_priority)
        self._spare: Snapshot | None = None

    def save(
        self,
        step: int,
        trainer: TorchTrainer,
        scalars: dict[str, Any],
        metric: float | None,
        saved_at: float | None = None,
    ) -> None:
        """Copy the state and write it in the background; waits for the save before, so one is under way at most.

        Raises:
            CheckpointError: There is a checkpoint of this step already.
            SaveError: The save before failed.
        """
        self.wait()
        final = self.store.path / str(step)
        if final.exists():
            raise CheckpointError(f"{final} exists already; it is not overwritten")
        snapshot, self._spare = Snapshot(trainer, self._spare), None
        work = partial(
            self._guarded, final, step, snapshot, scalars, metric, time.time() if saved_at is None else saved_at
        )
        self._background.start(work, f"save-{step}", snapshot.size)

    def scan(self) -> Scan:
        """Look at what is on disk."""
        return self.store.scan()

    def restore(self, which: Which, device: torch.device) -> Restored[dict[str, Any]]:
        """Verify a checkpoint and load it; one without a seal is loaded unverified, if it is named by its step.

        Returns:
            Its step, the full training state in PyTorch's own terms, the JSON scalars saved with it, and its seal.

        Raises:
            DamagedError: It is not what was sealed, or is of another run.
            CheckpointError: There is none, or the file is not one that `weights_only=True` accepts.
        """
        self.wait()
        scan = self.scan()
        step = self.store.choose(scan, which, self.spec.plan)
        path = self.store.path / str(step)
        unsealed = step in {s.step for s in scan.unsealed}
        sealed = None if unsealed else require_verified(path)
        if sealed is not None:
            require_own(sealed, self.spec_hash)
        scalars = read_scalars(path / META)
        list_files(path)  # no links, where there is no seal to say so
        try:
            read_records(path / STATE)  # what is no archive of torch.save never reaches torch.load
            with ParallelReader(path / STATE) as file:
                saved = torch.load(file, map_location=device, weights_only=True)
        except CheckpointError:
            raise
        except Exception as error:  # torch.load leaks a dozen kinds of error for malformed files (pytorch#127525)
            raise CheckpointError(f"{path / STATE} cannot be loaded: {error}") from error
        return Restored(step, saved, scalars, sealed)

    def wait(self) -> None:
        """Return when the save under way is durable; raises SaveError if it failed."""
        self._background.wait()

    def close(self) -> None:
        """Wait; nothing else is held."""
        self.wait()

    def _guarded(
        self,
        final: Path,
        step: int,
        snapshot: Snapshot,
        scalars: dict[str, Any],
        metric: float | None,
        saved_at: float,
    ) -> None:
        try:
            self._write(final, step, snapshot, scalars, metric, saved_at)
        except BaseException as error:
            with suppress(OSError):
                self.store.clean()  # what it left takes up room on a disk that may be full
            if isinstance(error, SaveError):  # of what follows a save
                raise
            raise SaveError(step, storage.reason(error)) from error
        finally:
            self._spare = snapshot

    def _write(
        self,
        final: Path,
        step: int,
        snapshot: Snapshot,
        scalars: dict[str, Any],
        metric: float | None,
        saved_at: float,
    ) -> None:
        """Write, seal, fsync, rename, fsync the directory; then remove what the policy no longer keeps."""
        storage.make_directory(self.store.path)
        draft = self.store.path / f"{DRAFT}{step}-{os.getpid()}"
        with storage.named(draft, "mkdir"):
            draft.mkdir()
        with storage.named(draft / STATE), (draft / STATE).open("wb") as file, _no_checksums():
            writer = DigestWriter(file)
            try:
                torch.save(snapshot.saved, writer)
            except Exception as error:
                raise writer.failure or error from error
        storage.write_file(draft / META, json.dumps({"step": step, "metric": plain(metric), "scalars": scalars}))
        arrays, counts = snapshot.neutral()
        leaves = leaf_digests(TrainingState(arrays=arrays, scalars={**scalars, **counts}))
        known = Seal(
            step=step,
            metric=None if metric is None else float(metric),
            saved_at=saved_at,
            side="torch",
            spec_hash=scalars["config.hash"],
            versions=versions(),
            files={STATE: writer.result()},
            leaves=leaves,
            places=places(draft, STATE, snapshot, leaves),
        )
        self.store.sync()
        commit(draft, final, known)
        with after_save(step):
            self._retain()

    def _retain(self) -> None:
        scan = self.scan()
        keep = policy.kept(scan.whole, self.spec.plan.keep)
        self.store.point(scan, self.spec.plan, keep)
        for saved in scan.whole:
            if saved.step not in keep:
                self.store.evict(saved.step)
