"""The agreement of two curves of different sides, judged by the criterion of their precision."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

from parity.checks import (
    ENVELOPE_LIMIT,
    FLOAT64_LIMIT,
    FLOAT64_NOISE_FLOOR,
    CurveGap,
    CurveVerdict,
    curve_gap,
    digest_batches,
    judge_curve,
    losses,
    trace,
)
from parity.contract import Divergence, first_divergence
from parity.reference.across.curves import EXACT, StepCurve
from parity.reference.across.envelopes import Envelope
from parity.reference.suspects import SUSPECTS
from parity.results import CheckRecord, Criterion, Validations, Verdict
from parity.spec import Precision, RunSpec

__all__ = ["Agreement", "agree"]


@dataclass(frozen=True, kw_only=True)
class Agreement:
    """The verdict on two curves of different sides, and the figures it rests on."""

    verdict: Verdict
    criterion: Criterion
    gap: CurveGap
    multiple: float | None = None
    """Smallest multiple of the envelope that would have passed."""
    first: Divergence | None = None
    suspects: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    envelope: Mapping[int, float] | None = None
    """Step to half-width of the measured envelope; None where none was measured."""
    allowed: Mapping[int, float] | None = None
    """Step to the largest difference of the loss that passes; None where an earlier criterion decided."""

    def record(
        self,
        name: str,
        spec: RunSpec,
        sides: tuple[str, ...],
        began: float,
        curves: tuple[StepCurve, StepCurve],
        labels: tuple[str, str],
        handovers: tuple[int, ...] = (),
        validations: Validations | None = None,
    ) -> CheckRecord:
        """Return the record of a check that rests on this agreement.

        Args:
            name: The check.
            spec: The run that was checked.
            sides: Sides in the order in which they trained.
            began: `time.perf_counter()` at the begin of the check.
            curves: Both curves over all steps, the reference first.
            labels: What the two are called.
            handovers: Steps at which the second run changed sides.
            validations: The validations of both that are shown.
        """
        return CheckRecord.of(
            name,
            spec.name,
            spec.precision,
            sides,
            self.verdict,
            began=began,
            criterion=self.criterion,
            steps_compared=self.gap.steps,
            max_abs_diff=self.gap.max_abs,
            max_rel_diff=self.gap.max_rel,
            envelope_multiple=self.multiple,
            first_divergence=self.first,
            suspects=self.suspects,
            notes=self.notes,
            curves=trace(
                *curves,
                labels,
                envelope=self.envelope,
                allowed=self.allowed,
                keep=(self.first.step if self.first else None,),
                handovers=handovers,
                validations=validations,
            ),
            digests={"batches": digest_batches(curves[0])},
        )


def agree(
    a: StepCurve,
    b: StepCurve,
    precision: Precision,
    *,
    floor: Callable[[], float],
    envelope: Callable[[], Envelope],
) -> Agreement:
    """Compare two curves of different sides.

    Args:
        a: The curve that counts as the reference.
        b: The other one.
        precision: Decides the criterion: float64, or the measured envelope.
        floor: Measures the float64 noise floor of the spec; asked for in float64 only.
        envelope: Measures the envelope over the steps of the reference from step 1; asked for below float64 only.
    """
    gap = curve_gap(losses(a), losses(b))
    criterion: Criterion = "float64" if precision == "float64" else "envelope"
    judged = partial(Agreement, criterion=criterion, gap=gap)
    if not gap.steps:
        return judged(verdict="empty", notes=("no step was compared",))
    exact = first_divergence(a, b, EXACT)
    if exact is not None:
        note = f"{exact.quantity} of step {exact.step} is {exact.got}, was {exact.expected}"
        return judged(verdict="broken", first=exact, suspects=SUSPECTS[exact.quantity], notes=(note,))
    for step, record in a.items():
        if not record.skipped and not math.isfinite(record.loss):
            both = not math.isfinite(b[step].loss)
            note = f"the loss of step {step} is {record.loss}: the run itself diverged"
            return judged(verdict="inconclusive" if both else "broken", first=_loss(a, b, step), notes=(note,))
    found = judge_curve(
        losses(a),
        losses(b),
        precision,
        floor=floor,
        width=lambda steps: envelope().width[[step - 1 for step in steps]],
    )
    if precision == "float64":
        return _by_float64(a, b, gap, found)
    return _by_envelope(a, b, gap, found, envelope(), ENVELOPE_LIMIT[precision])


def _by_float64(a: StepCurve, b: StepCurve, gap: CurveGap, found: CurveVerdict) -> Agreement:
    judged = partial(Agreement, criterion="float64", gap=gap, allowed=found.allowed)
    if found.chaotic:
        limit = f"{FLOAT64_NOISE_FLOOR:.0e}"
        note = f"the spec's own noise floor {found.floor:.1e} is not below {limit}: too chaotic to judge"
        return judged(verdict="inconclusive", notes=(note,))
    if found.first is None:
        return judged(verdict="holds", notes=(f"noise floor {found.floor:.1e}",))
    note = f"loss differs by {gap.max_rel:.2e} relative, more than {FLOAT64_LIMIT:.0e}: a semantic difference"
    return judged(verdict="broken", first=_loss(a, b, found.first), suspects=_stage(a, found.first), notes=(note,))


def _by_envelope(
    a: StepCurve, b: StepCurve, gap: CurveGap, found: CurveVerdict, measured: Envelope, limit: float
) -> Agreement:
    judged = partial(
        Agreement,
        criterion="envelope",
        gap=gap,
        multiple=found.multiple,
        envelope=found.envelope,
        allowed=found.allowed,
    )
    if found.chaotic:
        note = "a perturbed run diverged: the envelope is infinite and judges nothing"
        return judged(verdict="inconclusive", notes=(note,))
    note = f"{found.multiple:.2g} times the envelope of {measured.seeds} seeds on each of {', '.join(measured.sides)}"
    if found.first is None:
        return judged(verdict="holds", notes=(note,))
    notes = (f"{note}, limit {limit:g}",)
    return judged(verdict="broken", first=_loss(a, b, found.first), suspects=_stage(a, found.first), notes=notes)


def _stage(a: StepCurve, first: int) -> tuple[str, ...]:
    """Name what a cross-side difference points to: the forward pass at the first step, the update after it."""
    return ("model.params", "rng") if first == min(a) else ("optimizer", "model.buffers")


def _loss(a: StepCurve, b: StepCurve, step: int) -> Divergence:
    return Divergence(step=step, quantity="loss", expected=a[step].loss, got=b[step].loss)
