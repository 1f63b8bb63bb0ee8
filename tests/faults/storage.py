"""Faults on disk and across devices: pieces of other steps, missing pieces, and shards put together wrongly."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from parity.checkpoints import Restored, read_meta, seal
from tests.faults.fault import Fault, Plant
from tests.faults.plants import Leaves, leaves_under, rewritten
from torch_side.state import file_state

__all__ = ["BEHIND_THE_SEAL", "FAULTS", "IN_THE_WRITING", "edit_file", "reseal"]

M, V, T = "optimizer.first_moment", "optimizer.second_moment", "optimizer.step"
MOMENTS = ("optimizer.first_moment.", "optimizer.second_moment.")


def edit_file(checkpoint: Path, change: Any) -> None:
    """Rewrite the state file of a PyTorch checkpoint, behind the back of its seal."""
    saved = torch.load(checkpoint / "state.pt", weights_only=True)
    change(saved)
    torch.save(saved, checkpoint / "state.pt")


def reseal(checkpoint: Path, piece: str = "", older: Path | None = None) -> None:
    """Seal what lies in a checkpoint now, as a saver does that wrote the wrong thing in the first place.

    Args:
        checkpoint: What to seal.
        piece: Leaves below this path are not what the seal before said.
        older: The checkpoint they come from; by default there are none.
    """
    old = seal.read_seal(checkpoint)
    leaves = {leaf: digest for leaf, digest in old.leaves.items() if not piece or not leaf.startswith(piece)}
    if older is not None:
        found = seal.read_seal(older).leaves
        leaves |= {leaf: digest for leaf, digest in found.items() if leaf.startswith(piece)}
    draft = checkpoint.rename(checkpoint.with_name(".draft-resealed"))
    (draft / seal.FILE).unlink()
    seal.commit(draft, checkpoint, replace(old, files={}, places={}, leaves=leaves))


def _two_newest(trainer: Any) -> list[Path]:
    """Return the two newest checkpoints, the newest last; none at the first start."""
    path = trainer.checkpoints.store.path
    found = sorted(path.iterdir(), key=lambda entry: int(entry.name)) if trainer.attempt else []
    return found[-2:]


Finish = Callable[[Path, str, Path | None], None]
"""What becomes of the seal: given the checkpoint, the piece, and the checkpoint that piece is of."""

LEAVES = {"optimizer": "optimizer.", "rng": "rng.native."}
"""Piece to the leaves it holds."""


def _piece_of_older(piece: str, finish: Finish) -> Plant:
    """Return a plant that puts a piece of the checkpoint before into the newest, and then `finish`es it."""

    def plant(trainer: Any) -> None:
        if not (found := _two_newest(trainer)):
            return
        older, newest = found
        if trainer.side == "jax":
            label = _read_described(newest / piece)["custom_metadata"]  # the label alone would give it away
            shutil.rmtree(newest / piece)
            shutil.copytree(older / piece, newest / piece)
            described = _read_described(newest / piece) | {"custom_metadata": label}
            (newest / piece / "_METADATA").write_text(json.dumps(described))
        else:
            stale = torch.load(older / "state.pt", weights_only=True)[piece]
            edit_file(newest, lambda saved: saved.update({piece: stale}))
        finish(newest, LEAVES[piece], older)

    return plant


def _read_described(item: Path) -> dict[str, Any]:
    """Return what Orbax wrote of an item."""
    found: dict[str, Any] = json.loads((item / "_METADATA").read_text())
    return found


def _without_rng(finish: Finish) -> Plant:
    """Return a plant that takes the streams out of the file, and loads a new trainer's where a piece is missing."""

    def plant(trainer: Any) -> None:
        if found := _two_newest(trainer):
            edit_file(found[-1], lambda saved: saved.pop("rng"))
            finish(found[-1], LEAVES["rng"], None)
        store = trainer.checkpoints.store

        def tolerant(which: Any, state: Any) -> Any:
            path = store.path / str(store.choose(store.scan(), which, trainer.plan))
            content = {**file_state(state), **torch.load(path / "state.pt", weights_only=True)}
            return Restored(int(path.name), content, read_meta(path / "meta.json")["scalars"], None)

        trainer.checkpoints.restore = tolerant

    return plant


def _left_as_it_is(checkpoint: Path, piece: str, older: Path | None) -> None:
    """Leave the seal of what was there before."""


def _files_sealed_anew(checkpoint: Path, piece: str, older: Path | None) -> None:
    """Seal the files as they are now, and the leaves as they were in memory."""
    reseal(checkpoint)


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
        plant=_piece_of_older("optimizer", reseal),
        suspects=(M, V, T),
    ),
    Fault(
        id="rng_stale_file_in_dir",
        group="storage",
        plant=_piece_of_older("rng", reseal),
        suspects=("rng",),
        overrides=("dropout.generator=native",),
    ),
    Fault(
        id="missing_piece_defaults",
        group="storage",
        plant=_without_rng(reseal),
        suspects=("rng",),
        sides=("torch",),
        overrides=("dropout.generator=native",),
    ),
    Fault(
        id="tp_opt_reshard_wrong",
        group="sharding",
        plant=rewritten(_halves_exchanged),
        suspects=(M, V),
        sides=("jax",),
        overrides=("mesh.data=2",),
    ),
    Fault(
        id="uneven_shard_padding",
        group="sharding",
        plant=rewritten(_last_rows_are_padding),
        suspects=("model.params",),
    ),
)

BEHIND_THE_SEAL: dict[str, tuple[Plant, str]] = {
    "mixed_generation": (_piece_of_older("optimizer", _left_as_it_is), "optimizer"),
    "rng_stale_file_in_dir": (_piece_of_older("rng", _left_as_it_is), "rng"),
    "missing_piece_defaults": (_without_rng(_left_as_it_is), "rng"),
}
"""The same faults in files that were sealed before: id to the plant, and the piece that is not what was sealed."""

IN_THE_WRITING: dict[str, tuple[Plant, str]] = {
    "mixed_generation": (_piece_of_older("optimizer", _files_sealed_anew), r"optimizer\.first_moment\."),
    "rng_stale_file_in_dir": (_piece_of_older("rng", _files_sealed_anew), r"rng\.native\."),
}
"""The same faults of a saver that sealed the leaves in memory, and wrote others: id to plant and first wrong leaf."""
