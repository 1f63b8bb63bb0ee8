"""Evidence: everything that a run left on disk, read once; the judge needs nothing else."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from pathlib import Path

from parity.contract import StepRecord, Validation, read_records, splice
from parity.runs import RunDirectory
from parity.state import VALUES
from parity.storage import read_lines

__all__ = ["LeafEvent", "RunEvidence", "read_evidence"]


@dataclass(frozen=True, kw_only=True)
class LeafEvent:
    """The digests of every leaf of the live state at one moment."""

    event: str
    """`started`, `restored` (right before the first step), `saving`, `saved`, `final`."""
    attempt: int
    step: int
    leaves: dict[str, str]
    values: Path | None = None
    """Directory of the values of the leaves; None where they were not kept."""


@dataclass(frozen=True, kw_only=True)
class RunEvidence:
    """Everything that a run recorded about itself."""

    records: list[StepRecord]
    validations: list[Validation]
    resumed_from: list[int | None]
    """For each process start, the step that it recorded as its own start."""
    events: list[LeafEvent]

    @property
    def curve(self) -> dict[int, StepRecord]:
        """Return the spliced curve."""
        return splice(self.records)

    def find(self, event: str, step: int, before: int | None = None) -> LeafEvent | None:
        """Return the last event of a kind at a step; None if there is none.

        Args:
            event: Its kind, as of `LeafEvent.event`.
            step: Completed steps.
            before: Attempts from this one on are left out; None for all attempts.
        """
        found = [e for e in self.events if e.event == event and e.step == step]
        return next((e for e in reversed(found) if before is None or e.attempt < before), None)

    def without(self, leaves: Collection[str]) -> RunEvidence:
        """Return the evidence without some leaves of its states."""

        def rest(event: LeafEvent) -> LeafEvent:
            return replace(event, leaves={k: v for k, v in event.leaves.items() if k not in leaves})

        return replace(self, events=[rest(event) for event in self.events])


def read_evidence(path: Path) -> RunEvidence:
    """Read what a run directory holds.

    Raises:
        RunDirectoryError: A record misses a field, or has a value of the wrong type.
    """
    run = RunDirectory(path)
    return RunEvidence(
        records=read_records(run.steps, StepRecord),
        validations=read_records(run.validations, Validation),
        resumed_from=[row["resumed_from"] for row in read_lines(run.attempts)],
        events=[LeafEvent(**row, values=path / VALUES) for row in read_lines(run.states)],
    )
