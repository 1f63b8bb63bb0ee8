"""Loops of other shapes: caches, numbers, marks within steps, meters; each with what it must not hide."""

import json
import math
import pickle
import random
from collections import Counter, deque
from collections.abc import Callable, Iterator
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.live.small_loops import Trainer, check, first


def loaded(folder: Path) -> Any:
    path = folder / "state.pkl"
    return pickle.loads(path.read_bytes()) if path.exists() else None


def save(folder: Path, *state: Any) -> None:
    (folder / "state.pkl").write_bytes(pickle.dumps(state))


class Memo:
    """Values that are made when first asked for, in a dict or in an array with a mask, and how often that was."""

    def __init__(self) -> None:
        self.kept: dict[int, float] = {}
        self.table, self.known = np.zeros(10), np.zeros(10, bool)
        self.norms = np.full(10, np.nan)
        self.rows: list[float | None] = [None] * 10
        self.hits = self.made = 0

    def new(self, n: int) -> float:
        return math.sin(n)

    def of_dict(self, n: int) -> float:
        if n in self.kept:
            self.hits += 1
            return self.kept[n]
        value = self.new(n)
        self.kept[n] = value
        return value

    def of_mask(self, n: int) -> float:
        if not self.known[n]:
            self.table[n] = self.new(n)
            self.known[n] = True
            self.made += 1
        return float(self.table[n])

    def of_nan(self, n: int) -> float:
        if np.isnan(self.norms[n]):
            self.norms[n] = self.new(n)
        return float(self.norms[n])

    def of_none(self, n: int) -> float:
        if self.rows[n] is None:
            self.rows[n] = self.new(n)
        return self.rows[n] or 0.0


class Stale(Memo):
    """Values depend on how many there were."""

    def new(self, n: int) -> float:
        there = len(self.kept) + self.known.sum() + (~np.isnan(self.norms)).sum() - self.rows.count(None)
        return math.sin(n) + 0.01 * float(there)


def with_memo(way: str, kind: type[Memo] = Memo, *, lost: bool = False) -> Trainer:
    def train(folder: Path, steps: int) -> Iterator[int]:
        memo, rate, begin = kind(), 0.5, 0
        w = np.zeros(3)
        if (state := loaded(folder)) is not None:
            w, kept, begin = state
            rate = rate if lost else kept
        for step in range(begin, steps):
            yield step
            x = getattr(memo, way)(random.Random(step).randrange(10))
            w = w - rate * (w - x)
            rate *= 0.97
            if step % 5 == 4:
                save(folder, w, rate, step + 1)
        return w

    return train


WAYS = ("of_dict", "of_mask", "of_nan", "of_none")


@pytest.mark.parametrize("way", WAYS)
def test_a_cache_and_its_counts_are_made_again(way: str) -> None:
    assert check(with_memo(way)).verdict == "holds"


@pytest.mark.parametrize("way", WAYS)
def test_a_cache_whose_values_depend_on_when_they_were_made_is_lost(way: str) -> None:
    assert check(with_memo(way, Stale)).verdict == "broken"


@pytest.mark.parametrize("way", WAYS)
def test_what_is_lost_beside_a_cache_is_named_before_it(way: str) -> None:
    assert first(check(with_memo(way, lost=True))) == "rate"


class Meter:
    """Counts since this process began, for people; `used` makes training depend on them."""

    def __init__(self) -> None:
        self.here, self.total = 0, 0.0

    def tick(self, value: float) -> None:
        self.here += 1
        self.total += value
        if self.here % 4 == 0:
            print(f"mean {self.total / self.here:.3f}")


def constant(meter: Meter) -> int:
    return 1


def of_the_meter(meter: Meter) -> int:
    return meter.here % 3


