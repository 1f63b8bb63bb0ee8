"""A number that only an error guards: whether it decides, its course tells, towards the bound or away from it."""

import ast
import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from parity.checks.judging.bounds import bound_of
from tests.live.small_loops import State, Trainer, check, descend, first, trainer, weights


class Mean:
    """A mean for people."""

    def __init__(self) -> None:
        self.n, self.total = 0, 0.0

    def add(self, value: float) -> None:
        self.n += 1
        self.total += value

    def value(self) -> float:
        if self.n == 0:
            raise ValueError("of nothing")
        return self.total / self.n


class Gauge:
    """The same by other words, with an assertion."""

    def __init__(self) -> None:
        self.many, self.sum = 0, 0.0

    def add(self, more: float) -> None:
        self.many, self.sum = self.many + 1, self.sum + more

    def value(self) -> float:
        assert self.many > 0, "of nothing"
        return self.sum / self.many


class Deciding(Mean):
    """A mean by whose count a step is another one."""

    def is_full(self) -> bool:
        return self.n > self.most

    most = 30


def prints(kind: Any) -> Trainer:
    """Return a trainer that prints a mean over its own process."""

    def begun(state: State) -> None:
        state.own_mean = kind()

    def step(state: State, number: int) -> None:
        state.own_mean.add(descend(state, number))
        print(f"{number} {state.own_mean.value():.3f}")
        if kind is Deciding and state.own_mean.is_full():
            raise StopIteration

    return trainer(weights(), step, made=begun)


@pytest.mark.parametrize("kind", [Mean, Gauge])
def test_a_printed_mean_that_guards_against_nothing_to_divide_by_is_listed(kind: Any) -> None:
    found = check(prints(kind))
    assert found.verdict == "holds", found.text()
    assert any(one.path.startswith("state.own_mean") for one in found.bookkeeping)


def by_epoch(way: str, *, lost: bool = True) -> Trainer:
    """Return a trainer with a meter, or with a number of tries, that each epoch of seven steps begins anew."""

    def train(folder: Path, steps: int) -> Iterator[int]:
        path, start, w, meter, kept = folder / "state.pkl", 0, np.ones(2), Mean(), (0, 0.0)
        if path.exists():
            w, start, kept = pickle.loads(path.read_bytes())
        if way != "falls" and not lost:
            meter.n, meter.total = kept
        left = 9 - kept[0] if way == "falls" and not lost else 9
        for number in range(start, steps):
            if number % 7 == 0:
                meter, left = Mean(), 9
            yield number
            w = w - 0.1 * (w - np.sin(number))
            if way == "falls":
                left -= 1
                if left == 0:
                    raise RuntimeError("spent")
            else:
                meter.add(float(w.sum()))
                print(f"{number} {meter.value():.3f}")
            if number % 4 == 3 and number < 13:
                path.write_bytes(
                    pickle.dumps((w, number + 1, (9 - left if way == "falls" else meter.n, meter.total)))
                )

    return train


def test_a_printed_mean_that_each_epoch_begins_anew_is_listed() -> None:
    found = check(by_epoch("rises"))
    assert found.verdict == "holds", found.text()
    assert any(one.path.startswith("meter.") for one in found.bookkeeping), found.text()


def test_tries_that_each_epoch_gives_anew_are_lost_where_they_go_to_their_bound() -> None:
    assert check(by_epoch("falls", lost=False)).verdict == "holds"
    assert first(check(by_epoch("falls"))) == "left"


def test_a_count_that_decides_elsewhere_too_is_lost() -> None:
    found = check(prints(Deciding))
    assert found.verdict == "broken", found.text()
    assert found.suspects[0].path == "state.own_mean.n"


def spends(way: str, *, lost: bool) -> Trainer:
    """Return a trainer with a count that would end a longer run by an error."""

    def train(folder: Path, steps: int) -> Iterator[int]:
        path, start, w, budget, used = folder / "state.pkl", 0, np.ones(2), 30, 0
        if path.exists():
            w, start, kept = pickle.loads(path.read_bytes())
            budget, used = (30, 0) if lost else kept
        for number in range(start, steps):
            yield number
            if way == "assert":
                budget -= 1
                assert budget > 0
            elif way == "raise":
                budget -= 1
                if budget <= 0:
                    raise RuntimeError("spent")
            else:
                used += 1
                assert used <= 90
            w = w - 0.1 * (w - np.sin(number))
            if number % 4 == 3 and number < 13:
                path.write_bytes(pickle.dumps((w, number + 1, (budget, used))))

    return train


@pytest.mark.parametrize(("way", "named"), [("assert", "budget"), ("raise", "budget"), ("up", "used")])
def test_a_lost_count_that_goes_to_its_bound_is_named(way: str, named: str) -> None:
    assert check(spends(way, lost=False)).verdict == "holds"
    assert first(check(spends(way, lost=True))) == named


@pytest.mark.parametrize(
    ("source", "bound"),
    [
        ("if x.n == 0: raise ValueError", ("n", 0, False)),
        ("if not x['n']: raise ValueError", ("n", 0, False)),
        ("assert -1.5 < n", ("n", -1.5, True)),
        ("assert 0 < n < 5", None),
        ("assert n > m", None),
        ("assert n", None),
        ("if n == 0: print(n); raise ValueError", None),
        ("if n == 0: raise ValueError\nelse: n = 1", None),
    ],
)
def test_a_bound_is_a_number_that_is_written_out(source: str, bound: tuple[str, float, bool] | None) -> None:
    assert bound_of(ast.parse(source).body[0]) == bound
