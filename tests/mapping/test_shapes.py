"""Names by shapes alone and by order, against every way that there is."""

from itertools import combinations, permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from parity.mapping import by_order, by_shapes

SHAPE = st.sampled_from([(2,), (3,), (2, 3)])
SHAPES = st.lists(SHAPE, max_size=5)
WANTED = st.lists(SHAPE | st.none(), max_size=4)


def fits(wanted: tuple[int, ...] | None, there: tuple[int, ...]) -> bool:
    return wanted is None or wanted == there


@pytest.mark.takes_seconds
@given(WANTED, SHAPES)
def test_an_order_is_found_and_is_the_only_one_if_it_is(wanted: list, there: list) -> None:
    ways = [
        list(places)
        for places in combinations(range(len(there)), len(wanted))
        if all(fits(shape, there[at]) for shape, at in zip(wanted, places, strict=True))
    ]
    found = by_order(wanted, there)
    assert found == ((ways[0], len(ways) == 1) if ways else None)


@given(WANTED, SHAPES)
def test_shapes_decide_where_each_that_is_known_is_there_once(wanted: list, there: list) -> None:
    names = {f"n{at}": shape for at, shape in enumerate(there)}
    found = by_shapes(wanted, names)
    ways = {
        tuple(name for shape, name in zip(wanted, order, strict=True) if shape is not None)
        for order in permutations(names, len(wanted))
        if all(fits(shape, names[name]) for shape, name in zip(wanted, order, strict=True))
    }
    if found is not None:
        assert ways == {tuple(name for shape, name in zip(wanted, found, strict=True) if shape is not None)}
        assert len(set(found)) == len(found)
    elif None not in wanted:
        assert len(ways) != 1