def of_numbers(
    lost: str = "", *, taken: Callable[[Meter], int] = constant, last_save: int = 99, returns: bool = True
) -> Trainer:
    """Return a trainer whose weights are in a list, with momentum and a temperature; it saves every five steps."""

    def train(folder: Path, steps: int) -> Iterator[int]:
        w, v, temp, begin = [0.1, -0.2], [0.0, 0.0], 1.0, 0
        meter = Meter()
        path = folder / "state.json"
        if path.exists():
            state = json.loads(path.read_text())
            begin, w = state["step"], state["w"]
            v = v if lost == "v" else state["v"]
            temp = temp if lost == "temp" else state["temp"]
        for step in range(begin, steps):
            yield step
            error = w[0] + w[1] * math.sin(step) - math.cos(step)
            v = [0.9 * a - 0.05 * error * temp * b for a, b in zip(v, (1.0, math.sin(step)), strict=True)]
            w = [a + b for a, b in zip(w, v, strict=True)]
            temp = temp * 0.98 + 0.001 * taken(meter)
            meter.tick(error * error)
            if step % 5 == 4 and step < last_save:
                path.write_text(json.dumps({"step": step + 1, "w": w, "v": v, "temp": temp}))
        return w if returns else None

    return train


def test_counts_for_people_are_listed_and_never_named_first() -> None:
    found = check(of_numbers())
    assert found.verdict == "holds"
    assert {one.path for one in found.bookkeeping} >= {"meter.here", "meter.total"}
    assert first(check(of_numbers("temp"))) == "temp"
    assert first(check(of_numbers("v"))) == "v[0]"
    assert first(check(of_numbers(taken=of_the_meter))) == "meter.here"


def test_numbers_of_a_trainer_without_arrays_are_state_where_its_checkpoint_holds_them() -> None:
    quiet = {"last_save": 10, "returns": False}
    assert check(of_numbers(**quiet), scenarios=("kill",)).verdict == "holds"
    assert first(check(of_numbers("v", **quiet), scenarios=("kill",))) == "v[0]"


def exact(number: Callable[[int, int], Any]) -> Trainer:
    """Return a trainer whose state is an exact number."""

    def train(folder: Path, steps: int) -> Iterator[int]:
        theta, begin = number(1, 3), 0
        if (state := loaded(folder)) is not None:
            theta, begin = state
        for step in range(begin, steps):
            yield step
            theta = theta * number(2, 3) + number(step, 7)
            if step % 5 == 4:
                save(folder, theta, step + 1)

    return train


@pytest.mark.parametrize("number", [Fraction, lambda a, b: Decimal(a) / Decimal(b), lambda a, b: complex(a, b)])
def test_exact_and_complex_numbers_are_trained(number: Callable[[int, int], Any]) -> None:
    assert check(exact(number)).verdict == "holds"


def of_whole(kind: str, *, lost: bool = False) -> Trainer:
    """Return a trainer of whole numbers: bits of automata in an array, or counts of words."""

    def train(folder: Path, steps: int) -> Iterator[int]:
        automata, counts, begin = np.zeros(6, np.int8), Counter[str](), 0
        if (state := loaded(folder)) is not None:
            kept, words, begin = state
            automata = automata if lost else kept
            counts = counts if lost else words
        for step in range(begin, steps):
            yield step
            if kind == "array":
                automata = automata + np.eye(6, dtype=np.int8)[step % 6] * (1 if automata.sum() % 2 else 2)
            else:
                counts["abcde"[step % 5]] += 1
            if step % 5 == 4:
                save(folder, automata, counts, step + 1)
        return automata if kind == "array" else counts

    return train


@pytest.mark.parametrize("kind", ["array", "counter"])
def test_whole_numbers_are_taken_for_what_is_trained_and_that_is_said(kind: str) -> None:
    found = check(of_whole(kind))
    assert found.verdict == "holds"
    assert "whole numbers are taken for what is trained" in " ".join(found.notes)
    assert first(check(of_whole(kind, lost=True))).startswith("automata" if kind == "array" else "counts.")


def test_a_count_of_steps_alone_is_nothing_trained() -> None:
    def train(folder: Path, steps: int) -> Iterator[int]:
        begin = done = 0
        if (state := loaded(folder)) is not None:
            begin, done = state
        for step in range(begin, steps):
            yield step
            done += 1
            save(folder, step + 1, done)

    assert check(train).verdict == "inconclusive"


def of_children(*, lost: bool) -> Trainer:
    def train(folder: Path, steps: int) -> Iterator[int]:
        seeds, w, begin = np.random.SeedSequence(3), np.zeros(2), 0
        root = np.random.Generator(np.random.PCG64(seeds))
        if (state := loaded(folder)) is not None:
            w, begin = state
            if not lost:
                seeds.spawn(begin)
        for step in range(begin, steps):
            yield step
            w = 0.9 * w + root.spawn(1)[0].normal(size=2)
            if step % 5 == 4:
                save(folder, w, step + 1)
        return w

    return train


