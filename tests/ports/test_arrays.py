"""Arrays where one trainer takes over from another: equal to the last bit, or named with where they differ."""

import math

import numpy as np
import pytest

from parity.checks.ports.judge import exact
from parity.checks.ports.series import Series
from parity.mapping import Pair

pytestmark = pytest.mark.breaks_first

PAIR = Pair("weight", "kernel", "model.params", axes=(1, 0))
WEIGHT = np.array([[0.0, 1.0, 2.0], [3.0, math.nan, 5.0]], np.float32)


def told(weight, kernel):
    """Return what is said of a weight and its port."""
    left, right = (Series([3], {3: {path: value}}) for path, value in (("weight", weight), ("kernel", kernel)))
    return [(one.expected, one.got) for one in exact(left, right, [PAIR], 3, 3)]


def test_what_was_carried_over_is_equal_nan_included():
    assert told(WEIGHT, WEIGHT.T.copy()) == []
    assert told(WEIGHT, WEIGHT.T.astype(np.float64)) == []


@pytest.mark.parametrize("bit", range(32))
@pytest.mark.parametrize("at", [(0, 0), (1, 0), (2, 1)])
def test_every_flipped_bit_of_an_element_is_named_with_its_place(at, bit):
    kernel = WEIGHT.T.copy()
    kernel.view(np.uint32)[at] ^= np.uint32(1 << bit)
    ((expected, got),) = told(WEIGHT, kernel)
    place = f"[{at[0]}, {at[1]}] "
    assert expected == place + repr(float(WEIGHT.T[at]))
    assert got == place + repr(float(kernel[at]))


def test_an_element_that_is_not_finite_on_both_sides_is_never_the_one_that_is_named():
    for agrees in (math.nan, math.inf):
        weight = np.array([[0.0, 1.0, 2.0], [3.0, agrees, 5.0]], np.float32)
        kernel = weight.T.copy()
        kernel[2, 1] = 6.0
        assert told(weight, kernel) == [("[2, 1] 5.0", "[2, 1] 6.0")]
    assert told(np.array([[1.0, 2.0]]), np.array([[math.nan], [9.0]])) == [("[0, 0] 1.0", "[0, 0] nan")]


def test_other_numbers_of_another_dtype_are_named():
    kernel = WEIGHT.T.astype(np.float64)
    kernel[2, 1] = 6.0
    assert told(WEIGHT, kernel) == [("[2, 1] 5.0", "[2, 1] 6.0")]
