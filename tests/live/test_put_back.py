"""Which marks of two runs with other intervals differ in what later steps put back."""

import pytest

from parity.checks.resume.trained import put_back_later


@pytest.mark.parametrize(
    ("parted", "expected"),
    [
        ([[], ["w"], [], []], {1}),
        ([[], ["w"], ["w", "b"], []], {1, 2}),
        ([[], ["w"], [], ["w"]], {1, 3}),  # at the end as before
        ([[], ["w"], [], ["w"], ["w"]], {1}),  # for longer than ever
        ([[], ["w"], [], ["b"]], {1}),  # another value
        ([[], [], ["w"], ["w"]], set()),
        ([[], []], set()),
    ],
)
def test_what_is_equal_again_was_put_back(parted: list[list[str]], expected: set[int]) -> None:
    assert put_back_later(parted) == expected