def test_children_of_a_generator_are_counted() -> None:
    assert check(of_children(lost=False)).verdict == "holds"
    assert first(check(of_children(lost=True))) == "root.seed_seq"


def marks_often(*, lost: bool = False) -> Trainer:
    """Return a trainer that makes three marks a step."""

    def train(folder: Path, steps: int) -> Iterator[int]:
        w, rate, begin = np.zeros(2), 0.5, 0
        if (state := loaded(folder)) is not None:
            w, kept, begin = state
            rate = rate if lost else kept
        for step in range(begin, steps):
            for part in range(3):
                yield step
                w = w - rate * (w - math.sin(step + part))
            rate *= 0.97
            if step % 5 == 4:
                save(folder, w, rate, step + 1)
        return w

    return train


def test_several_marks_a_step_are_driven_through_every_scenario() -> None:
    assert check(marks_often(), scenarios="all").verdict == "holds"
    assert first(check(marks_often(lost=True), scenarios="all")) == "rate"


def of_window(*, longer: bool = False, kept: bool = True) -> Trainer:
    def train(folder: Path, steps: int) -> Iterator[int]:
        last: deque[float] = deque([0.0] * 4, maxlen=4)
        w, begin = np.zeros(2), 0
        if (state := loaded(folder)) is not None:
            w, last, begin = state
            last = deque(last, maxlen=8 if longer else 4) if kept else deque([0.0] * 4, maxlen=4)
        for step in range(begin, steps):
            yield step
            last.append(math.sin(step))
            w = 0.9 * w + sum(last)
            if step % 5 == 4:
                save(folder, w, last, step + 1)
        return w

    return train


def test_the_longest_a_window_may_be_is_state() -> None:
    assert check(of_window()).verdict == "holds"
    assert first(check(of_window(longer=True))) == "last.maxlen"
    assert first(check(of_window(kept=False))).startswith("last[")


def of_names(*, lost: bool = False) -> Trainer:
    """Return a trainer with a set of texts in its checkpoint, changed in place."""

    def train(folder: Path, steps: int) -> Iterator[int]:
        active, w, begin = {"ash", "birch", "cedar", "elm"}, np.zeros(2), 0
        if (state := loaded(folder)) is not None:
            w, kept, begin = state
            active = active if lost else kept
        chance = random.Random(begin)
        for step in range(begin, steps):
            yield step
            active.symmetric_difference_update({f"tree {step % 7}", "ash"})
            w = 0.9 * w + len(active) + len(sorted(active)[0])
            if step % 5 == 4:
                save(folder, w, active, step + 1)
        assert chance is not None
        return w

    return train


def test_a_set_in_a_file_has_no_order() -> None:
    assert check(of_names()).verdict == "holds"
    assert first(check(of_names(lost=True))).startswith("active")


def promoted(*, to: Callable[[float], Any]) -> Trainer:
    def train(folder: Path, steps: int) -> Iterator[int]:
        w, rate, begin = np.ones(3, np.float32), 0.1, 0
        if (state := loaded(folder)) is not None:
            w, begin = state
            rate = to(rate)
        for step in range(begin, steps):
            yield step
            w = w - rate * w
            if step % 5 == 4:
                save(folder, w, step + 1)
        return w

    return train


def test_a_rate_that_became_an_array_is_named() -> None:
    assert check(promoted(to=float)).verdict == "holds"
    assert first(check(promoted(to=np.asarray))) == "rate"


def failing(*, lost: bool) -> Trainer:
    def train(folder: Path, steps: int) -> Iterator[int]:
        counts, w, begin = [3.0, 4.0], np.zeros(2), 0
        if (state := loaded(folder)) is not None:
            w, kept, begin = state
            counts = [0.0, 0.0] if lost else kept
        for step in range(begin, steps):
            yield step
            counts = [one + 0.5 for one in counts]
            if sum(counts) < 4 + step / 2:
                raise ValueError("counts must grow with the steps")
            w = 0.9 * w + counts[0]
            if step % 5 == 4:
                save(folder, w, counts, step + 1)
        return w

    return train


def test_what_was_lost_is_named_before_the_failure_that_it_led_to() -> None:
    assert check(failing(lost=False)).verdict == "holds"
    found = check(failing(lost=True))
    assert first(found) == "counts[0]"
    assert "counts must grow" in " ".join(found.notes)
    assert "run_function" not in " ".join(found.notes)  # frames of the check are not the trainer's


