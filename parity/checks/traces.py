"""Traces: the curves of two runs as a record keeps them, thinned by one rule where they are long."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence

import xxhash

from parity.contract import StepRecord, Validation, same
from parity.results import Curves, RecordedSeries, SeriesPair, Validations

__all__ = [
    "MOST_STEPS",
    "RESUMED_LABELS",
    "digest_batches",
    "digest_leaves",
    "losses",
    "trace",
    "trace_validations",
]

MOST_STEPS = 400
"""Runs up to this length are kept whole."""

BUCKETS = 80
"""A longer run is cut into this many stretches; of each stay its first step, both extremes of the loss, the largest
gradient norm and the largest difference: at most five, so that `MOST_STEPS` holds for these too."""

RESUMED_LABELS = ("uninterrupted", "killed and resumed")
"""What the two runs of a resume check are called."""

Steps = Mapping[int, StepRecord]


def trace(
    reference: Steps,
    other: Steps,
    labels: tuple[str, str],
    *,
    envelope: Mapping[int, float] | None = None,
    allowed: Mapping[int, float] | None = None,
    keep: Iterable[int | None] = (),
    kills: tuple[int, ...] = (),
    resumes: tuple[int, ...] = (),
    handovers: tuple[int, ...] = (),
    validations: Validations | None = None,
) -> Curves | None:
    """Return the trace of two curves, or None where there is no step.

    Args:
        reference: Step to record of the run that counts as the reference.
        other: The same of the run compared with it.
        labels: What the two are called.
        envelope: Step to half-width of the measured envelope.
        allowed: Step to the largest difference that passes.
        keep: Steps that stay however long the run is; so do the first one that differs, and those below.
        kills: Steps that the other run had recorded when it was killed.
        resumes: Steps that it resumed from.
        handovers: Steps at which it changed sides.
        validations: The validations of both, as `trace_validations` returns them.
    """
    every = sorted({*reference, *other})
    if not every:
        return None
    gap = {step: _difference(reference.get(step), other.get(step)) for step in every}
    parted = next((step for step in every if gap[step] != 0.0), None)
    wanted = {step for step in (*keep, *kills, *resumes, *handovers, parted) if step is not None}
    steps = tuple(_thinned(every, reference, other, gap, wanted))

    def pair(value: Callable[[StepRecord], float]) -> SeriesPair:
        return _series(steps, reference, value), _series(steps, other, value)

    return Curves(
        labels=labels,
        total=len(every),
        steps=steps,
        loss=pair(lambda record: record.loss),
        lr=pair(lambda record: record.lr),
        grad_norm=pair(lambda record: record.grad_norm),
        loss_scale=pair(lambda record: record.loss_scale),
        difference=tuple(gap[step] for step in steps),
        envelope=None if envelope is None else tuple(envelope.get(step) for step in steps),
        allowed=None if allowed is None else tuple(allowed.get(step) for step in steps),
        skipped=tuple(step for step in steps if step in reference and reference[step].skipped),
        kills=kills,
        resumes=resumes,
        handovers=handovers,
        validations=validations,
    )


def trace_validations(reference: Mapping[int, Validation], other: Mapping[int, Validation]) -> Validations | None:
    """Return the validations of two runs as a record keeps them, or None where there is none.

    Args:
        reference: Step to validation of the run that counts as the reference.
        other: The same of the run compared with it.
    """
    steps = tuple(sorted({*reference, *other}))
    if not steps:
        return None
    first, second = (tuple(run[s].value if s in run else None for s in steps) for run in (reference, other))
    metric = next(iter((reference or other).values())).metric
    return Validations(metric=metric, steps=steps, value=(first, second))


def losses(curve: Steps) -> dict[int, float]:
    """Return step to loss."""
    return {step: record.loss for step, record in curve.items()}


def digest_batches(curve: Steps) -> str:
    """Return 32 hex digits over the digests of the batches, in step order."""
    return xxhash.xxh3_128_hexdigest(json.dumps([curve[step].batch for step in sorted(curve)]).encode())


def digest_leaves(leaves: Mapping[str, str]) -> str:
    """Return 32 hex digits over the names and digests of all leaves of a state."""
    return xxhash.xxh3_128_hexdigest(json.dumps(dict(leaves), sort_keys=True).encode())


def _difference(a: StepRecord | None, b: StepRecord | None) -> float | None:
    if a is None or b is None:
        return None
    return 0.0 if same(a.loss, b.loss) else b.loss - a.loss  # two NaNs, two infinities: no difference


def _series(steps: Sequence[int], curve: Steps, value: Callable[[StepRecord], float]) -> RecordedSeries:
    return tuple(value(curve[step]) if step in curve else None for step in steps)


def _thinned(
    every: list[int], reference: Steps, other: Steps, gap: Mapping[int, float | None], wanted: set[int]
) -> list[int]:
    """Return the steps that stay: all of a short run, those of each stretch of a long one."""
    if len(every) <= MOST_STEPS:
        return every
    width = math.ceil(len(every) / BUCKETS)
    kept = {every[-1]} | {step for step in wanted if reference.get(step) or other.get(step)}
    for begin in range(0, len(every), width):
        bucket = every[begin : begin + width]
        records = {step: record for step in bucket if (record := reference.get(step) or other.get(step))}
        by_loss = sorted(bucket, key=lambda step: _size(records[step].loss))
        kept |= {bucket[0], by_loss[0], by_loss[-1]}
        kept.add(max(bucket, key=lambda step: _size(records[step].grad_norm)))
        kept.add(max(bucket, key=lambda step: _size(abs(gap[step] or 0.0))))
    return sorted(kept)


def _size(value: float) -> float:
    """Return a value to order by: what is not a number counts as the largest."""
    return math.inf if math.isnan(value) else value
