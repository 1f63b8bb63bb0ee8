"""Which generator a suspended one has left its work to, by its byte code."""

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import pytest

from parity.capture.delegation import delegated_to


def trains() -> Iterator[int]:
    weights = np.zeros(2)
    for step in range(3):
        yield step
        weights = weights + 1


def counts() -> Iterator[int]:
    yield from range(3)


def in_two_lines(inner: Iterable[int]) -> Iterator[int]:
    for step in inner:  # noqa: UP028 - this spelling is what is tried
        yield step


def in_one_line(inner: Iterable[int]) -> Iterator[int]:
    for step in inner: yield step  # noqa: UP028, E701  # fmt: skip


def closed_over(inner: Iterable[int]) -> Iterator[int]:
    for step in inner:
        print_it = lambda: print(step)  # noqa: B023, E731, F841
        yield step


def delegates(inner: Iterable[int]) -> Iterator[int]:
    yield from inner


def computes(inner: Iterable[int]) -> Iterator[int]:
    for step in inner:
        yield step + 1


def nested(inner: Iterable[int]) -> Iterator[int]:
    for _ in trains():
        for step in inner:  # noqa: UP028
            yield step


def by_a_variable(inner: Iterable[int]) -> Iterator[int]:
    rows, work, more = trains(), inner, 1
    for step in work:  # noqa: UP028
        yield step
    print(rows, more)


def beside_data(inner: Iterable[int]) -> Iterator[int]:
    data = iter(inner)
    for step in range(3):
        yield step
        next(data)


def beside_closed_data(inner: Iterable[int]) -> Iterator[int]:
    data = iter(inner)
    draws = lambda: next(data)  # noqa: E731
    for q in range(3):
        yield q
        draws()


def within_data(inner: Iterable[int]) -> Iterator[int]:
    for step in range(3):
        for _ in inner:
            yield step


@pytest.mark.parametrize("outer", [in_two_lines, in_one_line, closed_over, delegates, nested, by_a_variable])
def test_one_that_passes_on_what_another_yields(outer: Any) -> None:
    inner = trains()
    suspended = outer(inner)
    next(suspended)
    assert delegated_to(suspended) is inner


@pytest.mark.parametrize(
    ("outer", "inner"),
    [(computes, trains), (in_two_lines, counts), (within_data, trains),
     (beside_data, trains), (beside_closed_data, trains)],
)  # fmt: skip
def test_one_that_does_its_own_or_reads_a_feed_of_numbers(outer: Any, inner: Any) -> None:
    suspended = outer(inner())
    next(suspended)
    assert delegated_to(suspended) is None


def test_one_that_is_at_its_end() -> None:
    suspended = in_two_lines(trains())
    assert list(suspended) == [0, 1, 2]
    assert delegated_to(suspended) is None
