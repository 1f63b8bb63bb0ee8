"""Numbers of a process that decide only about themselves and what is shown, and those that decide more."""

import ast
import json
import logging
import pickle
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import parity
from parity.checks.judging.closed import is_closed
from parity.checks.judging.syntax import source_tree
from parity.results import Resumption

HEAD = """
class Kept:
    def __init__(self):
        self.rows, self.trims, self.top, self.bins, self.counts = [], 0, 0.05, [0, 0], {}
        self.best = None
"""

CLOSED = {
    "a tail that is cut": """
        def add(self, line):
            self.rows.append(line)
            if len(self.rows) > 4:
                self.rows = self.rows[-2:]
                self.trims += 1
    """,
    "a histogram that widens": """
        def add(self, x):
            while x >= self.top:
                self.top *= 2
                self.bins = [self.bins[0] + self.bins[1], 0]
            self.bins[int(x / self.top)] += 1
            print(self.bins)
    """,
    "a message that is limited": """
        def ok(self, kind):
            self.counts[kind] = self.counts.get(kind, 0) + 1
            return self.counts[kind] <= 3
        def tell(self, text):
            if self.ok("told"):
                print(text)
    """,
    "an early return": """
        def add(self, x):
            if self.trims > 5:
                return
            self.trims += 1
            self.rows.append(x)
            print(len(self.rows))
    """,
    "the best of this process, in two at once": """
        def add(self, x, n):
            if x < self.top:
                self.top, self.trims = x, n
            print(self.top, self.trims)
    """,
    "a reservoir with a generator of its own": """
        def see(self, n):
            self.trims += 1
            if len(self.rows) < 3:
                self.rows.append(n)
            elif (k := self.own.randrange(self.trims)) < 3:
                self.rows[k] = n
            print(self.rows)
    """,
    "the largest gradient and its name": """
        def see(self, model):
            for name, p in model.named_parameters():
                if p.grad.norm().item() > self.top:
                    self.top, self.best = p.grad.norm().item(), name
            print(self.best)
    """,
    "a function of a library under another name": """
    import numpy as arrays
    class Own:
        def add(self, x):
            self.top = arrays.maximum(self.top, x)
            if self.top > 5:
                self.rows = self.rows[-2:]
                self.top = arrays.sqrt(self.top)
            print(self.rows)
    """,
    "a filter of logging": """
    import logging
    class Filter(logging.Filter):
        def filter(self, record):
            self.told = getattr(self, "told", 0) + 1
            return self.told < 4
    """,
}

REACHING = {
    "what is returned": """
        def add(self, x):
            if self.trims > 5:
                self.rows = self.rows[-2:]
            return self.rows
    """,
    "a call of anything else": """
        def add(self, x):
            if self.trims > 5:
                self.rows = []
            x.step(self.rows)
    """,
    "a loop that ends": """
        def ok(self, x):
            self.best = min(self.best or x, x)
            return self.best < x
        def run(self, model):
            for row in self.rows:
                if self.ok(row):
                    break
                model.step(row)
    """,
    "an error": """
        def add(self, x):
            if self.trims > 5:
                self.rows = []
            assert len(self.rows) < 100
    """,
    "by its text": """
        def add(self, x):
            if self.trims > 5:
                self.rows = []
            x.step(getattr(self, "rows"))
    """,
    "a method that the trainer defines": """
        def update(self, model):
            model.step()
        def add(self, x):
            if self.trims > 5:
                self.best.update(x)
    """,
    "a draw from a generator that trains": """
        def add(self, x):
            if self.trims > 5:
                self.rows[0] = self.rng.random()
        def batch(self, data):
            return data[self.rng.randint(0, 5)]
    """,
    "an object called as a library mostly is": """
    import own as np
    class Own:
        def add(self, x):
            if self.trims > 5:
                self.rows = self.rows[-2:]
            return print(np.maximum(self.rows, x))
    """,
    "a library that is set otherwise": """
    import numpy as np
    class Own:
        def add(self, np):
            if self.trims > 5:
                self.rows = self.rows[-2:]
            self.top = np.maximum(self.rows, 0)
    """,
    "a library that fills what it is given": """
    import numpy as np
    class Own:
        def add(self, model):
            if self.trims > 5:
                self.rows = self.rows[-2:]
            self.top = np.multiply(model, self.rows, out=model)
    """,
    "a property": """
        @property
        def full(self):
            return self.trims > 5
    """,
    "a base that is not seen": """
    import torch
    class Schedule(torch.optim.lr_scheduler.LRScheduler):
        def add(self, x):
            if self.trims > 5:
                self.base_lrs = self.base_lrs[:1]
    """,
    "a function that is handed on": """
        def ok(self, x):
            return self.trims < 5
        def run(self, model):
            model.when(self.ok)
    """,
}


