"""What is read before it is written is a cause: no attribute that has a parameter's name, nor what a step sets."""

import json
import math
import pickle
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.live.small_loops import State, Trainer, check, descend, first, trainer, weights


class Schedule:
    """A rate by the step that it is told, which it keeps for whoever asks."""

    def __init__(self) -> None:
        self.step, self.seen, self.rate = 0, 0, 0.3

    def set_step(self, step: int) -> None:
        self.step = step
        self.rate = 0.3 * 0.9 ** (step // 4) if step < 14 else min(0.1, 1 / (step + 1))

    def count(self, seen: int) -> None:
        self.seen = self.seen + seen
        self.rate = 0.3 if self.seen < 60 else 0.01


def is_told(state: State, number: int) -> None:
    state.own_schedule.set_step(number)
    descend(state, number, state.own_schedule.rate)


def counts(state: State, number: int) -> None:
    state.own_schedule.count(1)
    descend(state, number, state.own_schedule.rate)


def makes_a_schedule(state: State) -> None:
    state.own_schedule = Schedule()


def test_a_parameter_is_not_the_attribute_of_its_name() -> None:
    given = weights(own_schedule=None)
    found = check(trainer(given, is_told, made=makes_a_schedule))
    assert found.verdict == "holds", found
    assert "state.own_schedule.step" in {one.path for one in found.bookkeeping}
    assert first(check(trainer(given, counts, made=makes_a_schedule))) == "state.own_schedule.seen"


def damp(count: int, worst: float) -> float:
    return (0.3 if count < 14 else 0.1) / max(1.0, worst)


def prints_its_figures(folder: Path, steps: int) -> Iterator[int]:
    w, number, path, count, figures = np.ones(2), 0, folder / "state.pkl", 0, {"count": 0, "worst": 0.0}
    if path.exists():
        w, number = pickle.loads(path.read_bytes())
    while number < steps:
        yield number
        error = w - math.sin(number)
        w, number, count = w - damp(number, float(abs(error).max())) * error, number + 1, count + 1
        figures["count"] += 1
        figures["worst"] = max(figures["worst"], float(abs(error).max()))
        print(count, figures)
        if number % 4 == 0:
            path.write_bytes(pickle.dumps((w, number)))


def test_a_parameter_is_not_the_variable_or_the_key_of_its_name() -> None:
    found = check(prints_its_figures)
    assert found.verdict == "holds", found
    assert {"count", "figures.count"} & {one.path for one in found.bookkeeping}


class Strikes:
    """Counts that a helper decides by, as a parameter of the same name."""

    def __init__(self) -> None:
        self.strikes, self.own_report = 0, 0

    def rate(self) -> float:
        return least(self.strikes)

    def is_well(self) -> bool:
        return self.own_report < 5


def least(strikes: int) -> float:
    return 0.3 if strikes < 60 else 0.01


def strikes(state: State, number: int) -> None:
    state.own_strikes.strikes += 1
    state.own_strikes.own_report += 1
    print("well" if state.own_strikes.is_well() else "look at the data")
    descend(state, number, state.own_strikes.rate())


def test_what_is_handed_to_a_parameter_counts_and_what_a_report_says_does_not() -> None:
    def made(state: State) -> None:
        state.own_strikes = Strikes()

    found = check(trainer(weights(own_strikes=None), strikes, made=made))
    assert first(found) == "state.own_strikes.strikes"
    assert not [one for one in found.suspects if "report" in one.path]


def flushes(state: State, number: int) -> None:
    state.delta = state.delta - 0.2 * (state.w + state.delta - math.sin(number))
    if number % 6 == 5:
        state.w, state.delta = state.w + 0.5 * state.delta, np.zeros(2)


def keeps_figures(state: State, number: int) -> None:
    state.last += 1
    state.gain = 0.5 if state.last == 16 else state.gain
    state.own_figures["rate"] = 0.3 * state.gain
    descend(state, number, state.own_figures["rate"])


def seeds_each_step(state: State, number: int) -> None:
    np.random.seed(number)  # noqa: NPY002 - what all code shares
    state.at = (state.at + 5) % 12
    state.w = state.w - 0.3 * (state.w - math.sin(state.at)) + 0.01 * np.random.normal(size=2)  # noqa: NPY002


def normalises(state: State, number: int) -> None:
    state.count += 1
    state.own_x = np.full(2, math.sin(number) / (1 + math.log(state.count)))
    state.w = state.w - 0.3 * (state.w - state.own_x)


def takes_all_norms(state: State, number: int) -> None:
    error = state.w - math.sin(number)
    state.norms.append(float(abs(error).max()))
    state.own_figures = [*state.own_figures, str(number)][-3:]
    state.w = state.w - min(0.3, 0.1 * float(np.percentile(state.norms, 30))) * error


def reads_by_a_text(folder: Path, steps: int) -> Iterator[int]:
    w, gain, number, path = np.ones(2), 0.1, 0, folder / "state.pkl"
    if path.exists():
        w, number, _ = pickle.loads(path.read_bytes())
    while number < steps:
        yield number
        rate = eval("min(0.5, gain)")
        gain = rate + 0.01
        w, number = w - rate * (w - math.sin(number)), number + 1
        if number % 4 == 0:
            path.write_bytes(pickle.dumps((w, number, gain)))


def test_what_only_a_text_names_is_read() -> None:
    assert first(check(reads_by_a_text)) == "gain"


ORDERS: tuple[tuple[Callable[[State, int], None], dict[str, Any], str], ...] = (
    (flushes, {"delta": np.zeros(2)}, "delta"),
    (keeps_figures, {"own_figures": {}, "last": 0, "gain": 1.0}, "last"),
    (seeds_each_step, {"at": 0}, "at"),
    (normalises, {"count": 1, "own_x": np.zeros(2)}, "count"),
    (takes_all_norms, {"norms": [], "own_figures": []}, "norms"),
)


@pytest.mark.parametrize(("step", "given", "lost"), ORDERS)
def test_who_is_first(step: Callable[[State, int], None], given: dict[str, Any], lost: str) -> None:
    assert check(trainer(weights(**given), step)).verdict == "holds"
    assert first(check(trainer(weights(**given), step, (lost,)))) == f"state.{lost}"


def test_gradients_that_the_next_step_takes_and_clears_are_named() -> None:
    torch = pytest.importorskip("torch")

    def train(folder: Path, steps: int, lost: bool = False) -> Iterator[int]:
        torch.manual_seed(0)
        model, start, path = torch.nn.Linear(2, 1), 0, folder / "state.pt"
        optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
        if path.exists():
            kept = torch.load(path)
            model.load_state_dict(kept["model"])
            optimizer.load_state_dict(kept["optimizer"])
            start = kept["step"]
            for one, gradient in zip(model.parameters(), kept["gradients"], strict=True):
                one.grad = None if lost else gradient
        for number in range(start, steps):
            yield number
            (model(torch.tensor([[math.sin(number), 1.0]])) - 1).square().sum().backward()
            if number % 2 == 1:
                optimizer.step()
                optimizer.zero_grad()
            if number % 3 == 2:
                gradients = [None if one.grad is None else one.grad.clone() for one in model.parameters()]
                kept = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "gradients": gradients}
                torch.save({**kept, "step": number + 1}, path)

    assert check(train, stop_at=10, scenarios=("kill",)).verdict == "holds"

    def loses(folder: Path, steps: int) -> Iterator[int]:
        yield from train(folder, steps, lost=True)

    assert first(check(loses, stop_at=10, scenarios=("kill",))).endswith(".grad")


def with_a_table(*, cut: bool) -> Trainer:
    """Return a trainer with a table that each step writes anew, beside a checkpoint of every fifth step."""

    def train(folder: Path, steps: int) -> Iterator[int]:
        w, number, rows, table, path = np.ones(2), 0, [], folder / "rows.json", folder / "state.pkl"
        if path.exists():
            w, number = pickle.loads(path.read_bytes())
            rows = [row for row in json.loads(table.read_text()) if row[0] <= number or not cut]
        while number < steps:
            yield number
            w, number = w - 0.3 * (w - math.sin(number)), number + 1
            rows.append([number, float(w[0])])
            table.write_text(json.dumps(rows))
            if number % 5 == 0:
                path.write_bytes(pickle.dumps((w, number)))

    return train


def test_a_table_may_be_newer_than_the_checkpoint_that_it_is_cut_to() -> None:
    assert check(with_a_table(cut=True)).verdict == "holds"
    assert first(check(with_a_table(cut=False))).startswith("rows")
