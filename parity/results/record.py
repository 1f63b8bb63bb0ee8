"""CheckRecord: what a check returns. Checks compare and record; they draw nothing."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from parity.contract import Divergence, Precision

__all__ = [
    "EXIT_CODES",
    "CheckRecord",
    "Criterion",
    "Curves",
    "Pair",
    "ResolvedSpec",
    "Series",
    "Validations",
    "Verdict",
    "overall",
]

Verdict = Literal["holds", "broken", "crashed", "inconclusive", "empty"]

EXIT_CODES: dict[Verdict, int] = {"holds": 0, "broken": 1, "crashed": 3, "inconclusive": 4, "empty": 5}
"""2 is usage. `empty`: nothing was compared."""

Series = tuple[float | None, ...]
"""One value for each step shown; None where a run has no such step."""

Pair = tuple[Series, Series]
"""A quantity of the run that counts as the reference, and of the one compared with it."""


Criterion = Literal["bitwise", "float64", "envelope"]
"""By what two curves are compared: equal bits, 1e-12 relative, or a multiple of the measured envelope."""


@dataclass(frozen=True, kw_only=True)
class Validations:
    """The validations of both runs."""

    metric: str
    """`accuracy` or `loss`."""
    steps: tuple[int, ...]
    value: Pair


@dataclass(frozen=True, kw_only=True)
class Curves:
    """What a check compared, step by step; long runs are thinned (`parity.checks.trace` has the rule)."""

    labels: tuple[str, str]
    """What the two runs are called, the reference first."""
    total: int
    """Steps before thinning."""
    steps: tuple[int, ...]
    """Steps shown, ascending; every series below has one value for each."""
    loss: Pair
    lr: Pair
    """Learning rates used."""
    grad_norm: Pair
    loss_scale: Pair
    """Loss scales used; 1.0 without a scaler."""
    difference: Series
    """Loss of the second run less that of the reference."""
    envelope: Series | None = None
    """Half-width of the measured envelope; None under the other criteria."""
    allowed: Series | None = None
    """Largest difference that passes; None where nothing but equal bits does."""
    skipped: tuple[int, ...] = ()
    """Steps shown whose update the reference's scaler withheld."""
    kills: tuple[int, ...] = ()
    """Steps the second run had recorded when it was killed."""
    resumes: tuple[int, ...] = ()
    """Steps it went on from; 0 is the start."""
    handovers: tuple[int, ...] = ()
    """Steps at which it changed sides."""
    validations: Validations | None = None


@dataclass(frozen=True, kw_only=True)
class ResolvedSpec:
    """The run that was checked, every field of it."""

    toml: str
    hash: str
    """Over what gives the run its meaning, data included."""


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
    curves: Curves | None = None
    """What was compared, to be drawn; None where there are no curves, or none were left."""
    resolved: ResolvedSpec | None = None
    digests: Mapping[str, str] = field(default_factory=dict)
    """What was digested to its digest: the batches of the reference, the final states."""


def overall(records: Iterable[CheckRecord]) -> Verdict:
    """Return the verdict over all checks: the worst one; `empty` if nothing was compared."""
    verdicts = {record.verdict for record in records}
    for verdict in ("crashed", "broken", "inconclusive", "empty", "holds"):
        if verdict in verdicts:
            return verdict
    return "empty"
