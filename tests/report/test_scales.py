"""Scales: every value has a place on its axis, in order, whatever it is."""

import math
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from parity.report.html import linear, logarithmic, power, symmetric

VALUES = st.lists(st.none() | st.floats(), max_size=8)
SCALES = pytest.mark.parametrize("make", [linear, logarithmic, symmetric])


@SCALES
@given(values=VALUES)
def test_a_scale_of_any_values_places_all_that_are_finite(make, values):
    scale = make(values)
    places = [scale.place(x) for x in sorted(x for x in values if x is not None and math.isfinite(x))]
    assert all(0.0 <= place <= 1.0 for place in places)
    assert places == sorted(places), "larger is never lower"
    ticks = [scale.place(value) for value, _ in scale.ticks]
    assert ticks == sorted(ticks)
    assert len(ticks) <= 14, "labels leave room for each other"


def test_a_linear_scale_ends_on_round_values():
    scale = linear([0.13, 0.87])
    assert [label for _, label in scale.ticks] == ["0", "0.2", "0.4", "0.6", "0.8", "1"]
    assert (scale.place(0.0), scale.place(0.5), scale.place(1.0)) == (0.0, 0.5, 1.0)


def test_a_constant_lies_in_the_middle():
    assert linear([3.0, 3.0]).place(3.0) == 0.5
    assert linear([0.0]).place(0.0) == 0.5


def test_a_logarithmic_scale_gives_every_decade_the_same_room():
    scale = logarithmic([1.0, 1000.0])
    assert [round(scale.place(10.0**n), 9) for n in range(4)] == [0.0, round(1 / 3, 9), round(2 / 3, 9), 1.0]


def test_a_symmetric_scale_is_linear_around_zero_and_logarithmic_beyond():
    scale = symmetric([1e-9, -1e-4])
    assert scale.place(0.0) == 0.5
    assert scale.place(1e-4) == pytest.approx(1 - scale.place(-1e-4))
    decades = [scale.place(10.0**n) for n in range(-9, -3)]
    gaps = [b - a for a, b in pairwise(decades)]
    assert gaps == pytest.approx([gaps[0]] * len(gaps))
    assert scale.place(5e-10) - 0.5 == pytest.approx((scale.place(1e-9) - 0.5) / 2)


def test_where_nothing_differs_only_zero_is_written():
    assert symmetric([0.0, None, math.nan]).ticks == ((0.0, "0"),)


@pytest.mark.parametrize(("exponent", "text"), [(-12, "10⁻¹²"), (0, "1"), (1, "10"), (2, "10²")])
def test_powers_are_written_as_people_do(exponent, text):
    assert power(exponent) == text
