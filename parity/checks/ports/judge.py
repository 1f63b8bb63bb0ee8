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
    FLOAT64_LIMIT,
    FLOAT64_NOISE_FLOOR,
    CurveGap,
    CurveVerdict,
    curve_gap,
    is_near,
    judge_curve,
)
from parity.checks.noise import half_width, spread_of
from parity.checks.ports.arrays import PortDifference, judge_array, rank_of
from parity.checks.ports.noise import DIVERGED, Noise
from parity.checks.ports.series import Series
from parity.contract import Precision
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
               precision: Precision, steps: Sequence[int]) -> Judged:  # fmt: skip
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


def _judge_curve(out: Judged, a: Series, b: Series, curve: Curve, noise: Noise, precision: Precision,
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
    if curve.component == "loss":
        out.gap = curve_gap({s: x[s] for s in both}, {s: y[s] for s in both})
    found = _by_criterion(x, y, both, curve, noise, precision)
    if found is None:
        return
    if curve.component == "loss":
        out.multiple = found.multiple
        if found.chaotic:
            out.notes.append(
                DIVERGED
                if found.floor is None
                else f"one unit in the last place at the start moves the loss by {found.floor:.1e}, not below "
                f"{FLOAT64_NOISE_FLOOR:.0e}: too chaotic to judge; fewer steps or a lower rate help"
            )
            out.verdict = "inconclusive"
    if found.first is not None:
        step, limit = found.first, found.allowed[found.first]
        apart = spread_of(x[step], y[step])
        out.differences.append(
            PortDifference(curve.component, curve.a, curve.b, step, repr(x[step]), repr(y[step]),
                           apart / max(limit, 1e-300), apart / max(abs(x[step]), 1e-300))
        )  # fmt: skip


def _by_criterion(x: Mapping[int, float], y: Mapping[int, float], steps: Sequence[int], curve: Curve, noise: Noise,
                  precision: Precision) -> CurveVerdict | None:  # fmt: skip
    """Compare a curve by the criterion of the precision; None where below float64 no noise was measured."""
    if precision != "float64" and not noise.sides:
        return None
    values = np.array([x[step] for step in steps])
    moved = noise.curve((curve.a, curve.b), steps)
    loss = curve.component == "loss"

    def floor() -> float:
        if not loss:  # the loss alone says whether a run is too chaotic
            return 0.0
        return float((moved / np.maximum(np.abs(values), 1e-300)).max(initial=0.0))

    width = half_width(moved, values)
    return judge_curve(x, y, precision, floor=floor, width=lambda _: width, limit=None if loss else 1.0)


def _judge_rates(
    out: Judged, x: Mapping[int, float], y: Mapping[int, float], curve: Curve, precision: Precision
) -> None:
    """Compare learning rates; one side may keep the rate it used last, the other the one it uses next."""
    limit = FLOAT64_LIMIT if precision == "float64" else 2.0**-22
    best: tuple[int, int] | None = None
    for shift in (0, 1, -1):
        both = [s for s in sorted(x) if s + shift in y and s > min(x, default=0) and s + shift > min(y, default=0)]
        bad = [s for s in both if not is_near(x[s], y[s + shift], limit)]
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
