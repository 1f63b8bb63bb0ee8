"""A block that is read ahead and the place in it are others in each process; what is handed out is the same."""

import asyncio
import pickle
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import parity
from parity.capture import Leaf, StateSnapshot
from parity.checks.judging import Evidence, Outcome, TwoStates, gives_alike
from parity.checks.resume.blocks_ahead import settle_blocks
from parity.checks.running import Mark, Trace

Trainer = Callable[..., Any]


def line(number: int) -> str:
    return f"{number * 7 % 11} {number * 5 % 13}"


class Reader:
    """Takes lines by blocks, and hands out one after the other."""

    def __init__(self, start: int, size: int) -> None:
        self.start, self.size, self.block, self.at = start, size, list[str](), 0

    def next(self) -> str:
        if self.at >= len(self.block):
            self.block, self.at = [line(self.start + i) for i in range(self.size)], 0
            self.start += self.size
        self.at += 1
        return self.block[self.at - 1]


class Q:
    """The same under names that mean nothing, of pairs."""

    def __init__(self, a: int, b: int) -> None:
        self.a, self.b, self.c, self.d = a, b, list[tuple[str, int]](), 0

    def f(self) -> str:
        if self.d == len(self.c):
            self.c, self.d = [(line(self.a + i), self.a + i) for i in range(self.b)], 0
            self.a += self.b
        self.d += 1
        return self.c[self.d - 1][0]

    next = f


def of_lines(folder: Path, steps: int, *, made: Any = Reader, lost: str = "", size: int = 5) -> Iterator[int]:
    w, rate, n, file = np.ones(2), 0.5, 0, folder / "state"
    if file.exists():
        w, rate_then, n = pickle.loads(file.read_bytes())
        rate = rate if lost == "rate" else rate_then
    source = made(1 if lost == "place" and n else n, size)
    while n < steps:
        yield n
        w = w - 0.1 * rate * (w - np.array([float(one) for one in source.next().split()]))
        rate, n = 0.97 * rate, n + 1
        if n % 4 == 0:
            file.write_bytes(pickle.dumps((w, rate, n)))


def of_an_order(folder: Path, steps: int, *, lost: str = "") -> Iterator[int]:
    """An order that is kept with the place in it: a lost place gives others."""
    w, order, at, n, file, rng = np.ones(2), list[int](), 0, 0, folder / "state", np.random.default_rng(3)
    if file.exists():
        w, order, at_then, n, drawn = pickle.loads(file.read_bytes())
        at = at if lost == "at" else at_then
        rng.bit_generator.state = drawn
    while n < steps:
        yield n
        if at >= len(order):
            order, at = rng.permutation(5).tolist(), 0
        w = w - 0.1 * (w - np.sin(order[at] + np.arange(2)))
        at, n = at + 1, n + 1
        if n % 4 == 0:
            file.write_bytes(pickle.dumps((w, order, at, n, rng.bit_generator.state)))


@dataclass(order=True)
class Job:
    rank: int
    x: Any = field(compare=False)


def of_jobs(folder: Path, steps: int, *, lost: str = "") -> None:
    """Two tasks make jobs for two queues, which hold another number of them in another process."""

    async def make(queue: asyncio.Queue[Job], number: int) -> None:
        while True:
            await queue.put(Job(number, np.random.default_rng(number).normal(size=3)))
            number += 2

    async def learn() -> None:
        w, rate, done, file = np.zeros(3), 0.5, 0, folder / "state"
        if file.exists():
            w, rate_then, done = pickle.loads(file.read_bytes())
            rate = rate if lost == "rate" else rate_then
        queues: list[asyncio.PriorityQueue[Job]] = [asyncio.PriorityQueue(2) for _ in range(2)]
        tasks = [asyncio.create_task(make(queues[(done + i) % 2], done + i)) for i in range(2)]
        while done < steps:
            parity.mark(done)
            job = await queues[done % 2].get()
            assert job.rank == done
            w, rate, done = w - 0.1 * rate * (w - job.x), 0.97 * rate, done + 1
            if done % 3 == 0:
                file.write_bytes(pickle.dumps((w, rate, done)))
        for task in tasks:
            task.cancel()

    asyncio.run(learn())


