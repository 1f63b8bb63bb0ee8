"""Checkpoints of the PyTorch side: one file with the full training state, written durably, read safely."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from parity import plan, policy
from parity.curves import plain
from parity.errors import CheckpointError
from parity.rundir import RunDirectory, Scan, fsync_directory
from parity.spec import RunSpec
from parity.trainer import Which
from torch_side.state import file_state

if TYPE_CHECKING:
    from torch_side.train import TorchTrainer

__all__ = ["Checkpoints", "examine"]

DRAFT = ".draft"
"""Prefix of the directory a save is written to before it gets its final name."""


def examine(path: Path) -> float | None:
    """Return the metric of a whole checkpoint.

    Raises:
        CheckpointError: It lacks its state file, has another size, or no readable description of itself.
    """
    try:
        meta = json.loads((path / "meta.json").read_text(encoding="utf-8"))
        step, size = meta["step"], meta["bytes"]
        metric = None if meta["metric"] is None else float(meta["metric"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise CheckpointError(f"its meta.json cannot be read: {error}") from error
    if step != int(path.name):
        raise CheckpointError(f"holds step {step}")
    state = path / "state.pt"
    if not state.is_file():
        raise CheckpointError("lacks state.pt")
    if state.stat().st_size != size:
        raise CheckpointError(f"state.pt has {state.stat().st_size} bytes, was written with {size}")
    return metric


class Checkpoints:
    """The checkpoints of one run, under the same policy as the JAX side's."""

    def __init__(self, spec: RunSpec, directory: Path) -> None:
        self.spec = spec
        self.run = RunDirectory(directory)

    def save(self, step: int, trainer: TorchTrainer, scalars: dict[str, Any], metric: float | None) -> None:
        """Write, fsync, rename, fsync the directory; then remove what the policy no longer keeps.

        Raises:
            CheckpointError: There is a checkpoint of this step already.
        """
        final = self.run.checkpoints / str(step)
        self.run.checkpoints.mkdir(parents=True, exist_ok=True)
        if final.exists():
            raise CheckpointError(f"{final} exists already; it is not overwritten")
        for leftover in self.run.checkpoints.glob(f"{DRAFT}*"):
            shutil.rmtree(leftover)
        draft = self.run.checkpoints / f"{DRAFT}-{step}-{os.getpid()}"
        draft.mkdir()
        with (draft / "state.pt").open("wb") as file:
            torch.save(file_state(trainer), file)
            _sync(file)
            size = file.tell()
        meta = {"step": step, "metric": plain(metric), "bytes": size, "scalars": scalars}
        with (draft / "meta.json").open("w", encoding="utf-8") as text:
            json.dump(meta, text)
            _sync(text)
        fsync_directory(draft)
        draft.rename(final)
        fsync_directory(self.run.checkpoints)
        self._retain()

    def scan(self) -> Scan:
        """Look at what is on disk."""
        return self.run.scan(examine)

    def restore(self, which: Which, device: torch.device) -> tuple[int, dict[str, Any], dict[str, Any]]:
        """Load a checkpoint.

        Returns:
            Its step, the full training state in PyTorch's own terms, and the JSON scalars saved with it.

        Raises:
            CheckpointError: There is none, or the file is not one that `weights_only=True` accepts.
        """
        step = self.run.choose(self.scan(), which, self.spec.metric)
        path = self.run.checkpoints / str(step)
        meta = json.loads((path / "meta.json").read_text(encoding="utf-8"))
        try:
            saved = torch.load(path / "state.pt", map_location=device, weights_only=True)
            scalars = dict(meta["scalars"])
        except Exception as error:  # torch.load leaks a dozen kinds of error for malformed files (pytorch#127525)
            raise CheckpointError(f"{path / 'state.pt'} cannot be loaded: {error}") from error
        return step, saved, scalars

    def _retain(self) -> None:
        scan = self.scan()
        self.run.point(scan, self.spec.metric)
        keep = policy.kept(scan.whole, plan.keeping(self.spec))
        for saved in scan.whole:
            if saved.step not in keep:
                doomed = self.run.checkpoints / f"{DRAFT}-removed-{saved.step}"
                (self.run.checkpoints / str(saved.step)).rename(doomed)  # a kill leaves no half checkpoint
                shutil.rmtree(doomed)


def _sync(file: Any) -> None:
    file.flush()
    os.fsync(file.fileno())
