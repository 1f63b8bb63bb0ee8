"""Who is named first: what differs at the resume and is read, before what each step sets and what follows later."""

import asyncio
import json
import math
import pickle
import random
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import parity
from tests.live.small_loops import State, Trainer, check, descend, first, trainer, weights


def leaves_things_behind(state: State, number: int) -> None:
    state.own_grad = state.w - math.sin(number)
    state.rate = 0.3 * 0.97**state.phase
    state.w = state.w - state.rate * state.own_grad
    state.own_rate = state.rate
    state.phase += 1


def takes_the_mean(state: State, number: int) -> None:
    state.outs.append(descend(state, number, state.rate))
    if number % 6 == 5:
        state.rate = 0.3 / (1 + np.mean(state.outs))
        state.outs = []


def teaches(state: State, number: int) -> None:
    key = number % 9
    if key not in state.teach:
        state.teach[key] = float(state.w[0])
    state.w = state.w - 0.1 * (state.w - math.sin(number)) - 0.1 * (state.w - state.teach[key])


def windows(state: State, number: int) -> None:
    state.window.append(math.sin(number))
    descend(state, number, 0.1 + 0.01 * sum(state.window))


CASES: tuple[tuple[Callable[[State, int], None], dict[str, Any], str], ...] = (
    (leaves_things_behind, {"own_grad": np.zeros(2), "own_rate": 0.0, "rate": 0.3, "phase": 0}, "phase"),
    (takes_the_mean, {"outs": [], "rate": 0.3}, "outs"),
    (teaches, {"teach": {}}, "teach"),
)


@pytest.mark.parametrize(("step", "given", "lost"), CASES)
def test_what_was_lost_comes_first(step: Callable[[State, int], None], given: dict[str, Any], lost: str) -> None:
    one = {"scenarios": ("kill",), "stop_at": 16 if lost == "outs" else 13}
    assert check(trainer(weights(**given), step), **one).verdict == "holds"
    assert first(check(trainer(weights(**given), step, (lost,)), **one)).startswith(f"state.{lost}")


def test_the_limit_of_a_deque_is_named() -> None:
    def loses_the_limit(state: State) -> None:
        state.window = deque(state.window)

    given = weights(window=deque(maxlen=4))
    assert check(trainer(given, windows)).verdict == "holds"

    def made(state: State) -> None:
        if len(state.window) == 4:
            loses_the_limit(state)

    assert first(check(trainer(given, windows, made=made))) == "state.window.maxlen"


def of_numbers(lost: str = "") -> Trainer:
    """Return a search whose members are numbers in dicts, with a leader that is one of them."""

    def train(folder: Path, steps: int) -> Iterator[int]:
        rng, scale, n, path = random.Random(3), 0.7, 0, folder / "state.pkl"
        members = [{"x": rng.uniform(-2, 2), "low": 9.0} for _ in range(4)]
        lead = members[0]
        if path.exists():
            members, lead, kept, n, drawn = pickle.loads(path.read_bytes())
            rng.setstate(drawn)
            scale = scale if lost == "scale" else kept
        while n < steps:
            yield n
            for one in members:
                x = one["x"] + scale * (lead["x"] - one["x"]) + 0.3 * rng.gauss(0, scale)
                cost = (x - 1) ** 2
                if cost < one["low"]:
                    one["x"], one["low"] = x, cost
            best = min(members, key=lambda one: one["low"])
            lead = best if best["low"] < lead["low"] else lead
            lead["x"] += 0.001
            scale *= 0.97
            n += 1
            if n % 4 == 0:
                path.write_bytes(pickle.dumps((members, lead, scale, n, rng.getstate())))
        return lead["x"]

    return train


def test_a_lost_number_comes_before_what_a_search_finds_by_it() -> None:
    assert check(of_numbers()).verdict == "holds"
    assert first(check(of_numbers("scale"))) == "scale"


class Patience:
    """Ends a run after so many steps without a better value."""

    def __init__(self) -> None:
        self.wait, self.low = 0, math.inf

    def step(self, value: float) -> bool:
        self.wait = 0 if value < self.low else self.wait + 1
        self.low = min(self.low, value)
        return self.wait >= 6


def ends(*, lost: bool) -> Trainer:
    def train(folder: Path, steps: int) -> Iterator[int]:
        w, n, patience, path = np.ones(2), 0, Patience(), folder / "state.pkl"
        if path.exists():
            w, n, patience = pickle.loads(path.read_bytes())
            patience.wait = 0 if lost else patience.wait
        over = False
        while n < steps and not over:
            yield n
            w = w - 0.3 * w
            n += 1
            over = patience.step(float(abs(n - 10)))
            if n % 4 == 0:
                path.write_bytes(pickle.dumps((w, n, patience)))
        return w

    return train


