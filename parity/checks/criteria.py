"""The criteria by which two curves count as equal: one table of tolerances, each with its reason, and one judge."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from parity.checks.noise import distance
from parity.contract import Precision

__all__ = [
    "ENVELOPE_LIMIT",
    "FLOAT64_LIMIT",
    "FLOAT64_NOISE_FLOOR",
    "CurveGap",
    "CurveVerdict",
    "curve_gap",
    "envelope_multiple",
    "is_near",
    "judge_curve",
]

FLOAT64_LIMIT = 1e-12
"""Largest relative difference of the loss, float64, across sides. Clean presets stay below 4e-14 over 1,000 steps; a
LayerNorm epsilon of 1e-6 for 1e-5, which float32 cannot show, is 6e-7 at the first step."""

FLOAT64_NOISE_FLOOR = 1e-13
"""Largest relative change that one unit in the last place at the start may grow to, for float64 to be conclusive."""

ENVELOPE_LIMIT: Mapping[Precision, float] = {"float32": 3.0, "bfloat16": 3.0, "float16": 3.0}
"""Largest multiple of the measured envelope that passes. Clean twins and handovers of the presets reach at most 1.0;
faulty ports that show at all start at 3.8, most at 5 to 400,000. docs/method.md has the table; what it shows to be
invisible below float64 is what the float64 criterion is for."""


@dataclass(frozen=True, kw_only=True)
class CurveGap:
    """The gap between two loss curves, over the steps that both have."""

    steps: int
    max_abs: float
    max_rel: float
    worst_step: int
    """Step of the largest relative difference; 0 when nothing was compared."""


def curve_gap(a: Mapping[int, float], b: Mapping[int, float]) -> CurveGap:
    """Return the gap between two curves over the steps that both have.

    Args:
        a: Step to loss of the reference.
        b: Step to loss of the other curve.

    Numerics: float64; a NaN in one curve only is infinitely far, and a relative gap is taken to the reference.
    """
    steps = sorted({*a} & {*b})
    if not steps:
        return CurveGap(steps=0, max_abs=0.0, max_rel=0.0, worst_step=0)
    left, right = (np.array([curve[s] for s in steps]) for curve in (a, b))
    gap = distance(left, right)
    scale = np.maximum(np.abs(left), np.finfo(np.float64).tiny)
    with np.errstate(over="ignore"):  # a gap from a loss of zero is infinitely large, relatively
        relative = gap / np.where(np.isfinite(scale), scale, 1.0)
    return CurveGap(
        steps=len(steps),
        max_abs=float(gap.max()),
        max_rel=float(relative.max()),
        worst_step=steps[int(relative.argmax())],
    )


def envelope_multiple(a: Sequence[float], b: Sequence[float], width: NDArray[np.float64]) -> float:
    """Return the largest deviation of two curves as a multiple of an envelope: the smallest limit that would pass.

    Args:
        a: Losses of one run.
        b: Losses of the other, at the same steps.
        width: Half-width of the envelope at each step, shape [steps].

    Example:
        >>> envelope_multiple([1.0, 0.5], [1.0, 0.75], np.array([0.125, 0.125]))
        2.0
    """
    gap = distance(np.asarray(a, np.float64), np.asarray(b, np.float64))
    return float((gap / width).max()) if len(gap) else 0.0


@dataclass(frozen=True, kw_only=True)
class CurveVerdict:
    """What the criterion of a precision says of two curves at the steps that both have."""

    allowed: Mapping[int, float]
    """Step to the largest difference that passes."""
    first: int | None = None
    """First step whose difference does not pass; None if all do, or if noise forbids a verdict."""
    floor: float | None = None
    """The measured noise floor, float64 only."""
    chaotic: bool = False
    """Whether noise forbids a verdict: a floor that is too high, or an envelope that is infinite."""
    multiple: float | None = None
    """Smallest multiple of the envelope that would have passed; None in float64."""
    envelope: Mapping[int, float] | None = None
    """Step to half-width of the envelope; None in float64."""


def judge_curve(
    a: Mapping[int, float],
    b: Mapping[int, float],
    precision: Precision,
    *,
    floor: Callable[[], float],
    width: Callable[[Sequence[int]], NDArray[np.float64]],
    limit: float | None = None,
) -> CurveVerdict:
    """Compare two curves by the criterion of their precision.

    Args:
        a: Step to value of the reference.
        b: The same of the other; steps that one of the two lacks are left out.
        precision: Decides the criterion: 1e-12 relative in float64, a multiple of the envelope below.
        floor: Returns the largest relative change of the reference when its start moves by one unit in the last
            place; asked for in float64 only.
        width: Returns the half-width of the envelope at steps, shape [steps]; asked for below float64 only.
        limit: Multiple of the envelope that passes; None for that of the precision.

    Numerics: differences as of `noise.distance`.
    """
    steps = sorted({*a} & {*b})
    left, right = (np.array([curve[step] for step in steps], np.float64) for curve in (a, b))
    gap = distance(left, right)
    if precision == "float64":
        allowed = FLOAT64_LIMIT * np.abs(left)
        measured = floor()
        doubt = not measured < FLOAT64_NOISE_FLOOR
        first = None if doubt else _first_beyond(steps, gap, allowed)
        return CurveVerdict(allowed=_by_step(steps, allowed), first=first, floor=measured, chaotic=doubt)
    half = width(steps)
    allowed = (ENVELOPE_LIMIT[precision] if limit is None else limit) * half
    doubt = not np.isfinite(half).all()
    return CurveVerdict(
        allowed=_by_step(steps, allowed),
        first=None if doubt else _first_beyond(steps, gap, allowed),
        chaotic=doubt,
        multiple=envelope_multiple(left.tolist(), right.tolist(), half),
        envelope=_by_step(steps, half),
    )


def is_near(reference: float, other: float, limit: float) -> bool:
    """Return whether a value differs from another by at most a fraction of it; nothing is near infinity or NaN.

    Example:
        >>> is_near(2.0, 2.5, 0.25), is_near(float("inf"), 1.0, 0.25)
        (True, False)
    """
    gap = abs(reference - other)
    return gap < float("inf") and gap <= limit * abs(reference)


def _first_beyond(steps: Sequence[int], gap: NDArray[np.float64], allowed: NDArray[np.float64]) -> int | None:
    """Return the first step whose difference is not within what passes; two NaNs are no difference.

    An infinite reference would allow any difference: nothing is near it but itself.
    """
    beyond = np.flatnonzero(~((gap <= allowed) & np.isfinite(gap) | (gap == 0.0)))
    return steps[int(beyond[0])] if beyond.size else None


def _by_step(steps: Sequence[int], values: NDArray[np.float64]) -> dict[int, float]:
    return dict(zip(steps, values.tolist(), strict=True))
