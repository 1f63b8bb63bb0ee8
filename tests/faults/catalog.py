"""The catalogue: every planted fault; most are for the resume judge to catch and name."""

from __future__ import annotations

from tests.faults import counters, data, model, optimizer, rng, scaler, scheduler, storage
from tests.faults.fault import Fault
from tests.faults.policies import BY_AUDIT

__all__ = ["BY_OTHER_CHECKS", "FAULTS"]

FAULTS: tuple[Fault, ...] = (
    *model.FAULTS,
    *optimizer.FAULTS,
    *scheduler.FAULTS,
    *scaler.FAULTS,
    *rng.FAULTS,
    *data.FAULTS,
    *counters.FAULTS,
    *storage.FAULTS,
)

BY_OTHER_CHECKS: dict[str, str] = {
    **dict.fromkeys(BY_AUDIT, "policy"),
    "best_weights_by_reference": "policy",
    "partial_taken_as_latest": "storage",
    "retention_before_finalize": "storage",
    "latest_before_durable": "storage",
    "restore_casts_silently": "storage",
    "batch_size_changed_offset": "data",
    "sharding_from_file": "sharding",
    "step_convention_offset": "cross-framework",
    "opt_identity_by_position_vs_name": "cross-framework",
    "load_model_resets_optimizer": "cross-framework",
    "adam_epsilon_convention": "cross-framework",
}
"""Faults that another check than the resume judge finds, and their group; each has a test of its own."""
