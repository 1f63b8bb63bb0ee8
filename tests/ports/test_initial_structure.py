"""Initial values whose spread agrees and whose structure does not; two draws of one distribution pass."""

import numpy as np
import pytest

from parity.checks.proving.initial_structure import equal_leaves, tail_unlike, unlike_structure

DRAWS = np.random.default_rng(3)


def normal(*shape):
    return DRAWS.standard_normal(shape)


def with_row(value):
    made = normal(12, 8)
    made[0] = value
    return made


CASES = {
    "row of zeros": (with_row(0.0), normal(12, 8), "index 0 of axis 0 is 0 here, drawn there"),
    "another row": (with_row(0.0), with_row(1.0), "index 0 of axis 0 is 0 here, 1 there"),
    "copies": (normal(12, 8), np.tile(normal(12, 4), 2), "8 of 8 indices of axis 1 differ from one another here, 4"),
    "orthogonal": (np.linalg.qr(normal(8, 8))[0], normal(8, 8) / 8**0.5, "orthogonal here, not there"),
}


@pytest.mark.parametrize("case", CASES)
def test_a_structure_of_one_alone_is_told(case):
    here, there, said = CASES[case]
    assert said in unlike_structure(here, there)
    assert unlike_structure(there, here)
    assert unlike_structure(here, here) == ""


@pytest.mark.parametrize("seed", range(30))
def test_two_draws_have_one_structure(seed):
    draws = np.random.default_rng(seed)
    shape = tuple(draws.integers(1, 9, int(draws.integers(1, 5))))
    for draw in (draws.standard_normal, draws.random):
        a, b = draw(shape), draw(shape)
        assert unlike_structure(a, b) == ""
        assert tail_unlike(a.ravel(), b.ravel(), 1e-11) == ""
    assert (
        unlike_structure(np.linalg.qr(draws.normal(size=(6, 6)))[0], np.linalg.qr(draws.normal(size=(6, 6)))[0]) == ""
    )


def test_a_tail_beyond_a_bound_is_told():
    uniform, bell = DRAWS.uniform(-(3**0.5), 3**0.5, 900), normal(900)
    assert "elements are larger" in tail_unlike(uniform, bell, 1e-11)
    assert "elements are larger" in tail_unlike(bell, uniform, 1e-11)


def test_leaves_of_one_key_are_told():
    one, two, three = normal(5, 4), normal(5, 4), np.zeros((5, 4))
    here = {"a": one, "b": two, "c": three, "d": three}
    assert [leaf for leaf, _ in equal_leaves(here, {"a": one, "b": 2.0 * one, "c": three, "d": three})] == ["b"]
    assert equal_leaves(here, {"a": two, "b": one, "c": three, "d": three}) == []
