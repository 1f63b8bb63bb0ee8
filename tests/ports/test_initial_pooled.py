"""Initial values whose spread no leaf shows by itself: all of them together, and further draws, do."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from parity.checks.proving.initial_pooled import unlike_pooled

SHAPES = {"a": (8, 20), "b": (20, 6), "c": (6, 30), "d": (4, 50)}

Leaves = dict[str, np.ndarray]


def normal(rng: np.random.Generator) -> Leaves:
    return {leaf: 0.02 * rng.standard_normal(shape) for leaf, shape in SHAPES.items()}


def truncated(rng: np.random.Generator) -> Leaves:
    """Return what is cut off at two standard deviations and not made as wide again: 0.88 times the spread."""
    found = {}
    for leaf, shape in SHAPES.items():
        draws = rng.standard_normal((8, *shape))
        order = np.argsort(np.abs(draws) > 2.0, axis=0, kind="stable")
        found[leaf] = 0.02 * np.take_along_axis(draws, order, 0)[0]
    return found


def told(first: Callable, second: Callable, seed: int, *, fixed: bool = False) -> list[tuple[str, str]]:
    one, two = np.random.default_rng((1, seed)), np.random.default_rng((2, seed))
    held = second(two)

    def built() -> tuple[Leaves, Leaves]:
        return first(one), held if fixed else second(two)

    return unlike_pooled((first(one), held), built, set(), 7.0)


@pytest.mark.parametrize("fixed", [False, True])
def test_a_distribution_that_is_cut_off_is_told_by_several_draws(
    fixed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a model that is built of a number of its own there is one draw: it has to be larger to show the same."""
    for leaf, (a, b) in list(SHAPES.items()) if fixed else ():
        monkeypatch.setitem(SHAPES, leaf, (6 * a, b))
    said = [told(normal, truncated, seed, fixed=fixed) for seed in range(12)]
    found = [one for one in said if one]
    assert len(found) >= 10, said
    leaf, words = found[0][0]
    assert leaf == "a"
    assert words.startswith("as 4 leaves together, of 9 and "), words
    assert "spreads are 0.8" in words


def test_draws_of_one_distribution_are_never_told() -> None:
    assert not any(told(normal, normal, seed, fixed=fixed) for seed in range(150) for fixed in (False, True))


def test_numbers_of_one_generator_that_begins_anew_are_no_further_evidence() -> None:
    def anew(scale: float) -> Callable:
        def made(rng: np.random.Generator) -> Leaves:
            line = scale * rng.standard_normal(200)
            return {leaf: line[: int(np.prod(shape))].reshape(shape) for leaf, shape in SHAPES.items()}

        return made

    assert not any(told(anew(1.0), anew(1.0), seed) for seed in range(100))
    assert not told(anew(1.0), anew(1.6), 0), "one leaf is left, of which each leaf's own test says more"
