"""The judge of two trainers: from their values at the same steps to a verdict, and the first thing that differs.

The loss decides by the criterion of the precision, every array beside it by its own measured noise too; what differs
first in the order in which a step computes things (batch, loss, moments, parameters) is named.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from parity.checks.criteria import (
    FLOAT64_LIMIT,
    FLOAT64_NOISE_FLOOR,
    CurveGap,
    CurveVerdict,
    curve_gap,
    is_near,
    judge_curve,
)
from parity.checks.noise import FLOOR_ULPS, distance, half_width, spread_of, ulp
from parity.checks.ports.noise import DIVERGED, Noise
from parity.checks.ports.series import Series, scalar_of
from parity.contract import Precision
from parity.mapping import Pair
from parity.results import Verdict

__all__ = ["ARRAY_LIMIT", "Curve", "Judged", "PortDifference", "exact", "judge_pair"]

ARRAY_LIMIT = 10.0
"""Largest multiple of its measured noise by which an array may differ below float64. The arrays of clean
ports reach 0.9 (NumPy) and 1.1 (PyTorch and NNX, rates and bias correction in float64); with Optax's bias correction,
which is float32, 9.9. Of the faults in tests/ports that no curve shows, the least reaches 320."""

ORDER = ("data.batch", "loss", "scaler", "optimizer.first_moment", "optimizer.momentum", "optimizer.second_moment",
         "optimizer", "schedule", "model.params", "model.buffers", "ema")  # fmt: skip
"""The order in which a step computes things: what comes first at the first bad step is the cause."""


@dataclass(frozen=True)
class PortDifference:
    """Something that is not the same on both sides."""

    component: str
    path: str
    other: str
    """The path on the other side."""
    step: int
    expected: str
    got: str
    amount: float
    """As a multiple of what passes."""
    relative: float = math.nan
    """Relative to the expected value; of an array, to its largest element."""


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


def judge_pair(a: Series, b: Series, pairs: Sequence[Pair], curves: Sequence[Curve], noises: Iterable[Noise],
               precision: Precision, steps: Sequence[int]) -> tuple[Judged, Noise]:  # fmt: skip
    """Compare two trainers at the steps that both have, by as much noise as decides.

    Args:
        a: Values of the reference.
        b: Values of the other.
        pairs: The arrays.
        curves: The numbers; the first of component `loss` decides by the criterion of the precision.
        noises: How far one unit in the last place moves things, measured by ever more runs, at least once: more of
            them only let more pass, so the first that does not leave the two broken ends it.
        precision: Type in which the products are computed.
        steps: Completed steps to compare.

    Returns:
        The verdict, and the noise that it rests on.
    """
    judged, noise = Judged(), Noise()
    for noise in noises:
        judged = _judge(a, b, pairs, curves, noise, precision, steps)
        if judged.verdict != "broken" and noise.sides:  # without a side there may be a later one that can be nudged
            break
    return judged, noise


def _judge(a: Series, b: Series, pairs: Sequence[Pair], curves: Sequence[Curve], noise: Noise,
           precision: Precision, steps: Sequence[int]) -> Judged:  # fmt: skip
    out = Judged(compared=len(steps))
    for curve in curves:
        _judge_curve(out, a, b, curve, noise, precision, steps)
    for pair in pairs:
        for step in steps:
            found = _judge_array(a, b, pair, noise, precision, step)
            if found is None:
                continue
            if found.amount > 1.0:
                out.differences.append(found)
                break
            out.arrays = max(out.arrays or 0.0, found.amount)
    if out.differences and out.verdict == "holds":
        out.verdict = "broken"
    first = min((one.step for one in out.differences), default=0)
    out.differences.sort(key=lambda one: (one.step != first, one.step, _rank_of(one.component), one.path))
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


def _judge_array(
    a: Series, b: Series, pair: Pair, noise: Noise, precision: Precision, step: int
) -> PortDifference | None:
    """Return by how much two arrays differ at a step; None where they were not kept, or nothing says what may differ.

    Args:
        a: Values of the reference.
        b: Values of the other.
        pair: The paths of the array on both sides, and how its axes go over.
        noise: How far one unit in the last place at the start moves things.
        precision: Type in which the products are computed.
        step: Completed steps.

    Numerics: in float64 1e-12 of the largest element, or three times the measured noise of the leaf where that is
    more: leaves whose gradient is zero in exact arithmetic hold nothing but noise. Below, `ARRAY_LIMIT` times the
    noise, which counts as four units in the last place of the largest element at least.
    """
    one, two = a.values.get(step, {}).get(pair.a), b.values.get(step, {}).get(pair.b)
    if one is None or two is None:
        return None
    expected, got = pair.carry(np.asarray(one, np.float64), np.shape(two)), np.asarray(two, np.float64)
    gap = spread_of(expected, got)
    scale = float(np.abs(expected[np.isfinite(expected)]).max(initial=0.0))
    moved = max(noise.leaf(pair.a, step), noise.leaf(pair.b, step))
    if precision == "float64":
        limit = max(FLOAT64_LIMIT * scale, 3.0 * moved)
    elif noise.sides:
        limit = ARRAY_LIMIT * max(moved, float(FLOOR_ULPS * ulp(np.array([scale]), precision)[0]))
    else:
        return None
    at = _worst_of(expected, got)
    return _difference(pair, step, at, expected, got, _share(gap, limit), gap / max(scale, 1e-300))


def _difference(pair: Pair, step: int, at: tuple[int, ...], expected: NDArray[Any], got: NDArray[Any],
                amount: float, relative: float) -> PortDifference:  # fmt: skip
    """Return a difference of two arrays, shown by the element at an index."""
    left, right = (f"[{', '.join(map(str, at))}] {scalar_of(values[at])!r}" for values in (expected, got))
    return PortDifference(pair.component, pair.a, pair.b, step, left, right, amount, relative)


def _worst_of(expected: NDArray[np.float64], got: NDArray[np.float64]) -> tuple[int, ...]:
    """Return the index of the largest difference; elements that are NaN on both sides, or equal infinities, agree."""
    flat = int(np.argmax(distance(expected, got)))
    return tuple(int(one) for one in np.unravel_index(flat, expected.shape))


def exact(a: Series, b: Series, pairs: Sequence[Pair], step_a: int, step_b: int) -> list[PortDifference]:
    """Return the arrays that are not equal, without any tolerance, where a run starts or is taken over.

    Args:
        a: Values of the reference.
        b: Values of the other.
        pairs: The arrays; one that a side did not keep at its step is left out.
        step_a: Completed steps of the reference.
        step_b: Completed steps of the other.

    Returns:
        The differences: those of the model first, then in the order in which a step computes things.

    Numerics: elements of one dtype are compared bit by bit, so that 0.0 is not -0.0; those of two as numbers, where
    NaN equals NaN.
    """
    found = []
    for pair in pairs:
        one, two = a.values.get(step_a, {}).get(pair.a), b.values.get(step_b, {}).get(pair.b)
        if one is None or two is None:
            continue
        expected, got = pair.carry(np.asarray(one), np.shape(two)), np.asarray(two)
        unlike = _unlike(expected, got)
        if unlike.any():
            with np.errstate(invalid="ignore"):  # a signalling NaN becomes a quiet one
                wide = np.asarray(expected, np.float64), np.asarray(got, np.float64)
            at = _worst_of(*wide)
            if not unlike[at]:  # all that differ are equal as numbers
                at = tuple(int(one) for one in np.argwhere(unlike)[0])
            gap = spread_of(*wide)
            relative = gap / max(float(np.abs(wide[0]).max(initial=0.0)), 1e-300)
            found.append(_difference(pair, step_b, at, expected, got, math.inf, relative))
    return sorted(found, key=lambda one: (not one.component.startswith("model"), _rank_of(one.component), one.path))


def _unlike(expected: NDArray[Any], got: NDArray[Any]) -> NDArray[np.bool_]:
    """Return which elements are not equal; see `exact`."""
    if expected.dtype != got.dtype:
        return np.asarray((expected != got) & ~((expected != expected) & (got != got)))
    bits = [np.ascontiguousarray(x).reshape(*x.shape, 1).view(np.uint8) for x in (expected, got)]
    return np.asarray((bits[0] != bits[1]).any(axis=-1))


def _share(gap: float, limit: float) -> float:
    """Return a difference as a share of what passes; nothing passes where nothing may differ."""
    return gap / limit if limit else (0.0 if gap == 0.0 else math.inf)


def _rank_of(component: str) -> int:
    """Return the place of a component in the order in which a step computes things."""
    return next((at for at, one in enumerate(ORDER) if component.startswith(one)), len(ORDER))
