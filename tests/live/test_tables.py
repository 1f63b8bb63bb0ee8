"""What a loop makes again on demand is no loss; what it would make otherwise, or decides by, is one."""

import ast
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import parity
from parity.capture import Leaf, StateSnapshot
from parity.checks.judging.differences import Differences
from parity.checks.judging.evidence import TwoStates
from parity.checks.judging.tables import is_table
from parity.results import Resumption

Array = np.ndarray[Any, Any]
Trainer = Callable[[Path, int], Iterator[int]]
SIZES = (5, 3, 7, 3, 4, 2, 6, 8, 3, 5, 4, 2)


def save(folder: Path, **state: Any) -> None:
    with (folder / "next.npz").open("wb") as file:
        np.savez(file, **state)
    os.replace(folder / "next.npz", folder / "state.npz")


def load(folder: Path) -> dict[str, Any] | None:
    file = folder / "state.npz"
    return dict(np.load(file)) if file.exists() else None


def rows(step: int, size: int = 6) -> Array:
    return np.random.default_rng(step).normal(size=(size, 3))


def gradient(w: Array, step: int) -> Array:
    x = rows(step)
    return x.T @ (x @ (w - np.array([1.0, 2.0, 3.0]))) / len(x)


def check(train: Trainer, **options: Any) -> Resumption:
    options = {"steps": 12, "stop_at": 6, "mode": "inline", "scenarios": ("kill", "third"), **options}
    return parity.resumes(train, **options)


def listed(found: Resumption) -> set[str]:
    return {one.path for one in found.bookkeeping}


def tables(*, of_data: bool) -> Trainer:
    """Return a trainer with a table for each length: a function of the length, or of the first batch of it."""

    def train(folder: Path, steps: int) -> Iterator[int]:
        w, start, made = np.zeros(3), 0, dict[int, Array]()

        def table(n: int, x: Array) -> Array:
            if n not in made:
                made[n] = x.mean(0) if of_data else np.full(3, 1.0 / n)
            return made[n]

        if (state := load(folder)) is not None:
            w, start = state["w"], int(state["step"])
        for step in range(start, steps):
            x = rows(step, SIZES[step])
            w = w - 0.1 * (x.T @ (x @ w - 1.0)) / len(x) + 0.01 * table(len(x), x)
            save(folder, w=w, step=step + 1)
            yield step + 1

    return train


def test_a_dict_of_tables_that_is_filled_on_demand_is_no_loss() -> None:
    found = check(tables(of_data=False))
    assert found.verdict == "holds", found.text()
    assert {"made.len", "made[8]"} <= listed(found)


def test_a_dict_of_what_was_first_seen_is_lost() -> None:
    found = check(tables(of_data=True))
    assert found.verdict == "broken", found.text()
    assert found.suspects[0].path.startswith("made"), found.text()


def two_levels(*, of_data: bool) -> Trainer:
    """Return a trainer with rows by number in a dict before files: of the number, or the dict alone of a batch."""

    def train(folder: Path, steps: int) -> Iterator[int]:
        w, start, known, misses = np.zeros(3), 0, dict[int, Array](), 0
        (folder / "rows").mkdir(exist_ok=True)

        def row(n: int, x: Array) -> Array:
            nonlocal misses
            if n not in known:
                place = folder / "rows" / f"{n}.npy"
                if not place.exists():
                    np.save(place, np.full(3, 1.0 / (n + 1)))
                    misses += 1
                known[n] = np.load(place) + (x.mean(0) if of_data else 0)
            return known[n]

        if (state := load(folder)) is not None:
            w, start = state["w"], int(state["step"])
        for step in range(start, steps):
            x = rows(step)
            w = w - 0.1 * (x.T @ (x @ w - 1.0)) / len(x) + 0.01 * row(step * 5 % 9, x)
            if step % 2:
                save(folder, w=w, step=step + 1)
            yield step + 1

    return train


def test_a_dict_before_files_that_are_made_on_demand_is_no_loss() -> None:
    found = check(two_levels(of_data=False), steps=14, stop_at=8)
    assert found.verdict == "holds", found.text()
    assert {"known.len", "misses"} <= listed(found)


