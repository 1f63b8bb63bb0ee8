"""Choices by a value: an expression that a lost count would turn beyond the run, and those that nobody trains by."""

import math
import pickle
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import parity
from parity.checks.running import Turn
from parity.checks.running.turned import TooLong, TurnDeadline, turned
from parity.results import Resumption

Trainer = Callable[[Path, int], Iterator[int]]


class Counts:
    """What a trainer counts: one for training, one for people."""

    def __init__(self) -> None:
        self.bad = self.here = 0
        self.factor = 1.0
        self.over = False

    def scale(self) -> float:
        return 0.1 if self.bad > 60 else 1.0

    def look(self) -> None:
        self.over = self.bad >= 70


class Here:
    """Counts of this process: its attributes are called as those of training."""

    def __init__(self) -> None:
        self.bad = 0
        self.total = 0.0

    def mean(self) -> float:
        return self.total / self.bad if self.bad > 0 else 0.0


def in_expression(c: Counts) -> float:
    return 0.3 * (0.1 if c.bad > 60 else 1)


def in_a_variable(c: Counts) -> float:
    rate = 0.3 if c.bad < 80 else 0.01
    return rate


def in_a_method(c: Counts) -> float:
    return 0.3 * c.scale()


def in_a_minimum(c: Counts) -> float:
    return 0.3 * min(1.0, 50 / max(c.bad, 50))


def in_a_power(c: Counts) -> float:
    late = c.bad > 90
    return 0.3 * 0.5**late


def in_a_branch(c: Counts) -> float:
    rate = 0.3
    if c.bad >= 80:
        rate = 0.01
    return rate


def nowhere(c: Counts) -> float:
    return 0.3


def with_counts(rate: Callable[[Counts], float], *, lost: bool) -> Trainer:
    """Return a trainer whose rate follows a count in its checkpoint, beside one of this process that is printed."""

    def train(folder: Path, steps: int) -> Iterator[int]:
        w, c, here, step, path = np.ones(2), Counts(), Here(), 0, folder / "state.pkl"
        if path.exists():
            w, bad, step = pickle.loads(path.read_bytes())
            c.bad = 0 if lost else bad
        while step < steps:
            yield step
            c.bad += 1
            here.bad += 1
            w = w - rate(c) * (w - math.sin(step))
            here.total += float(w @ w)
            speed = here.total / here.bad if here.bad > 99 else 0.0
            print(f"{here.mean():.3f} {speed:.1f} {min(here.bad, 50)}")
            step += 1
            if step % 5 == 0 and step < 11:
                path.write_bytes(pickle.dumps((w, c.bad, step)))
        return w

    return train


def check(train: Trainer, **options: Any) -> Resumption:
    given: dict[str, Any] = {"steps": 20, "stop_at": 13, "mode": "inline", "scenarios": ("kill",), **options}
    return parity.resumes(train, **given)


def with_a_flag(kind: str, *, lost: bool) -> Trainer:
    """Return a trainer that ends by a flag which is set from a count in its checkpoint."""

    def train(folder: Path, steps: int) -> Iterator[int]:
        w, c, step, path = np.ones(2), Counts(), 0, folder / "state.pkl"
        if path.exists():
            w, bad, step = pickle.loads(path.read_bytes())
            c.bad = 0 if lost else bad
        while step < steps:
            yield step
            c.bad += 1
            w = w - 0.3 * (w - math.sin(step))
            if kind == "variable":
                done = c.bad >= 70
                if done:
                    break
            else:
                c.look()
                if c.over:
                    break
            step += 1
            if step % 5 == 0 and step < 11:
                path.write_bytes(pickle.dumps((w, c.bad, step)))
        return w

    return train


FORMS = (in_expression, in_a_variable, in_a_method, in_a_minimum, in_a_power, in_a_branch)