class AverageMeter:
    """As the examples of PyTorch have it; printed, and begun anew when it was."""

    def __init__(self) -> None:
        self.val = self.avg = self.sum = 0.0
        self.count = 0

    def update(self, val: float, n: int = 1) -> None:
        self.val = val
        self.sum += val * n
        self.count += n
        self.avg = self.sum / self.count


class Stop:
    """Ends a run after some steps without a better value; its names are those of the meter."""

    def __init__(self, patience: int) -> None:
        self.best, self.count, self.patience = math.inf, 0, patience

    def ends(self, val: float) -> bool:
        if val < self.best:
            self.best, self.count = val, 0
        else:
            self.count += 1
        return self.count >= self.patience


class Bar:
    """Prints every so many of its own steps."""

    def __init__(self) -> None:
        self.step = self.last = 0
        self.speed = 0.0

    def advance(self) -> None:
        self.step += 1
        if self.step - self.last >= 4:
            self.speed = self.step / 4
            self.last = self.step
            print(f"{self.step} {self.speed}")


def is_over(count: int, patience: int) -> bool:
    return count >= patience


def with_meters(lost: str = "", *, through: bool = False, last_save: int = 99) -> Trainer:
    """Return a trainer with a meter, totals for the log and a bar beside what stops it; `through`: by a parameter."""
    patience = 90

    def train(folder: Path, steps: int) -> Iterator[int]:
        w, stop, step, last = np.zeros(2), Stop(patience), 0, 0.0
        meter, bar, log = AverageMeter(), Bar(), {"n": 0, "loss": 0.0}
        if (state := loaded(folder)) is not None:
            w, best, count, step, last = state
            stop.best = math.inf if lost == "best" else best
            stop.count = 0 if lost == "count" else count
        while step < steps:
            yield step
            w = w - 0.3 * (w - math.sin(step))
            loss = float(w @ w)
            meter.update(loss)
            bar.advance()
            log["n"] += 1
            log["loss"] += loss
            step += 1
            if step % 4 == 0:
                print(f"{meter.avg:.3f} {log['loss'] / log['n']:.3f}")
                meter, log = AverageMeter(), {"n": 0, "loss": 0.0}
            if abs(loss) > abs(last) + 10:
                w = w * 0.5
            last = loss
            over = stop.ends(1.0 if step > 6 else 2.0 - 0.1 * step)
            if over or (through and is_over(stop.count, patience)):
                break
            if step % 5 == 0 and step <= last_save:
                save(folder, w, stop.best, stop.count, step, last)
        return w

    return train


@pytest.mark.parametrize("through", [False, True])
def test_a_meter_is_listed_though_what_decides_has_its_names(through: bool) -> None:
    found = check(with_meters(through=through))
    assert found.verdict == "holds", found
    assert {one.path for one in found.bookkeeping} >= {"meter.count", "bar.step"}


@pytest.mark.parametrize("through", [False, True])
@pytest.mark.parametrize("lost", ["count", "best"])
def test_what_decides_is_lost_though_a_meter_has_its_names(lost: str, through: bool) -> None:
    found = check(with_meters(lost, through=through, last_save=10), scenarios=("kill",))
    assert first(found).startswith("stop.")  # no file and no result shows it: the condition alone does


def handed_on(*, lost: bool) -> Trainer:
    """Return a trainer whose count decides in a function that is given it under another name."""

    def train(folder: Path, steps: int) -> Iterator[int]:
        w, bad, step = np.zeros(2), 0, 0
        if (state := loaded(folder)) is not None:
            w, kept, step = state
            bad = 0 if lost else kept
        while step < steps:
            yield step
            w = w - 0.3 * (w - math.sin(step))
            bad += 1
            if is_over(bad, 90):
                break
            step += 1
            if step % 5 == 0:
                save(folder, w, bad, step)
        return w

    return train


def test_a_count_that_is_handed_to_what_decides_under_another_name_is_listed_at_least() -> None:
    assert check(handed_on(lost=False)).verdict == "holds"
    found = check(handed_on(lost=True))
    shown = {one.path for one in (*found.suspects, *found.bookkeeping)}
    assert any("bad" in path or "[1]" in path for path in shown)