def test_a_dict_before_files_that_holds_more_than_they_do_is_lost() -> None:
    found = check(two_levels(of_data=True), steps=14, stop_at=8)
    assert found.verdict == "broken", found.text()
    assert found.suspects[0].path.startswith("known"), found.text()


@pytest.mark.parametrize(
    "source",
    [
        "if n not in t:\n    p = at / n\n    if not p.exists():\n        np.save(p, make(n))\n    t[n] = np.load(p)",
        "if n not in t:\n    with open(str(n)) as f:\n        x = f.read()\n    t[n] = x",
        "if n not in t:\n    if len(t) > 9:\n        t.pop(next(iter(t)))\n    t[n] = make(n)",
        "if n not in t:\n    t[n] = make(n)",
        "if n in t:\n    return t[n]",
        "if n in self.t:\n    x = self.t[n]\nelse:\n    x = self.t[n] = make(n)",
        "if n not in t:\n    made = make(n)\n    t[n] = made",
        "if (a, b) not in t:\n    t[a, b] = make(a, b)",
    ],
)
def test_conditions_on_a_table(source: str) -> None:
    tree = ast.parse(f"import numpy as np\n{source}")
    assert is_table(tree.body[1], tree)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "source",
    [
        "if n not in t:\n    t[n] = 1\n    lr = 0.1",
        "if n in t:\n    break",
        "if n in t:\n    lr = lr * 0.5",
        "if n not in t:\n    t.add(n)\n    lr *= 0.5",
        "if n in t:\n    t[n] += 1\nelse:\n    t[n] = 1",
        "if n in t:\n    return None",
        "if n in t:\n    x = 0.1",
        "if n not in t:\n    if n > 3:\n        lr = 0.1\n    t[n] = 1",
        "if n not in t:\n    lr = lr * 0.5\n    t[n] = make(lr)",
        "if n not in t:\n    optimizer.add_param_group(n)\n    t[n] = 1",
        "if n not in t:\n    self.lr = 0.1\n    t[n] = make(self.lr)",
        "if n not in t:\n    if n > 3:\n        break\n    t[n] = 1",
        "if n < t:\n    t[n] = 1",
    ],
)
def test_conditions_that_are_more_than_a_table(source: str) -> None:
    tree = ast.parse(f"import numpy as np\n{source}")
    assert not is_table(tree.body[1], tree)  # type: ignore[arg-type]


class Longest:
    """A table for the longest length so far; or a record of that length without one."""

    def __init__(self, *, keeps: bool) -> None:
        self.most, self.table, self.keeps = 0, np.zeros((0, 3)), keeps

    def take(self, n: int) -> Array:
        if n > self.most:
            self.most = n
            if self.keeps:
                self.table = np.arange(3.0 * n).reshape(n, 3) / 10
        return self.table[:n] if self.keeps else np.zeros((n, 3))


def longest(*, keeps: bool) -> Trainer:
    def train(folder: Path, steps: int) -> Iterator[int]:
        w, start, made = np.zeros(3), 0, Longest(keeps=keeps)
        if (state := load(folder)) is not None:
            w, start = state["w"], int(state["step"])
        for step in range(start, steps):
            x = rows(step, SIZES[step])
            w = w - 0.1 * (x.T @ (x @ w - 1.0)) / len(x) + 0.001 * made.take(len(x)).sum(0)
            save(folder, w=w, step=step + 1)
            yield step + 1

    return train


def test_the_length_of_a_table_beside_it_says_no_more_than_its_shape() -> None:
    found = check(longest(keeps=True))
    assert found.verdict == "holds", found.text()
    assert "made.most" in listed(found)


def test_a_record_that_is_no_length_of_an_array_is_lost() -> None:
    found = check(longest(keeps=False))
    assert found.verdict == "broken", found.text()
    assert found.suspects[0].path == "made.most", found.text()


@pytest.mark.parametrize(("kinds", "is_one"), [(("float64[2x1]", "float64[2x1]"), False),
                                                (("float64[2x9]", "float64[1x9]"), True)])  # fmt: skip
