"""Faults that lose a random stream: native dropout draws from one, shared masks are keyed by the step."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from tests.faults.fault import Fault
from tests.faults.plants import Leaves, after_restore, reset, rewritten
from torch_side.dropout import mask_keys

__all__ = ["FAULTS"]

RNG = ("rng",)
NATIVE = ("dropout.generator=native",)


def _gated(trainer: Any) -> None:
    """Leave the stream of the process alone, because this run does not save one."""
    restore = trainer.restore

    def restore_all_but_rng(which: Any) -> int:
        before = torch.get_rng_state()
        step = restore(which)
        torch.set_rng_state(before)
        return step

    trainer.restore = restore_all_but_rng


def _other_key(leaves: Leaves) -> Leaves:
    return {leaf: value[::-1].copy() for leaf, value in leaves.items() if leaf.endswith("rngs.key")}


def _count_from_zero(leaves: Leaves) -> Leaves:
    return {leaf: np.zeros_like(value) for leaf, value in leaves.items() if leaf.endswith("rngs.count")}


def _masks_from_the_start(trainer: Any) -> None:
    """Key the masks of the shared generator by the steps since the restart."""
    place, restored = trainer.feed._place, trainer.step

    def place_with_old_masks(chunk: Any, step: int) -> Any:
        placed = place(chunk, step)
        if trainer.side == "jax":
            return placed._replace(index=placed.index - restored)
        index = placed.host.index - np.int32(restored)
        return placed._replace(keys=mask_keys(trainer.spec.seed, index, trainer.spec.accumulation, trainer.masks))

    trainer.feed._place = place_with_old_masks


FAULTS = (
    Fault(
        id="rng_not_saved",
        group="rng",
        plant=reset("rng.native."),
        suspects=RNG,
        overrides=NATIVE,
    ),
    Fault(
        id="rng_gated_by_save_flag",
        group="rng",
        plant=_gated,
        suspects=RNG,
        sides=("torch",),
        overrides=NATIVE,
    ),
    Fault(
        id="keras_seed_generator_lost",
        group="rng",
        plant=rewritten(_other_key),
        suspects=RNG,
        sides=("jax",),
        overrides=NATIVE,
    ),
    Fault(
        id="split_rng_two_sources",
        group="rng",
        plant=rewritten(_count_from_zero),
        suspects=RNG,
        sides=("jax",),
        overrides=NATIVE,
    ),
    Fault(
        id="sanity_val_consumes_rng",
        group="rng",
        plant=after_restore(lambda trainer: torch.randperm(10)),
        suspects=RNG,
        sides=("torch",),
        overrides=NATIVE,
    ),
    Fault(
        id="rng_reuse_deflates_loss",
        group="rng",
        plant=after_restore(_masks_from_the_start),
        suspects=("rng", "model.params"),
    ),
)
