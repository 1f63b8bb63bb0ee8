"""RunComparison: what two runs have in common, and where they differ."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from parity.contract import Divergence
from parity.results.record import Verdict
from parity.state import Difference

__all__ = ["RunComparison"]


@dataclass(frozen=True, kw_only=True)
class RunComparison:
    """Two runs as they lie on disk: specs, records, and the checkpoints that both have."""

    fields: Mapping[str, tuple[object, object]]
    """Fields of the specs that differ, by dotted name; None where a run has no such field. They are not judged."""
    steps: int
    """Steps that both runs have recorded."""
    max_rel_diff: float
    """Largest relative difference of the training loss over those steps."""
    divergence: Divergence | None
    """The first step and quantity that differ bit for bit, or a step that one run lacks."""
    validations: tuple[int, ...]
    """Steps whose validations differ, or that one run alone validated."""
    checkpoints: Mapping[int, tuple[Difference, ...]]
    """The steps of which both have a whole checkpoint, to the leaves that differ."""

    @property
    def verdict(self) -> Verdict:
        """Return `broken` if records or leaves differ, `empty` if there is nothing to compare, else `holds`."""
        if self.divergence is not None or self.validations or any(self.checkpoints.values()):
            return "broken"
        return "holds" if self.steps or self.checkpoints else "empty"
