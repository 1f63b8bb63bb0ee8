"""Every transform says the shapes that it makes, and its inverse leads back; so does any row of them."""

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from parity.errors import CheckpointError
from parity.formats import Array, InMemory
from parity.mapping import (
    Copies,
    Join,
    LeafRule,
    Permute,
    Recount,
    Reshape,
    Split,
    Stack,
    Tie,
    Times,
    Transform,
    Transpose,
    Unstack,
)


def arrays(*shapes: tuple[int, ...]) -> list[Array]:
    """Return arrays of different numbers, small enough that a factor of two is exact."""
    starts = range(0, 1000 * len(shapes), 1000)
    return [
        InMemory(np.arange(start, start + math.prod(shape), dtype=np.float32).reshape(shape))
        for start, shape in zip(starts, shapes, strict=True)
    ]


ONE = arrays((2, 3, 4))
CASES: list[tuple[Transform, list[Array]]] = [
    (Join(1), arrays((2, 3), (2, 1), (2, 2))),
    (Join(0, 2), arrays((2, 3), (1, 3), (2, 3), (1, 3))),
    (Split((1, 0, 2), 1), ONE),
    (Split((1, 2), 0), arrays((3, 2), (3, 2))),
    (Stack(1), arrays((2, 3), (2, 3))),
    (Unstack(1, 3), ONE),
    (Tie(2), ONE * 2),
    (Copies(3), ONE),
    (Permute((2, 0, 1)), ONE),
    (Transpose(), ONE),
    (Reshape((4, 6)), ONE),
    (Times(2.0), ONE),
    (Times(4.0, divides=True), ONE),
]


def values(found: list[Any]) -> list[Any]:
    return [(one.shape, one.load().tolist()) for one in found]


@pytest.mark.parametrize(("transform", "given"), CASES, ids=lambda one: getattr(one, "how", ""))
def test_a_transform_says_its_shapes_and_leads_back(transform: Transform, given: list[Array]) -> None:
    shapes = [one.shape for one in given]
    made = transform.forward(given, ["a"])
    assert transform.moved(shapes) == [one.shape for one in made]
    back = transform.inverse(shapes)
    assert values(back.forward(made, ["a"])) == values(given)
    assert back.inverse([one.shape for one in made]) == transform


def test_arrays_of_numpy_are_turned_without_a_copy() -> None:
    array = np.arange(6).reshape(2, 3)
    for transform in (Permute((1, 0)), Transpose(), Reshape((6,))):
        [made] = transform.forward([array], ["a"])
        assert np.shares_memory(made, array)


def test_a_counter_crosses_if_the_other_type_holds_it() -> None:
    [count] = Recount("int32", "int64").forward([np.array(2**31 - 1)], ["step"])
    assert (count.dtype, int(count)) == (np.int32, 2**31 - 1)
    with pytest.raises(CheckpointError, match="step: int64 2147483648 does not fit int32"):
        Recount("int32", "int64").forward([np.array(2**31)], ["step"])


def test_what_has_no_two_axes_is_not_transposed() -> None:
    with pytest.raises(CheckpointError, match="a has 1 axes, and its rule transposes it; name it in a rule"):
        Transpose().forward(arrays((3,)), ["a"])


@st.composite
def rows(draw: st.DrawFn) -> tuple[list[Array], tuple[Transform, ...]]:
    """Draw arrays and transforms that fit them, in any order and number."""
    shape = tuple(draw(st.lists(st.integers(1, 3), min_size=2, max_size=4)))
    given = arrays(*[shape] * draw(st.integers(1, 3)))
    steps: list[Transform] = [draw(st.sampled_from([Stack(1), Join(0)]))] if len(given) > 1 else []
    for _ in range(draw(st.integers(0, 4))):
        now = LeafRule(("a",), ("b",), tuple(steps))
        [one] = _after(now, given)
        whole = math.prod(one.shape)
        step: Transform = draw(
            st.sampled_from([Transpose(), Times(0.5), Reshape((whole, 1)), Reshape((1, *one.shape))])
            | st.permutations(range(len(one.shape))).map(lambda axes: Permute(tuple(axes)))
        )
        steps.append(step)
    [one] = _after(LeafRule(("a",), ("b",), tuple(steps)), given)
    first = draw(st.integers(0, one.shape[0]))
    return given, (*steps, *draw(st.sampled_from([(), (Split((first, one.shape[0] - first)),)])))


def _after(rule: LeafRule, given: list[Array]) -> list[Array]:
    for one in rule.transforms:
        given = one.forward(given, rule.source)
    return given


@pytest.mark.takes_seconds
@given(rows())
def test_transforms_in_a_row_lead_back(drawn: tuple[list[Array], tuple[Transform, ...]]) -> None:
    given, transforms = drawn
    rule = LeafRule(("a",), ("b",), transforms)
    shapes = [one.shape for one in given]
    made = _after(rule, given)
    assert values(_after(rule.inverse(shapes), made)) == values(given)
    assert rule.inverse(shapes).inverse([one.shape for one in made]) == rule