@pytest.mark.parametrize("rate", FORMS)
def test_a_lost_count_that_picks_what_is_trained_by_only_beyond_the_run_is_lost(
    rate: Callable[[Counts], float],
) -> None:
    found = check(with_counts(rate, lost=True))
    assert found.verdict == "broken", found
    assert found.suspects[0].path == "c.bad"
    assert "here.bad" not in {one.path for one in found.suspects}


@pytest.mark.parametrize("rate", FORMS)
def test_a_count_of_the_process_is_listed_though_what_is_trained_is_picked_by_its_name(
    rate: Callable[[Counts], float],
) -> None:
    found = check(with_counts(rate, lost=False))
    assert found.verdict == "holds", found
    assert "here.bad" in {one.path for one in found.bookkeeping}


def test_a_count_that_picks_nothing_is_listed() -> None:
    found = check(with_counts(nowhere, lost=True))
    assert found.verdict == "holds", found
    assert "c.bad" in {one.path for one in found.bookkeeping}


@pytest.mark.parametrize("flag", ["variable", "attribute"])
def test_a_flag_decides_by_what_it_was_set_to(flag: str) -> None:
    assert check(with_a_flag(flag, lost=False)).verdict == "holds"
    found = check(with_a_flag(flag, lost=True))
    assert found.verdict == "broken"
    assert found.suspects[0].path == "c.bad"


def test_in_processes_of_their_own_choices_are_turned_too() -> None:
    assert check(by_file, mode="process").suspects[0].path == "c.bad"


def by_file(folder: Path, steps: int) -> Iterator[int]:
    """A trainer that another process can import."""
    yield from with_counts(in_expression, lost=True)(folder, steps)


def fails_when_turned(c: Counts) -> float:
    rate = 0.3
    if c.bad >= 80:
        rate = 0.3 / (c.bad - c.bad)
    return rate


def test_a_run_that_fails_when_it_is_turned_shows_nothing() -> None:
    assert check(with_counts(fails_when_turned, lost=True)).verdict == "holds"


def test_what_fails_when_it_is_turned_hides_no_other_loss() -> None:
    def train(folder: Path, steps: int) -> Iterator[int]:
        w, n, bad, step, path = np.ones(2), Counts(), 0, 0, folder / "state.pkl"
        if path.exists():
            w, step = pickle.loads(path.read_bytes())
        while step < steps:
            yield step
            n.bad += 1
            bad += 1
            speed = 0.0
            if n.bad >= 80:
                speed = 1 / (n.bad - n.bad)
            rate = 0.3 if bad < 80 else 0.01
            w = w - rate * (w - math.sin(step)) + 0 * speed
            step += 1
            if step % 5 == 0 and step < 11:
                path.write_bytes(pickle.dumps((w, step)))
        return w

    found = check(train)
    assert found.verdict == "broken"
    assert [one.path for one in found.suspects] == ["bad"]


def three_ways(c: int) -> list[float]:
    return [1.0 if c > 5 else 2.0, min(c, 3), float(c == 4)]


def test_what_is_turned_gives_its_other_value_and_is_as_before_afterwards() -> None:
    lines = Path(__file__).read_text().splitlines()
    number = next(at for at, line in enumerate(lines) if line.startswith("def three_ways")) + 2
    text = lines[number - 1]
    parts = ["1.0 if c > 5 else 2.0", "min(c, 3)", "c == 4"]
    turns = [Turn(__file__, (number, text.index(part)), (number, text.index(part) + len(part))) for part in parts]
    assert three_ways(4) == [2.0, 3, 1.0]
    with turned(turns):
        assert three_ways(4) == [1.0, 4, 0.0]
    with turned(turns[:1]):
        assert three_ways(4) == [1.0, 3, 1.0]
    assert three_ways(4) == [2.0, 3, 1.0]


def test_a_turned_run_that_comes_to_no_end_is_ended() -> None:
    watch = TurnDeadline([Turn(__file__, (1, 0), (1, 1))], seconds=-1.0)
    with pytest.raises(TooLong):
        watch.trace(None, "line", None)  # type: ignore[arg-type]
