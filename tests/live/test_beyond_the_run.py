"""Counts that decide only beyond the run, in the ways Python offers: measured in a run in which they are turned."""

import math
from collections.abc import Callable
from contextlib import suppress

import numpy as np
import pytest

from tests.live.small_loops import State, check, descend, first, trainer, weights

Step = Callable[[State, int], None]

TABLE = [0.3] * 60 + [0.01] * 60
PLAN = {70: 0.01}


class Over(Exception):
    """Ends a run."""


def stop() -> None:
    raise Over


def by_match(state: State, number: int) -> None:
    rate = 0.3
    match state.c:
        case 70:
            rate = 0.01
        case _:
            pass
    descend(state, number, rate)


def by_and(state: State, number: int) -> None:
    state.c > 70 and stop()
    descend(state, number)


def by_table(state: State, number: int) -> None:
    descend(state, number, TABLE[state.c])


def by_get(state: State, number: int) -> None:
    descend(state, number, PLAN.get(state.c, 0.3))


def by_division(state: State, number: int) -> None:
    descend(state, number, 0.3 * 0.5 ** (state.c // 60))


def by_any(state: State, number: int) -> None:
    state.strikes[number % 2] += 1
    descend(state, number, 0.01 if any(s > 60 for s in state.strikes) else 0.3)


def set_rate(state: State, rate: float) -> None:
    state.rate = rate


def by_a_call(state: State, number: int) -> None:
    if state.c > 70:
        set_rate(state, 0.01)
    descend(state, number, state.rate)


def by_an_element(state: State, number: int) -> None:
    if state.c == 44:
        state.extra.append(0.01)
    descend(state, number, 0.3 + sum(state.extra))


def lower(state: State) -> None:
    if state.c < 70:
        return
    state.rate = 0.01


def by_a_guard(state: State, number: int) -> None:
    lower(state)
    descend(state, number, state.rate)


def nowhere(state: State, number: int) -> None:
    words = TABLE[state.c]
    match state.c:
        case 70:
            words = 0.0
        case _:
            pass
    descend(state, number)
    print(f"{number} {words} {PLAN.get(state.c, 0.3)} {state.c // 60}")


def counted(step: Step) -> Step:
    def train_step(state: State, number: int) -> None:
        state.c += 1
        step(state, number)

    return train_step


FORMS = (by_match, by_and, by_table, by_get, by_division, by_any, by_a_call, by_an_element, by_a_guard)


@pytest.mark.parametrize("form", FORMS)
def test_a_lost_count_that_decides_beyond_the_run_is_lost(form: Step) -> None:
    given = weights(c=0, rate=0.3, extra=[], strikes=[0, 0])
    one, lost = {"scenarios": ("kill",)}, "strikes" if form is by_any else "c"
    found = check(trainer(given, counted(form), (lost,), until=11), **one)
    assert first(found).startswith(f"state.{lost}"), found
    assert check(trainer(given, counted(form), until=11), **one).verdict == "holds"


def test_a_count_that_picks_only_what_is_printed_is_listed() -> None:
    found = check(trainer(weights(c=0), counted(nowhere), ("c",), until=11))
    assert found.verdict == "holds", found
    assert "state.c" in {one.path for one in found.bookkeeping}


class Outside:
    """What a trainer calls of which nothing is known."""

    def __init__(self) -> None:
        self.rates = [0.3]

    def act(self, number: int) -> None:
        self.rates[:] = [0.3 / number for _ in self.rates]


def test_a_condition_before_an_unknown_call_is_said_with_its_line() -> None:
    def calls(state: State, number: int) -> None:
        if state.c > 70:
            state.outside.act(number)
        descend(state, number, state.outside.rates[0])

    given = weights(c=0, outside=Outside())
    found = check(trainer(given, counted(calls), ("c",), until=11))
    assert found.verdict == "holds", found
    assert any("state.c (test_beyond_the_run.py:" in note for note in found.notes), found.notes
    clean = check(trainer(given, counted(calls), until=11))
    assert not any("test_beyond_the_run.py:" in note for note in clean.notes), clean.notes


def suppressing(*, lost: bool, other: bool = False) -> Callable[..., object]:
    """Return a trainer whose limit comes from a plan by step, where it has one; another one sets it in any case."""

    def train(folder, steps):  # type: ignore[no-untyped-def]
        w, n, limit, path = np.ones(2), 0, 1000, folder / "state.npz"
        if path.exists():
            with np.load(path) as kept:
                w, n = kept["w"], int(kept["n"])
                limit = limit if lost else int(kept["limit"])
        while n < steps:
            yield n
            if other:
                with suppress(KeyError):
                    limit = 40
            else:
                with suppress(KeyError):
                    limit = {5: 40}[n]
            if n > limit:
                break
            w = w - 0.3 * (w - math.sin(n))
            n += 1
            if n % 4 == 0 and n < 11:
                np.savez(path, w=w, n=n, limit=limit)
        return w

    return train


def test_a_limit_that_suppress_leaves_as_it_was_is_state() -> None:
    assert first(check(suppressing(lost=True))) == "limit"
    assert check(suppressing(lost=False)).verdict == "holds"
    assert check(suppressing(lost=True, other=True)).verdict == "holds"


@pytest.mark.parametrize("budget", [iter(range(75)), iter([0] * 75), iter((0,) * 75)], ids=["range", "list", "tuple"])
def test_an_iterator_that_is_used_up_only_beyond_the_run_is_listed(budget: object) -> None:
    def takes(state: State, number: int) -> None:
        next(state.budget, None)
        descend(state, number)

    found = check(trainer(weights(budget=budget), takes, ("budget",), until=11), scenarios=("kill",))
    assert (found.verdict, "state.budget.left" in {one.path for one in found.bookkeeping}) == ("holds", True), found
    assert not check(trainer(weights(budget=budget), takes, until=11), scenarios=("kill",)).bookkeeping
