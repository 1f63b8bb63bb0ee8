"""Arrays of two trainers: what may differ between them, and what is the cause of the rest."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from parity.checks.criteria import FLOAT64_LIMIT
from parity.checks.noise import FLOOR_ULPS, distance, spread_of, ulp
from parity.checks.ports.noise import Noise
from parity.checks.ports.series import Series, scalar_of
from parity.contract import Precision
from parity.mapping import Pair

__all__ = ["ARRAY_LIMIT", "PortDifference", "exact", "judge_array", "rank_of"]

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


def judge_array(
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
    at = worst_of(expected, got)
    return _difference(pair, step, at, expected, got, _share(gap, limit), gap / max(scale, 1e-300))


def _difference(pair: Pair, step: int, at: tuple[int, ...], expected: NDArray[Any], got: NDArray[Any],
                amount: float, relative: float) -> PortDifference:  # fmt: skip
    """Return a difference of two arrays, shown by the element at an index."""
    left, right = (f"[{', '.join(map(str, at))}] {scalar_of(values[at])!r}" for values in (expected, got))
    return PortDifference(pair.component, pair.a, pair.b, step, left, right, amount, relative)


def worst_of(expected: NDArray[np.float64], got: NDArray[np.float64]) -> tuple[int, ...]:
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
            at = worst_of(*wide)
            if not unlike[at]:  # all that differ are equal as numbers
                at = tuple(int(one) for one in np.argwhere(unlike)[0])
            gap = spread_of(*wide)
            relative = gap / max(float(np.abs(wide[0]).max(initial=0.0)), 1e-300)
            found.append(_difference(pair, step_b, at, expected, got, math.inf, relative))
    return sorted(found, key=lambda one: (not one.component.startswith("model"), rank_of(one.component), one.path))


def _unlike(expected: NDArray[Any], got: NDArray[Any]) -> NDArray[np.bool_]:
    """Return which elements are not equal; see `exact`."""
    if expected.dtype != got.dtype:
        return np.asarray((expected != got) & ~((expected != expected) & (got != got)))
    bits = [np.ascontiguousarray(x).reshape(*x.shape, 1).view(np.uint8) for x in (expected, got)]
    return np.asarray((bits[0] != bits[1]).any(axis=-1))


def _share(gap: float, limit: float) -> float:
    """Return a difference as a share of what passes; nothing passes where nothing may differ."""
    return gap / limit if limit else (0.0 if gap == 0.0 else math.inf)


def rank_of(component: str) -> int:
    """Return the place of a component in the order in which a step computes things."""
    return next((at for at, one in enumerate(ORDER) if component.startswith(one)), len(ORDER))