def first_of(source: str, file: Path) -> tuple[ast.AST, str]:
    """Return the first statement that decides, with its file."""
    body = textwrap.dedent(source)
    file.write_text(HEAD + (body if "class " in body else textwrap.indent(body, "    ")))
    kinds = ast.If | ast.While | ast.Return
    tests = [one for one in ast.walk(source_tree(str(file))) if isinstance(one, kinds) and _compares(one)]
    return min(tests, key=lambda one: one.lineno), str(file)


def _compares(node: ast.AST) -> bool:
    part = getattr(node, "test", getattr(node, "value", None))
    return part is not None and any(isinstance(one, ast.Compare) for one in ast.walk(part))


@pytest.mark.parametrize("name", CLOSED)
def test_what_comes_back_to_itself_is_closed(name: str, tmp_path: Path) -> None:
    node, file = first_of(CLOSED[name], tmp_path / "loop.py")
    assert is_closed(node, file, (file,))


@pytest.mark.parametrize("name", REACHING)
def test_what_reaches_anything_else_is_not(name: str, tmp_path: Path) -> None:
    node, file = first_of(REACHING[name], tmp_path / "loop.py")
    assert not is_closed(node, file, (file,))


def test_another_file_may_take_it(tmp_path: Path) -> None:
    node, file = first_of(CLOSED["a tail that is cut"], tmp_path / "loop.py")
    other = tmp_path / "other.py"
    other.write_text("def use(kept, model):\n    model.step(kept.trims)\n")
    assert not is_closed(node, file, (file, str(other)))


class Tail:
    def __init__(self) -> None:
        self.rows: list[str] = []
        self.trims = 0

    def add(self, line: str) -> None:
        self.rows.append(line)
        if len(self.rows) > 4:
            self.rows = self.rows[-2:]
            self.trims += 1


class Limit(logging.Filter):
    def __init__(self) -> None:
        super().__init__()
        self.told: dict[str, int] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        self.told[record.msg] = self.told.get(record.msg, 0) + 1
        return self.told[record.msg] <= 3


def shown(folder: Path) -> Iterator[int]:
    """Keep the last lines for people, and tell each message three times per process at most."""
    tail, log, file = Tail(), logging.getLogger("shown"), folder / "state.json"
    log.filters = [Limit()]
    w, v, step = np.zeros(2), np.zeros(2), 0
    if file.exists():
        found = json.loads(file.read_text())
        w, v, step = np.array(found["w"]), np.array(found["v"]), found["step"]
        log.warning("resumed at %d", step)
    while step < 24:
        yield step
        v = 0.9 * v + w - [np.sin(step), np.cos(step)]
        w = w - 0.1 * v
        step += 1
        tail.add(f"{step} {w[0]:.3f}")
        if step % 4 == 0:
            file.write_text(json.dumps({"w": w.tolist(), "v": v.tolist(), "step": step}))
            log.warning("saved %d", step)


class Cache:
    def __init__(self) -> None:
        self.made: dict[int, float] = {}
        self.missed, self.most = 0, 3

    def get(self, key: int) -> float:
        if key not in self.made:
            self.missed += 1
            if self.missed > 100:
                self.most *= 2
            while len(self.made) >= self.most:
                self.made.pop(next(iter(self.made)))
            self.made[key] = 0.1 * key
        return self.made[key]


def cached(folder: Path) -> Iterator[int]:
    """Take values of their keys from a cache that grows after many misses of this process."""
    cache, w, step, file = Cache(), np.zeros(2), 0, folder / "state.pkl"
    if file.exists():
        w, step = pickle.loads(file.read_bytes())
    while step < 24:
        yield step
        w = 0.9 * w + cache.get(step % 6)
        step += 1
        if step % 4 == 0:
            file.write_bytes(pickle.dumps((w, step)))


def slowed(folder: Path, numbers: bool = False) -> Iterator[int]:
    """Lower the rate after so many bad steps, which come after the run that is checked."""
    bad, rate, step, file = 0, 0.1, 0, folder / "state.pkl"
    w: Any = [0.0, 0.0] if numbers else np.zeros(2)
    if file.exists():
        w, step = pickle.loads(file.read_bytes())
    while step < 24:
        yield step
        w = [0.9 * one + rate * (0.3 + step) for one in w] if numbers else 0.9 * w + rate * (0.3 + step)
        bad += step % 3 == 0
        if bad > 50:
            rate *= 0.5
        step += 1
        if step % 4 == 0:
            file.write_bytes(pickle.dumps((w, step)))


def judged(train: Any, **options: Any) -> Resumption:
    return parity.resumes(train, steps=24, stop_at=15, mode="inline", scenarios="kill", options=options)


@pytest.mark.parametrize("train", [shown, cached])
def test_numbers_of_a_process_that_decide_about_themselves_are_no_loss(train: Any) -> None:
    assert judged(train).verdict == "holds"


@pytest.mark.parametrize("numbers", [False, True])
def test_a_count_that_would_lower_the_rate_is_lost(numbers: bool) -> None:
    found = judged(slowed, numbers=numbers)
    assert (found.verdict, found.suspects[0].path) == ("broken", "bad")
