"""What a trainer makes for people and for its own process: bars, pools of buffers, reports; other intervals."""

import json
import math
import pickle
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from tests.live.small_loops import State, Trainer, check, descend, first, trainer, weights


class OwnBar:
    """A progress bar as people write it: it draws every few steps, and knows the best loss so far."""

    def __init__(self) -> None:
        self.n = self.last = 0
        self.best = math.inf

    def update(self, loss: float) -> None:
        self.n += 1
        if loss < self.best:
            self.best = loss
        if self.n - self.last >= 3:
            self.last = self.n
            self.draw()

    def draw(self) -> None:
        sys.stderr.write("#" * self.n + f" best {self.best:.3f}")
        sys.stderr.flush()


class Stopper:
    """What looks like a bar and decides: something else takes what it keeps."""

    def __init__(self) -> None:
        self.low, self.bad = math.inf, 0

    def update(self, loss: float) -> None:
        if loss < self.low:
            self.low, self.bad = loss, 0
        else:
            self.bad += 1
        print(self.low)

    def is_over(self) -> bool:
        return self.bad > 50


def tells_a_bar(state: State, number: int) -> None:
    state.own_bar.update(descend(state, number))


def tells_a_stopper(state: State, number: int) -> None:
    state.stopper.update(descend(state, number))
    if state.stopper.is_over():
        raise StopIteration


def test_a_bar_of_ones_own_decides_nothing() -> None:
    found = check(trainer(weights(own_bar=OwnBar()), tells_a_bar))
    assert found.verdict == "holds", found
    assert "state.own_bar.n" in {one.path for one in found.bookkeeping}


def test_what_is_called_as_a_bar_and_decides_is_lost() -> None:
    assert check(trainer(weights(stopper=Stopper()), tells_a_stopper)).verdict == "holds"
    assert first(check(trainer(weights(stopper=Stopper()), tells_a_stopper, ("stopper",)))).startswith(
        "state.stopper"
    )


class Pool:
    """Buffers that are used again; it counts, and keeps at most so many."""

    def __init__(self) -> None:
        self.free: list[np.ndarray] = []
        self.rented = 0

    def rent(self) -> np.ndarray:
        self.rented += 1
        if self.free:
            return self.free.pop()
        return np.empty(2)

    def back(self, buffer: np.ndarray) -> None:
        if len(self.free) >= 32 or self.rented > 500:
            return
        self.free.append(buffer)


def with_buffers(state: State, number: int) -> None:
    buffer = state.own_pool.rent()
    np.multiply(state.w - math.sin(number), 0.3, out=buffer)
    state.w = state.w - buffer
    state.own_pool.back(buffer)


def with_what_is_left(state: State, number: int) -> None:
    taken = state.pool.rent()
    state.w = state.w - 0.1 * (state.w - math.sin(number)) - 0.01 * np.nan_to_num(taken) * (state.pool.rented > 1)
    state.pool.back(state.w * 0.5)


def test_a_pool_of_buffers_is_made_again_and_work_that_is_left_over_is_lost() -> None:
    found = check(trainer(weights(own_pool=Pool()), with_buffers))
    assert found.verdict == "holds", found
    assert check(trainer(weights(pool=Pool()), with_what_is_left)).verdict == "holds"
    assert first(check(trainer(weights(pool=Pool()), with_what_is_left, ("pool",)))).startswith("state.pool")


def reporting(*, lost: bool, wrong: bool = False) -> Trainer:
    """Return a trainer that saves every five steps and reports every four, under names with the time."""

    def train(folder: Path, steps: int) -> Iterator[int]:
        w, n, clipped, path = np.ones(2), 0, 0, folder / "state.pkl"
        if path.exists():
            w, n, kept = pickle.loads(path.read_bytes())
            clipped = 0 if lost else kept
        while n < steps:
            yield n
            w = w - 0.3 * (w - math.sin(n))
            clipped += int(math.sin(n) > 0)
            n += 1
            if n % 4 == 0:
                report = {"step": n, "clipped": 0 if wrong else clipped}
                (folder / f"report-{time.time_ns()}.json").write_text(json.dumps(report))
            if n % 5 == 0:
                path.write_bytes(pickle.dumps((w, n, 0 if lost else clipped)))
        return w

    return train


def test_a_report_that_a_step_writes_once_more_is_listed_and_another_one_is_lost() -> None:
    found = check(reporting(lost=False))
    assert found.verdict == "holds", found
    assert any("report-" in one.path for one in found.bookkeeping)
    assert check(reporting(lost=True)).verdict == "broken"


def validating(kind: str) -> Trainer:
    """Return a trainer with a plateau that is counted in validations, and what a validation changes on its way."""

    def train(folder: Path, steps: int, save_every: int = 4, validate_every: int = 2) -> Iterator[int]:
        rng, w, n, rate, best, bad, calls = np.random.default_rng(1), np.zeros(2), 0, 0.3, math.inf, 0, 0
        path = folder / "state.pkl"
        if path.exists():
            w, n, rate, best, bad, calls, kept = pickle.loads(path.read_bytes())
            rng.bit_generator.state = kept
        while n < steps:
            yield n
            calls += 1
            noise = rng.normal() if kind == "draws" else math.cos(7 * n)
            w = w - rate * (w - math.sin(n) + 0.1 * noise) * (0.9 if calls > 12 and kind == "counts" else 1)
            n += 1
            if n % validate_every == 0:
                calls += 1
                loss = float(w @ w) + (rng.normal() if kind == "draws" else 0.0)
                if loss < best:
                    best, bad = loss, 0
                else:
                    bad += 1
                if bad >= 2:
                    rate, bad = rate * 0.5, 0
            if n % save_every == 0:
                path.write_bytes(pickle.dumps((w, n, rate, best, bad, calls, rng.bit_generator.state)))
        return w

    return train


