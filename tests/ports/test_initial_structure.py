"""Initial values whose spread agrees and whose structure does not; two draws of one distribution pass."""

import numpy as np
import pytest

from parity.checks.proving.initial import _of_one_shape
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


def layers(scale, count=6, copies=False):
    drawn = [normal(18, 9) for _ in range(count)]
    return {f"layer{at}": scale * (drawn[0] if copies else one) for at, one in enumerate(drawn)}


@pytest.mark.parametrize(
    ("here", "there", "told"),
    [(layers(1.0), layers(1.41), True), (layers(1.0), layers(1.0), False), (layers(1.0), layers(1.41, 1), False),
     (layers(1.0, copies=True), layers(1.41, copies=True), False)],
)  # fmt: skip
def test_spreads_of_several_leaves_show_what_no_single_one_does(here, there, told):
    found = _of_one_shape({leaf: here[leaf] for leaf in there}, there, set())
    assert [one.leaf for one in found] == ["layer0"] * told
    assert all("as 6 leaves of its shape [18, 9]: spreads are 1." in one.said for one in found)


@pytest.mark.parametrize("seed", range(40))
def test_spreads_of_several_draws_of_one_distribution_are_one(seed):
    draws = np.random.default_rng(seed)
    for draw in (draws.standard_normal, draws.random, draws.standard_exponential):
        sides = [{str(at): draw((16, 4)) for at in range(6)} for _ in (0, 1)]
        assert _of_one_shape(*sides, set()) == []
