"""Batches that are drawn from one seed in another order are told by that order, and others are not."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from parity.checks.proving.batches import compare_batches
from parity.checks.proving.sources import PortSource

Batch = Callable[[int], dict[str, Any]]


def trainer(step: int) -> dict[str, Any]:
    rng = np.random.default_rng([3, step])
    return {"image": rng.integers(0, 9, (4, 3)), "label": rng.integers(0, 5, 4), "flip": rng.random(4)}


def reordered(step: int) -> dict[str, Any]:
    rng = np.random.default_rng([3, step])
    flip = rng.random(4)
    return {"flip": flip, "image": rng.integers(0, 9, (4, 3)), "label": rng.integers(0, 5, 4)}


def further(step: int) -> dict[str, Any]:
    rng = np.random.default_rng([3, step])
    image = rng.integers(0, 9, (4, 3))
    rng.permutation(4)
    return {"image": image, "label": rng.integers(0, 5, 4), "flip": rng.random(4)}


def seeded(step: int) -> dict[str, Any]:
    rng = np.random.default_rng([4, step])
    return {"image": rng.integers(0, 9, (4, 3)), "label": rng.integers(0, 5, 4), "flip": rng.random(4)}


def scaled(step: int) -> dict[str, Any]:
    made = reordered(step)
    return {**made, "flip": made["flip"] ** 2}


def said(port: Batch, own: Batch = trainer) -> str:
    one, two = (PortSource("--torch", name, {"batch": made}) for name, made in (("one", own), ("two", port)))
    return compare_batches(one, two, 4).cause


def test_another_order_and_a_further_draw_are_told() -> None:
    assert said(reordered) == (
        "random numbers of the step: drawn from one seed in the order integers[4, 3], integers[4], random[4] here, "
        "random[4], integers[4, 3], integers[4] there"
    )
    assert said(further).endswith("random[4] here, integers[4, 3], permutation[4], integers[4], random[4] there")
    assert said(trainer, further).endswith("random[4] here, integers[4, 3], integers[4], random[4] there")


@pytest.mark.parametrize("port", [seeded, scaled])
def test_other_seeds_and_other_numbers_are_not_called_an_order(port: Batch) -> None:
    plain = np.random.default_rng
    assert "in the order" not in said(port)
    assert np.random.default_rng is plain


def test_equal_batches_hold() -> None:
    assert said(trainer) == ""
