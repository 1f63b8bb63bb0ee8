"""The straight line through the costs of several sizes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.growth import fit, per_unit

pytestmark = pytest.mark.breaks_first

numbers = st.floats(-1e3, 1e3).map(lambda x: round(x, 3))


@given(slope=numbers, intercept=numbers, xs=st.lists(st.integers(-300, 300), min_size=2, max_size=8, unique=True))
def test_points_on_a_line_give_the_line_back(slope, intercept, xs):
    line = fit([(x, slope * x + intercept) for x in xs])
    assert line["slope"] == pytest.approx(slope, rel=1e-6, abs=1e-6)
    assert line["intercept"] == pytest.approx(intercept, rel=1e-6, abs=1e-4)
    assert line["r2"] <= 1.0 + 1e-12


def test_a_cost_that_grows_with_the_square_is_no_line():
    straight, bent = (
        [(x, y) for x, y in zip((1, 10, 100, 300), ys, strict=True)]
        for ys in ((2, 11, 101, 301), (1, 100, 10_000, 90_000))
    )
    assert fit(straight)["r2"] > 0.999999
    assert fit(bent)["r2"] < 0.96
    assert fit(bent)["intercept"] < -1000


def test_a_line_is_worked_out_by_hand():
    assert fit([(0, 1), (1, 2), (2, 2), (3, 5)]) == pytest.approx({"slope": 1.2, "intercept": 0.7, "r2": 0.8})


@pytest.mark.parametrize("points", [[], [(1, 2)], [(1, 2), (1, 3)]])
def test_one_size_gives_no_line(points):
    with pytest.raises(ValueError, match="at least two sizes"):
        fit(points)


def test_what_a_unit_costs_more_is_taken_against_the_median_of_all_rounds():
    """Rounds of the smaller size that came out below 0 count too, and none is paired with one of the larger."""
    before = [-5.0, 100.0, 2.0, 1.0, 3.0]
    assert per_unit((10, before), (30, [6.0, 12.0])) == pytest.approx([1.0, 2.0])
    assert per_unit((10, before[::-1]), (30, [6.0, 12.0])) == pytest.approx([1.0, 2.0])


@pytest.mark.parametrize("before", [[0.0], [-1.0, -1.0, 5.0]])
def test_a_cost_that_is_noise_gives_no_ratio(before):
    assert per_unit((10, before), (30, [6.0])) == []
