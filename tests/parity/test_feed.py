"""The feed's position is that of the consumer: what was fetched ahead and not trained on does not count."""

from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from parity.errors import StateError
from parity.twins import Chunk, Prefetcher
from tests.parity.test_data import array_stream, assert_same
from tests.support.small import quick


def feed(placed: list[int] | None = None) -> Prefetcher[int]:
    def place(chunk: Chunk, step: int) -> int:
        if placed is not None:
            placed.append(step)
        return step

    return Prefetcher(array_stream(), place)


def test_a_prefetch_moves_the_stream_and_not_the_position() -> None:
    feeding = feed()
    feeding.take(3, 0)
    position = dict(feeding.position)
    feeding.fetch(2, 3)
    assert feeding.position == position
    fresh = array_stream()
    fresh.seek(position)
    assert_same(feeding.take(2, 3)[0], fresh.take(2))


def test_a_changed_plan_drops_what_was_fetched() -> None:
    placed: list[int] = []
    feeding, plain = feed(placed), array_stream()
    feeding.take(3, 0)
    feeding.fetch(5, 3)
    chunk, step = feeding.take(2, 3)
    plain.take(3)
    assert_same(chunk, plain.take(2))
    assert (step, placed) == (3, [0, 3, 3])


def test_what_was_fetched_is_used_once() -> None:
    placed: list[int] = []
    feeding = feed(placed)
    feeding.fetch(2, 0)
    feeding.fetch(2, 0)
    first, _ = feeding.take(2, 0)
    second, _ = feeding.take(2, 2)
    assert placed == [0, 2]
    assert first.digests != second.digests


def test_seeking_forgets_what_was_fetched() -> None:
    feeding, plain = feed(), array_stream()
    start = dict(feeding.position)
    feeding.take(4, 0)
    feeding.fetch(4, 4)
    feeding.seek(start)
    assert feeding.position == start
    assert_same(feeding.take(4, 0)[0], plain.take(4))


def test_a_refused_seek_changes_nothing_even_with_a_chunk_fetched() -> None:
    feeding, plain = feed(), array_stream()
    feeding.take(4, 0)
    feeding.fetch(3, 4)
    position = dict(feeding.position)
    with pytest.raises(StateError, match=r"data\.position: is not a position"):
        feeding.seek({})
    assert feeding.position == position
    plain.take(4)
    assert_same(feeding.take(3, 4)[0], plain.take(3))


def test_what_could_not_be_placed_is_read_again() -> None:
    failing = iter([False, True, False])

    def place(chunk: Chunk, step: int) -> int:
        if next(failing):
            raise MemoryError
        return step

    feeding, plain = Prefetcher(array_stream(), place), array_stream()
    feeding.take(3, 0)
    with pytest.raises(MemoryError):
        feeding.fetch(2, 3)
    plain.take(3)
    assert_same(feeding.take(2, 3)[0], plain.take(2))


@pytest.mark.takes_seconds
@given(
    plan=st.lists(st.tuples(st.integers(1, 5), st.sampled_from(["right", "wrong", "none", "restart"])), max_size=8)
)
@quick(60)
def test_any_plan_gives_the_same_batches_as_no_prefetch_at_all(plan: list[tuple[int, str]]) -> None:
    """Whatever was fetched ahead, and wherever a new process took the position over."""
    feeding, plain, step = feed(), array_stream(), 0
    for n, ahead in plan:
        if ahead != "none":
            feeding.fetch(n if ahead == "right" else n + 1, step)
        if ahead == "restart":
            position: Mapping[str, Any] = feeding.position
            feeding = feed()
            feeding.seek(position)
        chunk, _ = feeding.take(n, step)
        assert_same(chunk, plain.take(n))
        assert feeding.position == plain.position()
        step += n
