"""The catalogue of resume bugs: every row of the reference, planted in trainers of any kind, the twins among them.

An entry is planted in trainers that know nothing of the suite, and judged by their live objects; a fault plants the
bug of an entry in the twins, which are judged by what they left on disk. The entry says who reported it and what is
lost.
"""

from __future__ import annotations

from tests.faults import counters, data, model, optimizer, rng, scaler, scheduler, storage
from tests.faults.fault import Fault
from tests.faults.live import (
    entries_counters,
    entries_data,
    entries_model,
    entries_optimizer,
    entries_policy,
    entries_rng,
    entries_schedule,
    entries_storage,
)
from tests.faults.live.entry import Entry
from tests.faults.policies import BY_AUDIT

__all__ = ["BY_OTHER_CHECKS", "ENTRIES", "FAULTS", "PLANTED", "PLANTED_IN_RANKS"]

ENTRIES: tuple[Entry, ...] = (
    *entries_model.ENTRIES,
    *entries_optimizer.ENTRIES,
    *entries_schedule.ENTRIES,
    *entries_rng.ENTRIES,
    *entries_data.ENTRIES,
    *entries_counters.ENTRIES,
    *entries_policy.ENTRIES,
    *entries_storage.ENTRIES,
)
PLANTED: tuple[Entry, ...] = tuple(entry for entry in ENTRIES if entry.train is not None and entry.processes == 1)
"""Those that are planted in trainers of one process."""
PLANTED_IN_RANKS: tuple[Entry, ...] = tuple(entry for entry in ENTRIES if entry.processes > 1)
"""Those that are planted in a trainer of several; the others need another number of ranks, or cannot happen here."""

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
