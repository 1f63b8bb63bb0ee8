"""The catalogue of resume bugs, planted in trainers that know nothing of the suite: every row of the reference."""

from __future__ import annotations

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

__all__ = ["ENTRIES", "PLANTED", "PLANTED_IN_RANKS"]

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
