"""What a function returns: the end of a list alone is what that process did; all else counts."""

from typing import Any

import pytest

from parity.capture import Walk
from parity.checks.judging import judge_returned


def leaves(value: Any) -> Any:
    walk = Walk({})
    walk.root("returned", value)
    return walk.finish().leaves


def broken(expected: Any, got: Any) -> list[str]:
    both = leaves(expected), leaves(expected)
    return [one.path for one in judge_returned(*both, leaves(got), 9).broken]


CURVE = [4.0, 3.0, 2.0, 1.0]


@pytest.mark.parametrize(
    ("expected", "got"),
    [
        (CURVE, [2.0, 1.0]),
        ({"loss": CURVE, "best": 1.0}, {"loss": [1.0], "best": 1.0}),
        ([{"epoch": n, "loss": v} for n, v in enumerate(CURVE)], [{"epoch": 3, "loss": 1.0}]),
        (CURVE, []),
    ],
)
def test_the_end_of_a_list_is_what_that_process_did(expected: Any, got: Any) -> None:
    assert broken(expected, got) == []


@pytest.mark.parametrize(
    ("expected", "got", "path"),
    [
        (CURVE, [2.0, 1.5], "returned[1]"),
        (CURVE, [4.0, 3.0], "returned[2]"),
        ({"loss": CURVE, "best": 1.0}, {"loss": [1.0], "best": 2.0}, "returned.best"),
        ({"acc": CURVE, "acc_smooth": 1.0}, {"acc": [1.0], "acc_smooth": 2.0}, "returned.acc_smooth"),
        ({1: 0.5, 5: 0.25}, {5: 0.25}, "returned[1]"),
        ({"early": 0.5, "late": 0.25}, {"late": 0.5}, "returned.late"),
    ],
)
def test_everything_else_counts(expected: Any, got: Any, path: str) -> None:
    assert path in broken(expected, got)
