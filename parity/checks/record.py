"""CheckRecord: what a check returns. Checks compare and record; they draw nothing."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Literal

from parity.criteria import Criterion
from parity.curves import Divergence
from parity.spec import Precision

__all__ = ["EXIT_CODES", "CheckRecord", "Verdict", "overall"]

Verdict = Literal["holds", "broken", "crashed", "inconclusive", "empty"]

EXIT_CODES: dict[Verdict, int] = {"holds": 0, "broken": 1, "crashed": 3, "inconclusive": 4, "empty": 5}
"""2 is usage. `empty`: nothing was compared."""


@dataclass(frozen=True, kw_only=True)
class CheckRecord:
    """One verdict and what it rests on."""

    name: str
    """`resume`, `twins`, `handover` or `policy`, with a direction where there is one: `handover jax-torch`."""
    spec: str
    precision: Precision
    sides: tuple[str, ...]
    verdict: Verdict
    criterion: Criterion
    steps_compared: int
    max_abs_diff: float | None = None
    """Largest absolute difference of the loss."""
    max_rel_diff: float | None = None
    envelope_multiple: float | None = None
    """Smallest multiple of the envelope that would have passed; None under the other criteria."""
    first_divergence: Divergence | None = None
    suspects: tuple[str, ...] = ()
    """Components that were lost or changed, the likeliest first."""
    notes: tuple[str, ...] = field(default=())
    """Sentences for people: what was found."""
    seconds: float = 0.0


def overall(records: Iterable[CheckRecord]) -> Verdict:
    """Return the verdict over all checks: the worst one; `empty` if nothing was compared."""
    verdicts = {record.verdict for record in records}
    for verdict in ("crashed", "broken", "inconclusive", "empty", "holds"):
        if verdict in verdicts:
            return verdict
    return "empty"
