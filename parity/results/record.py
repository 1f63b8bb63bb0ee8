"""CheckRecord: the verdict of one check and the evidence for it. Checks compare and record; they draw nothing."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from parity.contract import Divergence, Precision

__all__ = [
    "EXIT_CODES",
    "VERDICTS",
    "CaseOutcome",
    "CheckRecord",
    "Criterion",
    "Curves",
    "LeafChange",
    "RecordedSeries",
    "ResolvedSpec",
    "SeriesPair",
    "Validations",
    "Verdict",
    "overall",
]

Verdict = Literal["holds", "broken", "crashed", "inconclusive", "empty"]

VERDICTS: tuple[Verdict, ...] = ("crashed", "broken", "inconclusive", "empty", "holds")
"""The worst first."""

EXIT_CODES: dict[Verdict, int] = {"holds": 0, "broken": 1, "crashed": 3, "inconclusive": 4, "empty": 5}
"""2 is usage. `empty`: nothing was compared."""

RecordedSeries = tuple[float | None, ...]
"""One value for each step shown; None where a run has no such step."""

SeriesPair = tuple[RecordedSeries, RecordedSeries]
"""A quantity of the run that counts as the reference, and of the one compared with it."""

Criterion = Literal["bitwise", "float64", "envelope"]
"""Criterion by which two curves are compared: equal bits, 1e-12 relative, or a multiple of the measured envelope."""


@dataclass(frozen=True, kw_only=True)
class Validations:
    """The validations of both runs."""

    metric: str
    """`accuracy` or `loss`."""
    steps: tuple[int, ...]
    value: SeriesPair


@dataclass(frozen=True, kw_only=True)
class Curves:
    """What a check compared, step by step; long runs are thinned (`parity.checks.traces` has the rule)."""

    labels: tuple[str, str]
    """What the two runs are called, the reference first."""
    total: int
    """Steps before thinning."""
    steps: tuple[int, ...]
    """Steps shown, ascending; every series below has one value for each."""
    loss: SeriesPair
    lr: SeriesPair
    """Learning rates used."""
    grad_norm: SeriesPair
    loss_scale: SeriesPair
    """Loss scales used; 1.0 without a scaler."""
    difference: RecordedSeries
    """Loss of the second run less that of the reference."""
    envelope: RecordedSeries | None = None
    """Half-width of the measured envelope; None under the other criteria."""
    allowed: RecordedSeries | None = None
    """Largest difference that passes; None where nothing but equal bits does."""
    skipped: tuple[int, ...] = ()
    """Steps shown whose update the reference's scaler withheld."""
    kills: tuple[int, ...] = ()
    """Steps the second run had recorded when it was killed."""
    resumes: tuple[int, ...] = ()
    """Steps it resumed from; 0 is the start."""
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
class LeafChange:
    """One leaf of a state that is not what it should be, and by how much."""

    where: str
    """Which two states were compared, in words: `restored at step 80 is not what was saved`."""
    leaf: str
    kind: str
    """`missing`, `extra`, `type`, `value`, or `order` or `schema` (of the digests)."""
    detail: str
    elements: int | None = None
    """Elements of the leaf; None where its values were not kept, as are the fields below."""
    differing: int | None = None
    """Elements whose bits differ."""
    max_abs: float | None = None
    """Largest absolute difference; NaN where one value is NaN and the other is not."""
    max_rel: float | None = None
    """Largest difference relative to the expected value; infinite where that is zero."""


@dataclass(frozen=True, kw_only=True)
class CaseOutcome:
    """One case of the table that specifies the checkpoint policy, and what became of it."""

    group: str
    rule: str
    """The rule that the group specifies, in words."""
    name: str
    events: int
    """Saves, restarts and other events after which the checkpoints on disk were compared."""
    found: str = ""
    """The first departure, in words; empty where the case holds."""


@dataclass(frozen=True, kw_only=True)
class CheckRecord:
    """One verdict and the evidence for it."""

    name: str
    """`resume`, `twins`, `handover`, `policy` or `curve`, with a direction or a name where there is one: `handover
    jax-torch`, `curve loss`."""
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
    advice: Mapping[str, str] = field(default_factory=dict)
    """Component among the suspects to what to change, in one sentence: the likeliest alone has one, as the others
    mostly follow from it."""
    notes: tuple[str, ...] = field(default=())
    """Findings, as sentences for people."""
    seconds: float = 0.0
    curves: Curves | None = None
    """What was compared, to be drawn; None where there are no curves."""
    resolved: ResolvedSpec | None = None
    digests: Mapping[str, str] = field(default_factory=dict)
    """Name to digest: of the batches of the reference, of the final states."""
    leaves: tuple[LeafChange, ...] = ()
    """Leaves that differ in the states that were compared first, those of the largest difference first."""
    cases: tuple[CaseOutcome, ...] = ()
    """Cases of the policy check, in the order of the table."""

    @classmethod
    def of(
        cls,
        name: str,
        spec: str,
        precision: Precision,
        sides: tuple[str, ...],
        verdict: Verdict,
        *,
        began: float | None = None,
        criterion: Criterion = "bitwise",
        steps_compared: int = 0,
        **found: Any,
    ) -> CheckRecord:
        """Return a record that says how long its check took.

        Args:
            name: The check.
            spec: Name of the run.
            precision: What the run computes in.
            sides: Sides that were checked.
            verdict: What the check found.
            began: `time.perf_counter()` at the begin of the check; None for a check that did not run.
            criterion: By what curves were compared.
            steps_compared: Steps that were compared.
            found: Further fields of the record.
        """
        return cls(
            name=name,
            spec=spec,
            precision=precision,
            sides=sides,
            verdict=verdict,
            criterion=criterion,
            steps_compared=steps_compared,
            seconds=0.0 if began is None else time.perf_counter() - began,
            **found,
        )


def overall(records: Iterable[CheckRecord]) -> Verdict:
    """Return the verdict over all checks: the worst one; `empty` if nothing was compared."""
    return min((record.verdict for record in records), key=VERDICTS.index, default="empty")