def judged(train: Trainer, *scenarios: str, **options: Any) -> Any:
    steps = options.pop("steps", 19)
    given: dict[str, Any] = {"steps": steps, "stop_at": 10, "mode": "inline", "options": options or None}
    return parity.resumes(train, scenarios=scenarios or ("kill", "third"), **given)


@pytest.mark.parametrize("made", [Reader, Q])
def test_a_block_that_is_read_ahead_is_no_loss(made: Any) -> None:
    assert judged(of_lines, made=made).verdict == "holds"
    assert judged(of_lines, "kill", made=made, size=4).verdict == "holds"  # nothing is left at the kill
    assert judged(of_lines, "kill", made=made, lost="rate").suspects[0].path == "rate"
    assert judged(of_lines, "kill", made=made, lost="place").verdict == "broken"


def test_a_place_in_what_is_kept_is_a_loss() -> None:
    assert judged(of_an_order, "kill").verdict == "holds"
    assert judged(of_an_order, "kill", lost="at").suspects[0].path == "at"


def test_jobs_that_wait_in_several_queues_are_no_loss() -> None:
    assert judged(of_jobs, "kill").verdict == "holds"
    assert judged(of_jobs, "kill", lost="rate").suspects[0].path == "rate"


class Rows:
    """Takes eight rows of an array at once, and hands out one after the other."""

    def __init__(self, rows: Any, start: int) -> None:
        self.rows, self.start, self.at = rows, start, 0
        self.block: Any = None

    def next(self) -> Any:
        if self.block is None or self.at == len(self.block):
            self.block, self.at = np.array(self.rows[self.start : self.start + 8]), 0
            self.start += 8
        self.at += 1
        return self.block[self.at - 1]


class R:
    """The same under names that mean nothing, with the place counted in advance."""

    def __init__(self, a: Any, b: int) -> None:
        self.a, self.b, self.c, self.d = a, b, np.empty((0, 4)), 0

    def next(self) -> Any:
        if self.d >= self.c.shape[0]:
            self.c, self.d, self.b = self.a[self.b : self.b + 5].copy(), 0, self.b + 5
        x, self.d = self.c[self.d], self.d + 1
        return x


class Pairs(Rows):
    """Two arrays with one place."""

    def next(self) -> Any:
        if self.block is None or self.at == len(self.block):
            self.block, self.at = np.array(self.rows[self.start : self.start + 8]), 0
            self.sums = self.block.sum(1)
            self.start += 8
        self.at += 1
        return self.block[self.at - 1] * self.sums[self.at - 1]


class Front(Rows):
    """What was handed out is cut off at the front; there is no place."""

    def next(self) -> Any:
        if self.block is None or not len(self.block):
            self.block = self.rows[self.start : self.start + 5].copy()
            self.start += 5
        row, self.block = self.block[0], self.block[1:]
        return row


class Two(Rows):
    """A second block waits behind the first."""

    def __init__(self, rows: Any, start: int) -> None:
        self.rows, self.at, self.start = rows, 0, start + 10
        self.block, self.behind = rows[start : start + 5].copy(), rows[start + 5 : start + 10].copy()

    def next(self) -> Any:
        if self.at == 5:
            self.block, self.behind, self.at = self.behind, self.rows[self.start : self.start + 5].copy(), 0
            self.start += 5
        self.at += 1
        return self.block[self.at - 1]


def of_rows(folder: Path, steps: int, *, made: Any = Rows, lost: str = "") -> Iterator[int]:
    w, m, n, file = np.zeros(4), np.zeros(4), 0, folder / "state.npz"
    if file.exists():
        with np.load(file) as saved:
            w, n = saved["w"], int(saved["n"])
            m = m if lost == "m" else saved["m"]
    source = made(np.random.default_rng(1).normal(size=(80, 4)), 0 if lost == "place" else 2 * n)
    while n < steps:
        yield n
        for _ in range(2):
            m = 0.9 * m + (w - source.next())
            w = w - 0.05 * m
        n += 1
        if n % 3 == 0:
            np.savez(file, w=w, m=m, n=n)


