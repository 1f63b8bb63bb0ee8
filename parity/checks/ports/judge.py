"""The judge of two trainers: from their values at the same steps to a verdict, and the first thing that differs.

The loss decides by the criterion of the precision, every array beside it by its own measured noise too; what differs
first in the order in which a step computes things (batch, loss, moments, parameters) is named.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from parity.checks.criteria import (
    ENVELOPE_LIMIT,
    FLOAT64_LIMIT,
    FLOAT64_NOISE_FLOOR,
    FLOOR_ULPS,
    WINDOW,
    envelope_multiple,
    ulp,
)
from parity.checks.gap import CurveGap, curve_gap
from parity.checks.ports.arrays import PortDifference, judge_array, rank_of
from parity.checks.ports.noise import Noise, spread_of
from parity.checks.ports.series import Series
from parity.checks.running import Compute
from parity.mapping import Pair
from parity.results import Verdict

__all__ = ["Curve", "Judged", "judge_pair"]


@dataclass(frozen=True)
class Curve:
    """A number of the trainer, the same of its port."""

    a: str
    b: str
    component: str


@dataclass
class Judged:
    """The verdict, and the figures it rests on."""

    verdict: Verdict = "holds"
    gap: CurveGap = field(default_factory=lambda: curve_gap({}, {}))
    multiple: float | None = None
    differences: list[PortDifference] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    compared: int = 0
    arrays: float | None = None
    """Largest difference of an array as a share of what passes, of those that passed; None where none was judged."""


def judge_pair(a: Series, b: Series, pairs: Sequence[Pair], curves: Sequence[Curve], noise: Noise,
               precision: Compute, steps: Sequence[int]) -> Judged:  # fmt: skip
    """Compare two trainers at the steps that both have.

    Args:
        a: Values of the reference.
        b: Values of the other.
        pairs: The arrays.
        curves: The numbers; the first of component `loss` decides by the criterion of the precision.
        noise: How far one unit in the last place moves things.
        precision: Type in which the products are computed.
        steps: Completed steps to compare.
    """
    out = Judged(compared=len(steps))
    for curve in curves:
        _judge_curve(out, a, b, curve, noise, precision, steps)
    for pair in pairs:
        for step in steps:
            found = judge_array(a, b, pair, noise, precision, step)
            if found is None:
                continue
            if found.amount > 1.0:
                out.differences.append(found)
                break
            out.arrays = max(out.arrays or 0.0, found.amount)
    if out.differences and out.verdict == "holds":
        out.verdict = "broken"
    first = min((one.step for one in out.differences), default=0)
    out.differences.sort(key=lambda one: (one.step != first, one.step, rank_of(one.component), one.path))
    return out


def _judge_curve(out: Judged, a: Series, b: Series, curve: Curve, noise: Noise, precision: Compute,
                 steps: Sequence[int]) -> None:  # fmt: skip
    x, y = ({s: v for s, v in series.curve(path).items() if s in set(steps)} for series, path in
            ((a, curve.a), (b, curve.b)))  # fmt: skip
    both = sorted(x.keys() & y.keys())
    if curve.component == "schedule.lr":
        _judge_rates(out, x, y, curve, precision)
        return
    lost = [s for s in both if math.isfinite(x[s]) != math.isfinite(y[s])]
    if not lost and any(not math.isfinite(x[s]) for s in both):
        step = next(s for s in both if not math.isfinite(x[s]))
        out.notes.append(f"{curve.a} is {x[step]} at step {step} on both sides: after that nothing can be judged")
        out.verdict = "inconclusive"
        return
    gap = curve_gap({s: x[s] for s in both}, {s: y[s] for s in both})
    if curve.component == "loss":
        out.gap = gap
    limits = _limits(out, x, both, curve, noise, precision)
    if limits is None:
        return
    if precision != "float64" and curve.component == "loss":
        out.multiple = envelope_multiple([x[s] for s in both], [y[s] for s in both], np.array(limits))
        limits = [ENVELOPE_LIMIT[precision] * width for width in limits]
    for step, limit in zip(both, limits, strict=True):
        distance = spread_of(x[step], y[step])
        if not distance <= limit:
            out.differences.append(
                PortDifference(curve.component, curve.a, curve.b, step, repr(x[step]), repr(y[step]),
                           distance / max(limit, 1e-300), distance / max(abs(x[step]), 1e-300))
            )  # fmt: skip
            return


def _limits(out: Judged, x: Mapping[int, float], steps: Sequence[int], curve: Curve, noise: Noise,
            precision: Compute) -> list[float] | None:  # fmt: skip
    """Return what a curve may differ by at each step, or the envelope below float64; None where that is not known."""
    values = np.array([x[step] for step in steps])
    window = 1 if precision == "float64" else WINDOW  # of a loss that falls, the first steps say nothing of the last
    width = np.maximum(*(noise.curve(path, steps, window) for path in (curve.a, curve.b)))
    if precision == "float64":
        floor = float((width / np.maximum(np.abs(values), 1e-300)).max(initial=0.0))
        if curve.component == "loss" and not floor < FLOAT64_NOISE_FLOOR:
            out.notes.append(
                f"one unit in the last place at the start moves the loss by {floor:.1e}, not below "
                f"{FLOAT64_NOISE_FLOOR:.0e}: too chaotic to judge; fewer steps or a lower rate help"
            )
            out.verdict = "inconclusive"
            return None
        return list(FLOAT64_LIMIT * np.abs(values))
    if not noise.sides:
        return None
    return list(np.maximum(width, FLOOR_ULPS * ulp(values, "float32")))


def _judge_rates(
    out: Judged, x: Mapping[int, float], y: Mapping[int, float], curve: Curve, precision: Compute
) -> None:
    """Compare learning rates; one side may keep the rate it used last, the other the one it uses next."""
    limit = FLOAT64_LIMIT if precision == "float64" else 2.0**-22
    best: tuple[int, int] | None = None
    for shift in (0, 1, -1):
        both = [s for s in sorted(x) if s + shift in y and s > min(x, default=0) and s + shift > min(y, default=0)]
        bad = [s for s in both if not abs(x[s] - y[s + shift]) <= limit * abs(x[s])]
        if not bad:
            return
        if best is None or bad[0] > best[0]:
            best = bad[0], shift
    assert best is not None
    step, shift = best
    relative = abs(x[step] - y[step + shift]) / max(abs(x[step]), 1e-300)
    values = repr(x[step]), repr(y[step + shift])
    found = PortDifference(curve.component, curve.a, curve.b, step, *values, relative / limit, relative)
    out.differences.append(found)
