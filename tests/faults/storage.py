"""Faults on disk and across devices: pieces of other steps, missing pieces, and shards put together wrongly."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import torch

from tests.faults.fault import Fault
from tests.faults.plants import Leaves, leaves_under, rewritten
from torch_side.state import file_state

__all__ = ["FAULTS", "edit_file"]

M, V, T = "optimizer.first_moment", "optimizer.second_moment", "optimizer.step"
MOMENTS = ("optimizer.first_moment.", "optimizer.second_moment.")


def edit_file(checkpoint: Path, change: Any) -> None:
    """Rewrite the state file of a PyTorch checkpoint so that it looks whole."""
    saved = torch.load(checkpoint / "state.pt", weights_only=True)
    change(saved)
    torch.save(saved, checkpoint / "state.pt")
    meta = json.loads((checkpoint / "meta.json").read_text())
    meta["bytes"] = (checkpoint / "state.pt").stat().st_size
    (checkpoint / "meta.json").write_text(json.dumps(meta))


def _two_newest(trainer: Any) -> list[Path]:
    """Return the two newest checkpoints, the newest last; none at the first start."""
    path = trainer.checkpoints.run.checkpoints
    found = sorted(path.iterdir(), key=lambda entry: int(entry.name)) if trainer.attempt else []
    return found[-2:]


def _piece_of_older(piece: str) -> Any:
    """Return a plant that puts a piece of the checkpoint before into the newest."""

    def plant(trainer: Any) -> None:
        if not (found := _two_newest(trainer)):
            return
        older, newest = found
        if trainer.side == "jax":
            shutil.rmtree(newest / piece)
            shutil.copytree(older / piece, newest / piece)
            return
        stale = torch.load(older / "state.pt", weights_only=True)[piece]
        edit_file(newest, lambda saved: saved.update({piece: stale}))

    return plant


def _without_rng(trainer: Any) -> None:
    """Take the streams out of the file, and load what a new trainer has where a piece is missing."""
    if found := _two_newest(trainer):
        edit_file(found[-1], lambda saved: saved.pop("rng"))
    restore = trainer.checkpoints.restore

    def tolerant(*args: Any) -> Any:
        step, saved, scalars = restore(*args)
        return step, {**file_state(trainer), **saved}, scalars

    trainer.checkpoints.restore = tolerant


def _halves_exchanged(leaves: Leaves) -> Leaves:
    found = leaves_under(leaves, MOMENTS)
    return {leaf: np.roll(value, len(value) // 2, axis=0) for leaf, value in found.items()}


def _last_rows_are_padding(leaves: Leaves) -> Leaves:
    """Cut ten classes over four devices into rows of three, and drop what lies behind the third."""
    weight = leaves["model.params.layers.1.weight"].copy()
    weight[9:] = 0
    return {"model.params.layers.1.weight": weight}


FAULTS = (
    Fault(
        id="mixed_generation",
        group="storage",
        lost="the optimizer of this step: the one of an older checkpoint lies in its place",
        plant=_piece_of_older("optimizer"),
        suspects=(M, V, T),
    ),
    Fault(
        id="rng_stale_file_in_dir",
        group="storage",
        lost="the streams of this step: those of an older checkpoint lie in their place",
        plant=_piece_of_older("rng"),
        suspects=("rng",),
        overrides=("dropout.generator=native",),
    ),
    Fault(
        id="missing_piece_defaults",
        group="storage",
        lost="a missing piece, taken from a new trainer without a word",
        plant=_without_rng,
        suspects=("rng",),
        sides=("torch",),
        overrides=("dropout.generator=native",),
    ),
    Fault(
        id="tp_opt_reshard_wrong",
        group="sharding",
        lost="the order of the shards of the moments",
        plant=rewritten(_halves_exchanged),
        suspects=(M, V),
        sides=("jax",),
        overrides=("mesh.data=2",),
    ),
    Fault(
        id="uneven_shard_padding",
        group="sharding",
        lost="the last row of a matrix that the devices do not divide",
        plant=rewritten(_last_rows_are_padding),
        suspects=("model.params",),
    ),
)