def of_a_kept_block(folder: Path, steps: int, *, lost: str = "") -> Iterator[int]:
    """A block that is kept with the place in it, and drawn anew when it is used up: a lost place gives other rows."""
    w, block, at, n, file = np.zeros(4), np.zeros((0, 4)), 0, 0, folder / "state.npz"
    if file.exists():
        with np.load(file) as saved:
            w, block, n = saved["w"], saved["block"], int(saved["n"])
            at = at if lost == "at" else int(saved["at"])
    while n < steps:
        yield n
        if at == len(block):
            block, at = np.random.default_rng(n).normal(size=(6, 4)), 0
        w, at, n = w - 0.1 * (w - block[at]), at + 1, n + 1
        if n % 3 == 0:
            np.savez(file, w=w, block=block, at=at, n=n)


@pytest.mark.parametrize("made", [Rows, R, Pairs, Front, Two])
@pytest.mark.parametrize("scenario", ["kill", "third"])
def test_rows_that_are_read_ahead_are_no_loss(made: Any, scenario: str) -> None:
    found = judged(of_rows, scenario, made=made, steps=26)
    assert found.verdict == "holds", found.text()
    assert found.bookkeeping


@pytest.mark.parametrize("made", [Pairs, Front, Two])
def test_rows_of_another_place_are_lost(made: Any) -> None:
    assert judged(of_rows, made=made, steps=26, lost="place").verdict == "broken"


@pytest.mark.parametrize(("lost", "names"), [("m", ("m",)), ("place", ("source.start", "source.at"))])
def test_what_is_lost_beside_rows_is_named_first(lost: str, names: tuple[str, ...]) -> None:
    found = judged(of_rows, lost=lost, steps=22)
    assert found.verdict == "broken"
    assert found.suspects[0].path in names


def test_a_lost_place_in_a_block_that_is_kept_is_lost() -> None:
    assert judged(of_a_kept_block, steps=22).verdict == "holds"
    found = judged(of_a_kept_block, lost="at", steps=22)
    assert (found.verdict, found.suspects[0].path) == ("broken", "at")


def of_leftovers(folder: Path, steps: int, *, lost: str = "") -> Iterator[int]:
    """Documents of five numbers, packed into rows of four: what is left over is kept with the state."""
    docs, file = np.random.default_rng(4).normal(size=(90, 5)), folder / "state.npz"
    w, left, doc, n = 0.0, np.zeros(0), 0, 0
    if file.exists():
        with np.load(file) as saved:
            w, doc, n = float(saved["w"]), int(saved["doc"]), int(saved["n"])
            left = left if lost == "left" else saved["left"]
    while n < steps:
        yield n
        while len(left) < 4:
            left, doc = np.concatenate([left, docs[doc]]), doc + 1
        row, left = left[:4], left[4:]
        w, n = w - 0.1 * (w - float(row.sum())), n + 1
        if n % 3 == 0:
            np.savez(file, w=w, left=left, doc=doc, n=n)


def test_lost_leftovers_are_lost() -> None:
    assert judged(of_leftovers, steps=22).verdict == "holds"
    found = judged(of_leftovers, lost="left", steps=22)
    assert (found.verdict, found.suspects[0].path) == ("broken", "left")


def test_too_few_rows_tell_nothing() -> None:
    """No block comes to its end in the resumed run: that the next one would be alike was not seen."""
    found = judged(of_rows, "kill", steps=13)
    assert found.verdict == "inconclusive"
    assert any("what is left of the block that was read ahead is the same" in note for note in found.notes)
    assert judged(of_rows, "kill", steps=13, lost="m").verdict == "broken"
    assert judged(of_rows, "kill", steps=13, lost="place").verdict == "broken"


def courses(*marks: tuple[int, int, str, str]) -> tuple[list[tuple[int, int]], list[tuple[str, str]]]:
    return [(here, there) for here, there, *_ in marks], [(own, other) for *_, own, other in marks]


