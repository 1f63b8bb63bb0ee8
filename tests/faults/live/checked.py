"""The catalogue under the check of this suite."""

from __future__ import annotations

from collections.abc import Sequence

import parity
from parity.results import Resumption
from tests.faults.live.entry import Entry

__all__ = ["check", "names_first", "variants"]


def check(entry: Entry, fault: str | None = None) -> Resumption:
    """Check an entry's trainer, with its bug or with another one; empty for none."""
    assert entry.train is not None
    options = entry.keywords if fault is None else {**entry.options, "fault": fault}
    return parity.resumes(
        entry.train,
        steps=entry.steps,
        stop_at=entry.stop_at,
        mode="inline" if entry.processes == 1 else "process",
        processes=entry.processes,
        scenarios=entry.scenarios,
        options=options,
    )


def names_first(entry: Entry, found: Resumption) -> bool:
    """Return whether the first component is one that an expert would name."""
    return bool(found.components) and found.components[0].startswith(entry.expected)


def variants(entries: Sequence[Entry]) -> list[Entry]:
    """Return one entry for every trainer, options, kill and scenarios among these."""
    different = {
        (entry.train, str(entry.options), entry.steps, entry.stop_at, entry.scenarios): entry for entry in entries
    }
    return list(different.values())