def test_a_number_that_two_axes_happen_to_have_is_no_length(kinds: tuple[str, str], is_one: bool) -> None:
    """A count of 2 in one run and of 1 in the other, beside an array of 2 by 1 that never changes."""
    left, right = (
        StateSnapshot({"self.n": Leaf("scalar", "n", "int", n), "self.x": Leaf("array", "x", kind, "")})
        for n, kind in zip("21", kinds, strict=True)
    )
    seen: Any = SimpleNamespace(states=[TwoStates(1, left, right)])
    assert Differences.is_a_length(seen, "self.n") is is_one


def lazy(*, saves_all: bool) -> Trainer:
    def train(folder: Path, steps: int) -> Iterator[int]:
        torch.manual_seed(0)
        model, start, file = (
            nn.Sequential(nn.LazyLinear(4), nn.LazyBatchNorm1d(), nn.Linear(4, 1)),
            0,
            folder / "s.pt",
        )
        if file.exists():
            state = torch.load(file)
            model.load_state_dict(state["model"])
            if not saves_all:
                model[1].reset_running_stats()
            start = state["step"]
        else:
            model(torch.ones(4, 3))
        for step in range(start, steps):
            x = torch.from_numpy(rows(step)).float()
            model.zero_grad()
            (model(x) - 1.0).square().mean().backward()
            with torch.no_grad():
                for p in model.parameters():
                    p -= 0.01 * p.grad
            torch.save({"model": model.state_dict(), "step": step + 1}, file)
            yield step + 1

    return train


def test_a_lazy_layer_that_was_loaded_has_no_size_of_its_own() -> None:
    found = check(lazy(saves_all=True))
    assert found.verdict == "holds", found.text()


def test_running_statistics_of_a_lazy_layer_are_lost() -> None:
    found = check(lazy(saves_all=False))
    assert found.verdict == "broken", found.text()
    assert found.suspects[0].component == "model.buffers", found.text()


def phases(last: int) -> Trainer:
    """Return a trainer with its optimizers in a list: the first for two steps and from step `last` on."""

    def train(folder: Path, steps: int) -> Iterator[int]:
        torch.manual_seed(0)
        model, start, file = nn.Linear(3, 1), 0, folder / "s.pt"
        both = [torch.optim.SGD(model.parameters(), 0.1, momentum=0.9), torch.optim.Adam(model.parameters(), 0.01)]
        if file.exists():
            state = torch.load(file)
            model.load_state_dict(state["model"])
            both[1].load_state_dict(state["adam"])
            start = state["step"]
        for step in range(start, steps):
            phase = 0 if step < 2 or step >= last else 1
            model.zero_grad()
            (model(torch.from_numpy(rows(step)).float()) - 1.0).square().mean().backward()
            both[phase].step()
            torch.save({"model": model.state_dict(), "adam": both[1].state_dict(), "step": step + 1}, file)
            yield step + 1

    return train


def test_of_an_optimizer_in_a_list_whose_phase_is_over_nothing_is_decided() -> None:
    found = check(phases(last=100), scenarios=("kill",))
    assert found.verdict == "inconclusive", found.text()
    assert "no later step of this run changes it" in found.text()
    meant = check(phases(last=100), scenarios=("kill",), ignore={"both[0]": "the warm-up is over"})
    assert meant.verdict == "holds", meant.text()


def test_an_optimizer_in_a_list_that_comes_again_is_lost() -> None:
    found = check(phases(last=11))
    assert found.verdict == "broken", found.text()
    assert found.suspects[0].path.startswith("both[0]"), found.text()


def first_value(use: str) -> Trainer:
    """Return a trainer that keeps a number of its first step, and uses it in one way or in none."""

    def train(folder: Path, steps: int) -> Iterator[int]:
        w, start = np.zeros(3), 0
        if (state := load(folder)) is not None:
            w, start = state["w"], int(state["step"])
        first = np.abs(gradient(w, start)).max()
        for step in range(start, steps):
            slope = gradient(w, step)
            half = first / 2
            if use == "to stop" and np.abs(slope).max() < half * 1e-9:
                return
            w = w - 0.1 * slope / (1 + first if use == "to train" and step == steps - 1 else 1.0)
            save(folder, w=w, step=step + 1)
            yield step + 1

    return train