ALIKE = [(2, 0, "cd", "cdef"), (3, 1, "d", "def"), (4, 2, "", "ef"), (1, 3, "fgh", "f"), (2, 0, "gh", "ghij")]


@pytest.mark.parametrize(
    ("marks", "expected"),
    [
        (ALIKE, True),
        (ALIKE[:2], None),  # no block came to its end
        ([*ALIKE[:4], (2, 0, "gh", "xhij")], False),  # another value
        ([(here, there, "a" * len(own), "a" * len(other)) for here, there, own, other in ALIKE], False),  # one value
        ([(4, 0, "", "abcd"), (1, 1, "bcd", "bcd"), (2, 2, "cd", "cd")], True),  # one reads what the other has
        ([(4, 0, "", "abcd"), (1, 1, "xcd", "bcd"), (2, 2, "cd", "cd")], False),
    ],
)
def test_what_is_left_is_compared_value_by_value(marks: list[Any], expected: bool | None) -> None:
    assert gives_alike(*courses(*marks)) is expected


def test_nothing_is_run_once_more_where_something_else_is_lost() -> None:
    def snapshot(place: str, block: str) -> StateSnapshot:
        return StateSnapshot({
            "at": Leaf("scalar", "at", "int", place), "rows": Leaf("array", "rows", "float64[4x2]", block),
            "rate": Leaf("scalar", "rate", "float", place),
        })  # fmt: skip

    states = [TwoStates(3, snapshot("1", "a"), snapshot("2", "b"))]
    asked: list[object] = []

    def run(keep: object) -> Trace:
        asked.append(keep)
        return Trace()

    def lost(*paths: str) -> Outcome:
        return Outcome(broken=[Evidence(path, path, 3, "1", "2", "at the resume") for path in paths])

    settle_blocks(other := lost("at", "rate"), states, run, run)
    assert len(other.broken) == 2
    assert not asked
    settle_blocks(alone := lost("at"), states, run, run)  # the runs do not repeat what they are to repeat
    assert len(alone.broken) == 1
    assert len(asked) == 2


@pytest.mark.parametrize("repeats", [True, False])
def test_runs_that_do_not_repeat_what_was_seen_tell_nothing(repeats: bool) -> None:
    """Their rows are alike, and are not those of the runs that are judged."""
    states, runs = [], (Trace(), Trace())
    for step, (here, there, own, other) in enumerate(ALIKE):
        sides = []
        for run, place, left in zip(runs, (here, there), (own, other), strict=True):
            leaf = Leaf("array", "rows", "str[8]", f"{place}{left}")
            seen = StateSnapshot({"at": Leaf("scalar", "at", "int", str(place)), "rows": leaf})
            kept = leaf if repeats else Leaf("array", "rows", "str[8]", "others")
            values = {"rows": np.array(list("-" * place + left))}
            run.marks.append(Mark(step, StateSnapshot({**seen.leaves, "rows": kept}, values=values)))
            sides.append(seen)
        states.append(TwoStates(step, *sides))
    outcome = Outcome(broken=[Evidence("at", "at", 0, "2", "0", "at the resume")])
    settle_blocks(outcome, states, lambda keep: runs[0], lambda keep: runs[1])
    assert (outcome.broken == []) == repeats


def test_a_gradient_that_each_step_makes_anew_is_no_block_and_a_count_beside_it_no_place() -> None:
    def counts(folder: Path, steps: int) -> Iterator[int]:
        w, n, strikes, rate = np.ones(3), 0, 0, 0.1
        file = folder / "state"
        if file.exists():
            w, n, rate = pickle.loads(file.read_bytes())
        while n < steps:
            yield n
            slope = np.cos(w + n)
            strikes = strikes + 1 if n % 3 else 0
            if strikes > 2:
                rate *= 0.5
            w = w - rate * slope
            n += 1
            file.write_bytes(pickle.dumps((w, n, rate)))

    found = parity.resumes(counts, steps=14, stop_at=8, mode="inline", scenarios="kill")
    assert [(e.path, found.verdict) for e in found.suspects[:1]] == [("strikes", "broken")], found.text()