def test_a_plateau_that_is_counted_in_validations_is_another_run_with_another_interval() -> None:
    found = check(validating("plateau"), scenarios=("kill", "intervals"))
    assert found.verdict == "holds", found
    assert any("bad >= 2" in note and "test_own_meters.py:" in note for note in found.notes), found.notes


@pytest.mark.parametrize("kind", ["draws", "counts"])
def test_what_a_validation_changes_on_its_way_is_lost_beside_a_plateau(kind: str) -> None:
    found = check(validating(kind), scenarios=("intervals",))
    assert found.verdict == "broken", found


def telling(*, lost: bool) -> Trainer:
    """Return a trainer that tells an event once, in a text of its folder, and each process how it began."""

    def train(folder: Path, steps: int) -> Iterator[int]:
        w, n, told, path, text = np.ones(2), 0, False, folder / "state.pkl", folder / "events.txt"
        if path.exists():
            w, n, kept = pickle.loads(path.read_bytes())
            told = False if lost else kept
        with text.open("a") as file:
            file.write("begun anew\n" if n == 0 else f"goes on after {n} steps\n")
        while n < steps:
            yield n
            w = w - 0.3 * (w - math.sin(n))
            n += 1
            if float(w @ w) < 0.5 and not told:
                told = True
                with text.open("a") as file:
                    file.write(f"low at step {n}\n")
            if n % 4 == 0:
                path.write_bytes(pickle.dumps((w, n, told)))
        return w

    return train


def test_an_event_that_a_resumed_run_tells_again_is_lost_and_how_it_began_is_not() -> None:
    found = check(telling(lost=False))
    assert found.verdict == "holds", found
    assert found.bookkeeping == ()
    assert first(check(telling(lost=True))) == "told"


def counting_restarts(*, lost: bool) -> Trainer:
    """Return a trainer whose checkpoint says how often it was started again, and how many steps were skipped."""

    def train(folder: Path, steps: int) -> Iterator[int]:
        w, n, restarts, skipped, path = np.ones(2), 0, 0, 0, folder / "state.pkl"
        if path.exists():
            w, n, restarts, skipped = pickle.loads(path.read_bytes())
            restarts += 1
            skipped += 3 * lost
        while n < steps:
            yield n
            w = w - 0.3 * (w - math.sin(n))
            n += 1
            if n % 4 == 0:
                path.write_bytes(pickle.dumps((w, n, restarts, skipped)))
        return w

    return train


def test_a_count_of_restarts_in_the_checkpoint_is_listed_and_another_number_is_lost() -> None:
    found = check(counting_restarts(lost=False), scenarios=("kill", "again", "third"))
    assert found.verdict == "holds", found
    assert any(one.path.startswith("state.pkl") for one in found.bookkeeping)
    other = check(counting_restarts(lost=True), scenarios=("kill",))
    assert other.verdict == "broken"
    assert "skipped" in {one.path for one in other.suspects}


def recording(kind: str, *, lost: bool = False) -> Trainer:
    """Return a trainer that records an event once, as an element, a line or a document, by a flag that it saves."""

    def train(folder: Path, steps: int) -> Iterator[int]:
        w, n, told, warm, events, path = np.ones(2), 0, False, False, [], folder / "state.pkl"
        if path.exists():
            w, n, kept, events = pickle.loads(path.read_bytes())
            told = False if lost else kept
        while n < steps:
            yield n
            w = w - 0.3 * (w - math.sin(n))
            n += 1
            if not warm:  # of each process
                warm = True
                (folder / "warm.txt").write_text("made\n")
            if float(w @ w) < 0.6 and n % 5 == 4 and not told:
                told = True
                if kind == "element":
                    events.append(n)
                else:
                    with (folder / "events.csv").open("a") as file:
                        file.write(f"{n},{float(w @ w):.3f}\n")
            if n % 4 == 0:
                path.write_bytes(pickle.dumps((w, n, told, events)))
        return w

    return train


@pytest.mark.parametrize("kind", ["element", "line"])
def test_an_event_that_is_recorded_once_more_is_a_loss_of_its_flag(kind: str) -> None:
    assert check(recording(kind)).verdict == "holds"
    assert first(check(recording(kind, lost=True))) == "told"


class Log:
    """Lines of a file that is kept open, as long as it is loud."""

    def __init__(self, path: Path) -> None:
        self.file, self.loud = path.open("a"), True

    def tell(self, text: str) -> None:
        if self.loud:
            print(text, file=self.file, flush=True)


def logging_at_first(*, lost: bool) -> Trainer:
    """Return a trainer whose log falls silent at a step, and whose processes say how they begin."""

    def train(folder: Path, steps: int) -> Iterator[int]:
        w, n, log, path = np.ones(2), 0, Log(folder / "train.log"), folder / "state.pkl"
        try:
            if path.exists():
                w, n = pickle.loads(path.read_bytes())
                log.tell(f"goes on after {n}")
                log.loud = lost or n < 7
            while n < steps:
                yield n
                log.loud = log.loud and n != 7
                w = w - 0.3 * (w - math.sin(n))
                n += 1
                log.tell(f"step {n} of many")
                if n % 4 == 0:
                    path.write_bytes(pickle.dumps((w, n)))
        finally:
            log.file.close()
        return w

    return train


def test_lines_that_the_resumed_run_alone_adds_are_listed() -> None:
    assert check(logging_at_first(lost=False), scenarios=("kill",)).verdict == "holds"
    found = check(logging_at_first(lost=True), scenarios=("kill",))
    assert any(one.path.startswith("train.log: step 15") for one in found.bookkeeping), found
