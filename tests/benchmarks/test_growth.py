"""The straight line through the costs of several sizes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.growth import fit

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