def test_a_number_of_the_first_step_that_nothing_follows_from_is_listed() -> None:
    found = check(first_value("for nothing"))
    assert found.verdict == "holds", found.text()
    assert "first" in listed(found), found.text()


def test_a_number_of_the_first_step_that_enters_the_last_one_is_lost() -> None:
    found = check(first_value("to train"))
    assert found.verdict == "broken", found.text()
    assert "first" in {one.path for one in found.suspects}, found.text()


def asked_for_none(folder: Path, steps: int) -> Iterator[int]:
    w, start, first = np.zeros(3), 0, None
    if (state := load(folder)) is not None:
        w, start = state["w"], int(state["step"])
    for step in range(start, steps):
        slope = gradient(w, step)
        if first is None:
            first = float(np.abs(slope).max())
        half = first / 2
        limit = half * 1e-9
        if np.abs(slope).max() < limit:
            return
        w = w - 0.1 * slope
        save(folder, w=w, step=step + 1)
        yield step + 1


def test_a_first_value_from_which_a_limit_is_derived_in_several_steps_is_lost() -> None:
    found = check(asked_for_none)
    assert found.verdict == "broken", found.text()
    assert found.suspects[0].path == "first", found.text()


def counts_for_the_rate(folder: Path, steps: int) -> Iterator[int]:
    w, start, rate, bad = np.zeros(3), 0, 0.1, 0
    if (state := load(folder)) is not None:
        w, start, rate = state["w"], int(state["step"]), float(state["rate"])
    for step in range(start, steps):
        w = w - rate * gradient(w, step)
        bad = bad + 1
        if bad > 50:
            rate = rate * 0.1
        save(folder, w=w, rate=rate, step=step + 1)
        yield step + 1


def counts_for_people(folder: Path, steps: int) -> Iterator[int]:
    w, start, bad, high = np.zeros(3), 0, 0, 0
    if (state := load(folder)) is not None:
        w, start, high = state["w"], int(state["step"]), int(state["high"])
    for step in range(start, steps):
        w = w - 0.1 * gradient(w, step)
        bad = bad + 1
        if bad > 50:
            high += 1
        save(folder, w=w, high=high, step=step + 1)
        yield step + 1


def test_a_count_that_decides_of_another_number_is_lost() -> None:
    found = check(counts_for_the_rate)
    assert found.verdict == "broken", found.text()
    assert found.suspects[0].path == "bad", found.text()


def test_a_count_that_decides_of_a_statistic_is_listed() -> None:
    found = check(counts_for_people)
    assert found.verdict == "holds", found.text()
    assert "bad" in listed(found)


class Kept:
    """A moving average of each parameter, by the parameter's address."""

    def __init__(self) -> None:
        self.values: dict[int, Array] = {}


def by_address(*, saves: bool) -> Trainer:
    def train(folder: Path, steps: int) -> Iterator[int]:
        w, start, kept = np.zeros(3), 0, Kept()
        average = np.zeros(3)
        if (state := load(folder)) is not None:
            w, start = state["w"], int(state["step"])
            average = state["average"] if saves else average
        kept.values[id(w)] = average
        for step in range(start, steps):
            w -= 0.1 * gradient(w, step)
            kept.values[id(w)] = 0.9 * kept.values[id(w)] + 0.1 * w
            if step == steps - 2:
                w[...] = kept.values[id(w)]
            save(folder, w=w, average=kept.values[id(w)], step=step + 1)
            yield step + 1

    return train


def test_state_that_is_kept_by_an_address_is_named_by_what_lies_there() -> None:
    kept = check(by_address(saves=True))
    assert kept.verdict == "holds", kept.text()
    found = check(by_address(saves=False))
    assert found.verdict == "broken", found.text()
    assert found.suspects[0].path == "kept.values[id(w)]", found.text()
