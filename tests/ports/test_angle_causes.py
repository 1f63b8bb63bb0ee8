"""Embeddings of numbers by angles that part: columns in another order are no other angles."""

import numpy as np
import pytest

from parity.checks.models.module_causes import angle_cause

TIMES = np.array([0.3, 1.7, 2.9])[:, None]
PERIODS = np.exp(-np.arange(4) / 4.0)
SINES, COSINES = np.sin(TIMES * PERIODS), np.cos(TIMES * PERIODS)
PATHS = ("a", "b")


@pytest.mark.parametrize(
    ("there", "words"),
    [
        (np.concatenate([COSINES, SINES], -1), "the two halves exchanged"),
        (np.stack([SINES, COSINES], -1).reshape(3, 8), "[0, 2, 4, 6, 1, 3, 5, 7] there"),
        (
            np.concatenate([np.sin(TIMES * PERIODS**2), np.cos(TIMES * PERIODS**2)], -1),
            "are of other periods but the first: from 1 to 0.472367 times the angle there",
        ),
        (
            np.concatenate([np.sin(TIMES * 2 * np.pi), np.cos(TIMES * 2 * np.pi)] * 2, -1)[
                :, [0, 0, 0, 0, 1, 1, 1, 1]
            ],
            "are of other angles (periods, place or time)",
        ),
        (
            np.concatenate([np.sin(TIMES * PERIODS / 2 / np.pi), np.cos(TIMES * PERIODS / 2 / np.pi)], -1),
            "are of angles that are 0.159155 (1 / (2 pi)) times as large there",
        ),
        (
            np.concatenate([np.sin((TIMES + 1) * PERIODS), np.cos((TIMES + 1) * PERIODS)], -1),
            "are of other angles (periods, place or time)",
        ),
    ],
)
def test_columns_in_another_order_are_told_from_other_angles(there, words):
    assert words in angle_cause(PATHS, np.concatenate([SINES, COSINES], -1), there)


def test_nothing_is_said_of_columns_that_are_equal_to_several_or_to_none():
    here = np.random.default_rng(1).standard_normal((3, 8))
    assert angle_cause(PATHS, here, here + 0.1) == ""
    twice = np.concatenate([here[:, :4], here[:, :4]], -1)
    assert angle_cause(PATHS, twice, np.roll(twice, 1, -1)) == ""
