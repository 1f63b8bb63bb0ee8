"""The measures behind every verdict: units in the last place, gaps, envelopes and their multiples."""

import math

import ml_dtypes
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from parity.checks import curve_gap, is_near, judge_curve
from parity.checks.criteria import (
    ENVELOPE_LIMIT,
    FLOAT64_LIMIT,
    FLOAT64_NOISE_FLOOR,
    envelope_multiple,
)
from parity.checks.noise import FLOOR_ULPS, envelope, ulp
from parity.spec import PRECISIONS, Precision
from tests.support.small import quick

DTYPES = {
    "float64": np.float64,
    "float32": np.float32,
    "bfloat16": ml_dtypes.bfloat16,
    "float16": np.float16,
}
each_precision = pytest.mark.parametrize("precision", PRECISIONS)


def samples(precision: Precision) -> np.ndarray:
    """Return values of a precision over all its binades: powers of two, their neighbours, subnormals."""
    info = ml_dtypes.finfo(DTYPES[precision])
    exponents = np.arange(int(info.minexp) - int(info.nmant), int(info.maxexp))
    powers = np.ldexp(1.0, exponents)
    generator = np.random.default_rng(0)
    values = np.concatenate([powers, powers * generator.uniform(1, 2, len(powers))])
    rounded = values.astype(DTYPES[precision])
    rounded = rounded[np.isfinite(rounded.astype(np.float64))]
    return np.concatenate([rounded, -rounded])


@each_precision
def test_an_ulp_is_numpy_s_spacing(precision: Precision) -> None:
    values = samples(precision)
    expected = np.spacing(np.abs(values)).astype(np.float64)  # of -2.0**k in half precision, NumPy's is halved
    np.testing.assert_array_equal(ulp(values.astype(np.float64), precision), expected)


@each_precision
def test_an_ulp_of_one_is_torch_s_eps_and_that_of_its_smallest_number_the_smallest_subnormal(
    precision: Precision,
) -> None:
    info = torch.finfo(getattr(torch, precision))
    smallest = info.tiny * info.eps
    found = ulp(np.array([1.0, -1.0, info.tiny, smallest]), precision)
    assert found.tolist() == [info.eps, info.eps, smallest, smallest]


@each_precision
def test_an_ulp_of_zero_is_the_smallest_subnormal(precision: Precision) -> None:
    info = torch.finfo(getattr(torch, precision))
    assert ulp(np.array([0.0, -0.0]), precision).tolist() == [info.tiny * info.eps] * 2