def test_that_a_run_ends_elsewhere_follows_from_what_was_lost() -> None:
    assert check(ends(lost=False)).verdict == "holds"
    assert first(check(ends(lost=True))) == "patience.wait"


class Slots:
    """Holds values under names that it makes up."""

    def put(self, name: str, value: float) -> None:
        vars(self)[f"_{name}_now"] = value

    def take(self, name: str) -> float:
        return float(vars(self).get(f"_{name}_now", 0.3))


def by_made_up_names(state: State, number: int) -> None:
    error = (state.w - math.sin(number)) * state.slots.take("rate")
    state.w = state.w - error
    state.slots.put("rate", 0.3 * 0.97**number)


def test_what_an_object_holds_under_a_name_that_it_made_up_is_named() -> None:
    given = weights(slots=Slots())
    assert check(trainer(given, by_made_up_names)).verdict == "holds"
    assert first(check(trainer(given, by_made_up_names, ("slots",)))) == "state.slots._rate_now"


async def learn(folder: Path, steps: int, *, lost: bool) -> None:
    """Train with values that another task puts into a queue, and save in a thread."""
    w, n, mean, seed, path = np.ones(2), 0, 0.0, [1], folder / "state.pkl"
    if path.exists():
        w, n, kept, seed[0] = pickle.loads(path.read_bytes())
        mean = mean if lost else kept
    queue: asyncio.Queue[float] = asyncio.Queue(1)
    turn = asyncio.Event()

    async def make() -> None:
        while True:
            await turn.wait()
            turn.clear()
            seed[0] = (seed[0] * 1103515245 + 12345) % 2**31
            await queue.put(seed[0] / 2**31)

    task = asyncio.create_task(make())
    while n < steps:
        parity.mark(n)
        turn.set()
        value = await queue.get()
        mean = 0.9 * mean + 0.1 * value
        w = w - 0.3 * (w - mean)
        n += 1
        if n % 4 == 0:
            await asyncio.to_thread(path.write_bytes, pickle.dumps((w, n, mean, seed[0])))
    task.cancel()


def test_what_a_loop_of_asyncio_lost_comes_before_what_the_event_loop_holds() -> None:
    def train(folder: Path, steps: int) -> None:
        asyncio.run(learn(folder, steps, lost=True))

    def exact(folder: Path, steps: int) -> None:
        asyncio.run(learn(folder, steps, lost=False))

    assert check(exact, scenarios=("kill",)).verdict == "holds"
    assert first(check(train, scenarios=("kill",))) == "mean"


def adaptive(folder: Path, lost: str = "") -> Iterator[int]:
    """Adapt a coefficient over a horizon, and go where it has not been lately."""
    rng, rows = np.random.default_rng(0), np.random.default_rng(1).normal(size=(4, 3))
    w, step, value, horizon, lately, file = np.zeros(3), 0, 0.2, 50, [(0, 0)], folder / "state.json"
    if file.exists():
        found = json.loads(file.read_text())
        w, step, value = np.array(found["w"]), found["step"], found["value"]
        rng.bit_generator.state = found["rng"]
        lately = [tuple(one) for one in found["lately"]] if lost != "tuples" else found["lately"]
        horizon = 40 if lost == "horizon" else 50  # off by the ten steps that are done
    while step < 20:
        yield step
        places = [(0, k) for k in range(4)]
        place = min((p for p in places if p not in lately), key=lambda p: rng.random())
        lately = [*lately, place][-3:]
        w = w - value * rows[place[1]] * (rows[place[1]] @ w - 1)
        value *= 1 + 0.5 / horizon
        step += 1
        if step % 5 == 0:
            state = {"w": w.tolist(), "step": step, "value": value, "lately": lately, "rng": rng.bit_generator.state}
            file.write_text(json.dumps(state))


@pytest.mark.parametrize(("lost", "named"), [("horizon", "horizon"), ("tuples", "lately[0]")])
def test_what_mostly_means_nothing_is_named_where_nothing_else_differs(lost: str, named: str) -> None:
    def judged(lost: str) -> Any:
        return parity.resumes(adaptive, steps=20, stop_at=12, mode="inline", scenarios="kill", options={"lost": lost})

    assert judged("").verdict == "holds"
    found = judged(lost)
    assert (found.verdict, found.suspects[0].path, found.suspects[0].when) == ("broken", named, "at the resume")
