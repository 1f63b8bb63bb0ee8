"""Chunks end at every save, validation and stop, and are halved while they take too long."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from parity.contract import Pace, RunPlan
from parity.spec import preset
from tests.support.small import quick


def run(save: int, validate: int, chunk: int = 50, seconds: float = 5.0) -> RunPlan:
    spec = preset("mlp-digits")
    return replace(
        spec,
        save=replace(spec.save, every=save),
        validate_every=validate,
        execution=replace(spec.execution, chunk=chunk, chunk_seconds=seconds),
    ).plan


@given(
    save=st.integers(1, 40),
    validate=st.integers(0, 40),
    until=st.integers(1, 300),
    limit=st.integers(1, 60),
)
@quick(100)
def test_chunks_visit_every_stop_and_cover_every_step_once(save: int, validate: int, until: int, limit: int) -> None:
    plan, step, ends = run(save, validate), 0, []
    while step < until:
        n = plan.chunk_length(step, until, limit)
        assert 1 <= n <= limit
        step += n
        ends.append(step)
    assert step == until
    stops = {s for s in range(1, until + 1) if plan.saves_at(s) or plan.validates_at(s)} | {until}
    assert stops <= set(ends)


@given(save=st.integers(1, 40), validate=st.integers(0, 40), step=st.integers(0, 200), more=st.integers(1, 99))
@quick(100)
def test_the_next_stop_is_the_first_one(save: int, validate: int, step: int, more: int) -> None:
    plan, until = run(save, validate), step + more
    stops = [s for s in range(step + 1, until + 1) if plan.saves_at(s) or plan.validates_at(s) or s == until]
    assert plan.next_stop(step, until) == stops[0]


@pytest.mark.parametrize("beyond", [0, 1, 50])
def test_a_chunk_behind_the_stop_is_empty(beyond: int) -> None:
    assert run(10, 10).chunk_length(30 + beyond, 30, 50) == 0


def test_zero_turns_validation_off() -> None:
    assert not any(run(10, 0).validates_at(step) for step in range(100))
    assert run(1000, 0).next_stop(0, 77) == 77


def test_the_first_chunk_of_a_length_is_not_judged() -> None:
    pace = Pace(run(100, 100, chunk=40, seconds=1.0))
    pace.note(40, 60.0)
    assert pace.limit == 40
    pace.note(40, 60.0)
    assert pace.limit == 20


def test_chunks_are_halved_down_to_one_step() -> None:
    pace = Pace(run(100, 100, chunk=5, seconds=1.0))
    limits = []
    for _ in range(8):
        pace.note(pace.limit, 2.0)
        limits.append(pace.limit)
    assert limits == [5, 2, 2, 1, 1, 1, 1, 1]


def test_a_short_last_chunk_that_is_slow_halves_its_own_length() -> None:
    pace = Pace(run(100, 100, chunk=40, seconds=1.0))
    for _ in range(2):
        pace.note(7, 2.0)
    assert pace.limit == 3


def test_fast_chunks_are_left_alone() -> None:
    pace = Pace(run(100, 100, chunk=40, seconds=1.0))
    for _ in range(5):
        pace.note(40, 1.0)
    assert pace.limit == 40
