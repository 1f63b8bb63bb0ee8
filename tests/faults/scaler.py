"""Faults that lose the loss scale or its growth, and counters around skipped steps."""

from __future__ import annotations

from typing import Any

from tests.faults.fault import Fault
from tests.faults.plants import after_restore, ignore, reset, with_counters
from torch_side.scaler import build_scaler

__all__ = ["FAULTS"]

SCALER = ("scaler.scale", "scaler.growth_tracker")
# Step 12 halves the scale before the first restart; step 30 is skipped right before the second one's checkpoint.
OVERFLOWS = ("scaler.overflow_steps=[12, 30]",)


def _made_late(trainer: Any) -> None:
    trainer.scaler = build_scaler(trainer.spec, trainer.device)


FAULTS = (
    Fault(
        id="scaler_not_saved",
        group="scaler",
        plant=reset("scaler."),
        suspects=SCALER,
        precision="float16",
        overrides=OVERFLOWS,
    ),
    Fault(
        id="scaler_not_saved",
        group="scaler",
        plant=ignore("scaler", "load_state_dict"),
        suspects=SCALER,
        sides=("torch",),
        precision="float16",
        overrides=OVERFLOWS,
    ),
    Fault(
        id="scaler_created_after_load",
        group="scaler",
        plant=after_restore(_made_late),
        suspects=SCALER,
        sides=("torch",),
        precision="float16",
        overrides=OVERFLOWS,
    ),
    Fault(
        id="aux_counter_reset",
        group="counters",
        plant=with_counters(lambda counters: {"skips_in_row": 0}),
        suspects=("counters.skips_in_row",),
        precision="float16",
        overrides=OVERFLOWS,
    ),
    Fault(
        id="aux_counter_reset",
        group="counters",
        plant=with_counters(lambda counters: {"updates": counters.step}),
        suspects=("counters.updates",),
        sides=("torch",),
        precision="float16",
        overrides=OVERFLOWS,
    ),
)