@each_precision
def test_one_ulp_up_is_the_next_number(precision: Precision) -> None:
    values = samples(precision)
    values = values[: len(values) // 2]  # positive ones; below zero, up is towards a narrower binade
    values = values[values < ml_dtypes.finfo(DTYPES[precision]).max]
    wide = values.astype(np.float64)
    up = np.nextafter(values, np.full_like(values, np.inf)).astype(np.float64)
    np.testing.assert_array_equal(wide + ulp(wide, precision), up)


def test_a_gap_is_absolute_relative_and_at_a_step() -> None:
    gap = curve_gap({1: 4.0, 2: 2.0, 3: 100.0, 9: 0.0}, {1: 4.0, 2: 3.0, 3: 101.0, 7: 5.0})
    assert (gap.steps, gap.max_abs, gap.max_rel, gap.worst_step) == (3, 1.0, 0.5, 2)


def test_curves_without_a_common_step_have_no_gap_and_no_steps() -> None:
    gap = curve_gap({1: 4.0}, {2: 4.0})
    assert (gap.steps, gap.max_abs, gap.max_rel, gap.worst_step) == (0, 0.0, 0.0, 0)


NONFINITE = [
    (np.nan, np.nan, 0.0),
    (np.nan, 1.0, np.inf),
    (1.0, np.nan, np.inf),
    (np.inf, np.inf, 0.0),
    (np.inf, -np.inf, np.inf),
    (np.inf, 1.0, np.inf),
    (1.0, -np.inf, np.inf),
    (np.nan, np.inf, np.inf),
    (0.0, -0.0, 0.0),
]


@pytest.mark.parametrize(("a", "b", "expected"), NONFINITE)
def test_a_nan_in_one_curve_only_is_infinitely_far(a: float, b: float, expected: float) -> None:
    gap = curve_gap({1: 1.0, 2: a}, {1: 1.0, 2: b})
    assert (gap.max_abs, gap.max_rel) == (expected, expected)
    assert envelope_multiple([1.0, a], [1.0, b], np.full(2, 0.5)) == expected


def test_a_gap_from_a_loss_of_zero_is_large_and_warns_of_nothing() -> None:
    assert curve_gap({1: 0.0}, {1: 10.0}).max_rel > 1e300
    assert curve_gap({1: 0.0}, {1: 0.0}).max_rel == 0.0


finite = st.floats(1e-3, 1e3)
curves = st.lists(finite, min_size=1, max_size=60)


@pytest.mark.takes_seconds
@given(base=curves, data=st.data(), window=st.integers(1, 30))
@quick(100)
def test_an_envelope_is_the_largest_spread_of_its_window_and_never_below_the_floor(
    base: list[float], data: st.DataObject, window: int
) -> None:
    runs = data.draw(st.lists(st.lists(finite, min_size=len(base), max_size=len(base)), min_size=1, max_size=4))
    width = envelope(base, runs, window)
    floor = FLOOR_ULPS * ulp(np.array(base), "float32")
    spread = [max(abs(base[i] - run[i]) for run in runs) for i in range(len(base))]
    for i in range(len(base)):
        start = i // window * window
        assert width[i] == max(max(spread[start : start + window]), floor[i])


def test_runs_without_a_spread_give_four_float32_ulps() -> None:
    assert envelope([1.0, 3.0], [[1.0, 3.0]]).tolist() == [4 * 2.0**-23, 4 * 2.0**-22]


def test_a_run_that_became_nan_makes_its_window_infinite_and_no_other() -> None:
    base = [1.0, 1.0, 1.0, 1.0]
    width = envelope(base, [[1.0, np.nan, 1.0, 1.5]], window=2)
    assert width.tolist() == [np.inf, np.inf, 0.5, 0.5]


def test_a_multiple_is_the_smallest_limit_that_passes() -> None:
    width = np.array([0.5, 0.25, 1.0])
    assert envelope_multiple([1.0, 1.0, 1.0], [1.0, 2.0, 3.0], width) == 4.0
    assert envelope_multiple([], [], np.array([])) == 0.0


def test_the_limits_are_pinned() -> None:
    """A wider tolerance is a decision of its own, never a side effect."""
    assert (FLOAT64_LIMIT, FLOAT64_NOISE_FLOOR) == (1e-12, 1e-13)
    assert dict(ENVELOPE_LIMIT) == {"float32": 3.0, "bfloat16": 3.0, "float16": 3.0}


@pytest.mark.parametrize("precision", ["float64", "float32"])
def test_no_loss_is_near_an_infinite_one_but_itself(precision):
    how = {"floor": lambda: 1e-15, "width": lambda steps: np.full(len(steps), 1e-6)}
    same = {1: 1.0, 2: math.inf, 3: math.nan}
    assert judge_curve(same, dict(same), precision, **how).first is None
    for at, value in ((2, 5.0), (2, -math.inf), (1, math.inf), (2, math.nan)):
        assert judge_curve(same, {**same, at: value}, precision, **how).first == at
    assert is_near(2.0, 2.0 + 1e-12, 1e-12)
    for reference, other in ((math.inf, 1.0), (1.0, math.inf), (math.inf, -math.inf), (math.nan, 1.0)):
        assert not is_near(reference, other, 1e-12)
