"""State that differs after a resume is listed if nothing follows from it, and lost if a later step takes it."""

import os
import pickle
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import parity
from parity.capture import Walk
from parity.checks.judging.evidence import Evidence
from parity.checks.judging.judge import _decides
from parity.checks.judging.usage import Use

Trainer = Callable[[Path, int], Iterator[int]]


def batch(step: int, *shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(step))


def save(folder: Path, **state: Any) -> None:
    torch.save(state, folder / "next.pt")
    os.replace(folder / "next.pt", folder / "state.pt")


def load(folder: Path) -> dict[str, Any] | None:
    file = folder / "state.pt"
    return torch.load(file) if file.exists() else None


def two_phases(taken_later: str) -> Trainer:
    """Return a trainer that warms up with one optimizer and goes on with another; the first is not saved."""

    def train(folder: Path, steps: int) -> Iterator[int]:
        torch.manual_seed(0)
        model, start = nn.Linear(4, 2), 0
        first = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        second = torch.optim.Adam(model.parameters(), lr=0.01)

        def current(step: int) -> torch.optim.Optimizer:
            return first if step < 2 or (taken_later == "in the last step" and step == 7) else second

        if (state := load(folder)) is not None:
            model.load_state_dict(state["model"])
            second.load_state_dict(state["second"])
            start = state["step"]
        for step in range(start, steps):
            x = batch(step, 8, 4)
            (model(x) - x[:, :2]).square().mean().backward()
            current(step).step()
            both = (first, second) if taken_later == "in every step" else (current(step),)
            for optimizer in both:
                optimizer.zero_grad()
            save(folder, model=model.state_dict(), second=second.state_dict(), step=step + 1)
            yield step + 1

    return train


def test_of_an_optimizer_that_no_later_step_takes_nothing_is_decided() -> None:
    """Its phase may be over, or its next step may lie beyond the run: both look alike."""
    found = parity.resumes(two_phases("never"), steps=8, scenarios=("kill", "third"))
    assert found.verdict == "inconclusive", found.text()
    assert {item.path.partition(".")[0] for item in found.bookkeeping} == {"first"}
    assert "no later step of this run changes it" in found.text()
    ignore = {"first": "the warm-up is over"}
    meant = parity.resumes(two_phases("never"), steps=8, scenarios=("kill", "third"), ignore=ignore)
    assert meant.verdict == "holds", meant.text()


@pytest.mark.parametrize("when", ["in the last step", "in every step"])
def test_an_optimizer_that_a_later_step_takes_is_lost(when: str) -> None:
    found = parity.resumes(two_phases(when), steps=8, scenarios="kill")
    assert found.verdict == "broken", found.text()
    assert found.suspects[0].component == "optimizer.momentum"
    assert found.suspects[0].path.startswith("first.state[")


def two_phases_in_jax(last: int) -> Trainer:
    """Return a trainer that takes one chain of Optax in its first two steps and in one given step."""
    jax, optax, jnp = (pytest.importorskip(name) for name in ("jax", "optax", "jax.numpy"))

    def train(folder: Path, steps: int) -> Iterator[int]:
        params, start = {"w": jnp.ones((4, 2))}, 0
        first, second = optax.chain(optax.clip(1.0), optax.sgd(0.1, momentum=0.9)), optax.adam(0.01)
        states = {"warm": first.init(params), "main": second.init(params)}
        if (folder / "state").exists():
            state = pickle.loads((folder / "state").read_bytes())
            params, states["main"], start = state["params"], state["main"], state["step"]
        for step in range(start, steps):
            yield step
            x = jnp.asarray(batch(step, 8, 4).numpy())
            gradients = jax.grad(lambda p, x=x: ((x @ p["w"] - x[:, :2]) ** 2).mean())(params)
            if step < 2 or step == last:
                updates, states["warm"] = first.update(gradients, states["warm"], params)
            else:
                updates, states["main"] = second.update(gradients, states["main"], params)
            params = optax.apply_updates(params, updates)
            (folder / "next").write_bytes(pickle.dumps({"params": params, "main": states["main"], "step": step + 1}))
            os.replace(folder / "next", folder / "state")
        yield steps

    return train


def test_of_a_chain_that_no_later_step_takes_nothing_is_decided() -> None:
    found = parity.resumes(two_phases_in_jax(99), steps=8, scenarios="kill", mode="inline")
    assert found.verdict == "inconclusive", found.text()
    assert {item.path.partition("[")[0] for item in found.bookkeeping} == {"states.warm"}
    found = parity.resumes(two_phases_in_jax(7), steps=8, scenarios="kill", mode="inline")
    assert found.verdict == "broken"
    assert found.suspects[0].component == "optimizer.momentum", found.text()


class Grows(nn.Module):
    """A table that is made longer where a sequence asks for it, and is in no state_dict; and an average of inputs."""

    def __init__(self, *, averaged: bool) -> None:
        super().__init__()
        self.inner, self.averaged = nn.Linear(4, 4), averaged
        self.register_buffer("table", torch.zeros(0, 4), persistent=False)
        self.register_buffer("center", torch.zeros(4), persistent=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if x.shape[1] > self.table.shape[0]:
            self.table = torch.arange(x.shape[1] * 4, dtype=torch.float32).reshape(-1, 4).sin()
        if self.averaged:
            self.center = 0.9 * self.center + 0.1 * x.detach().mean((0, 1))
        return self.inner(x - self.center + self.table[: x.shape[1]])


def grows(*, averaged: bool) -> Trainer:
    def train(folder: Path, steps: int) -> Iterator[int]:
        torch.manual_seed(0)
        model, start = Grows(averaged=averaged), 0
        optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
        if (state := load(folder)) is not None:
            model.load_state_dict(state["model"])
            optimizer.load_state_dict(state["optimizer"])
            start = state["step"]
        for step in range(start, steps):
            yield step
            x = batch(step, 3, (5, 11, 3, 2, 9, 3, 4, 7)[step], 4)
            optimizer.zero_grad()
            (model(x) - x).square().mean().backward()
            optimizer.step()
            save(folder, model=model.state_dict(), optimizer=optimizer.state_dict(), step=step + 1)
        yield steps

    return train


def test_a_table_that_grows_on_demand_is_no_loss() -> None:
    found = parity.resumes(grows(averaged=False), steps=8, scenarios=("kill", "first-save"))
    assert found.verdict == "holds", found.text()
    assert {item.path for item in found.bookkeeping} == {"model.table"}


def test_a_buffer_outside_of_state_dict_that_the_model_adds_to_is_lost() -> None:
    found = parity.resumes(grows(averaged=True), steps=8, scenarios="kill")
    assert found.verdict == "broken", found.text()
    assert (found.suspects[0].component, found.suspects[0].path) == ("model.buffers", "model.center")


class KeepsFirst:
    """What several libraries keep of the first batch: to draw the graph, to build themselves, to log its shape."""

    def __init__(self) -> None:
        self.model, self.example, self.first, self.initial = nn.Linear(4, 2), None, None, None
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=0.01)

    def step(self, x: torch.Tensor, folder: Path) -> None:
        if self.example is None:
            self.example = x.clone()
            (folder / "shape.txt").write_text(str(tuple(x.shape)))
        self.optimizer.zero_grad()
        (self.model(x) - x[:, :2]).square().mean().backward()
        self.optimizer.step()


class TrainsOnFirst(KeepsFirst):
    def step(self, x: torch.Tensor, folder: Path) -> None:
        if self.first is None:
            self.first = x.clone()
        self.optimizer.zero_grad()
        ((self.model(x) - x[:, :2]).square().mean() + 0.5 * self.model(self.first).square().mean()).backward()
        self.optimizer.step()


class StopsByFirst(KeepsFirst):
    def step(self, x: torch.Tensor, folder: Path) -> None:
        self.optimizer.zero_grad()
        loss = (self.model(x) - x[:, :2]).square().mean()
        loss.backward()
        self.optimizer.step()
        if self.initial is None:
            self.initial = loss.item()
        share = loss.item() / self.initial
        if share < 1e-3:
            raise StopIteration


def keeps_first(kind: type[KeepsFirst]) -> Trainer:
    def train(folder: Path, steps: int) -> Iterator[int]:
        torch.manual_seed(0)
        trainer, start = kind(), 0
        if (state := load(folder)) is not None:
            trainer.model.load_state_dict(state["model"])
            trainer.optimizer.load_state_dict(state["optimizer"])
            start = state["step"]
        for step in range(start, steps):
            yield step
            trainer.step(batch(step, 8, 4), folder)
            parts = {"model": trainer.model.state_dict(), "optimizer": trainer.optimizer.state_dict()}
            save(folder, **parts, step=step + 1)
        yield steps

    return train


def test_a_first_batch_that_is_only_asked_whether_it_is_there_is_listed() -> None:
    found = parity.resumes(keeps_first(KeepsFirst), steps=8, scenarios=("kill", "third"))
    assert found.verdict == "holds", found.text()
    assert "trainer.example" in {item.path for item in found.bookkeeping}


def test_a_first_batch_that_later_steps_use_is_lost() -> None:
    found = parity.resumes(keeps_first(TrainsOnFirst), steps=8, scenarios="kill")
    assert found.verdict == "broken"
    assert found.suspects[0].path == "trainer.first", found.text()


def test_a_first_value_from_which_a_decision_is_derived_is_lost() -> None:
    found = parity.resumes(keeps_first(StopsByFirst), steps=8, scenarios="kill", mode="inline")
    assert found.verdict == "broken"
    assert found.suspects[0].path == "trainer.initial", found.text()


def loses_best() -> Trainer:
    """Return a trainer of which more is lost than the optimizer of its first phase: the best loss."""

    def train(folder: Path, steps: int) -> Iterator[int]:
        torch.manual_seed(0)
        model, start, best, bad = nn.Linear(4, 2), 0, 1e9, 0
        first = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        second = torch.optim.Adam(model.parameters(), lr=0.01)
        if (state := load(folder)) is not None:
            model.load_state_dict(state["model"])
            second.load_state_dict(state["second"])
            start = state["step"]
        for step in range(start, steps):
            yield step
            x = batch(step, 8, 4)
            loss = (model(x) - x[:, :2]).square().mean()
            loss.backward()
            (first if step < 2 else second).step()
            model.zero_grad()
            if loss.item() < best:
                best, bad = loss.item(), 0
            else:
                bad += 1
            if bad > 50:
                break
            save(folder, model=model.state_dict(), second=second.state_dict(), step=step + 1)
        yield steps

    return train


def test_beside_an_optimizer_at_rest_all_else_is_judged() -> None:
    found = parity.resumes(loses_best(), steps=8, scenarios="kill", mode="inline")
    assert found.verdict == "broken", found.text()
    assert found.suspects[0].path in ("best", "bad"), found.text()


class Counts(nn.Module):
    """A codebook that counts how often each entry is used, outside of `state_dict`."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(4, 4)
        self.register_buffer("used", torch.zeros(4), persistent=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.inner(x)
        self.used += torch.bincount(y.detach().argmax(-1).flatten(), minlength=4)
        return y


def test_a_buffer_that_only_counts_is_lost() -> None:
    def train(folder: Path, steps: int) -> Iterator[int]:
        torch.manual_seed(0)
        model, start = Counts(), 0
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        if (state := load(folder)) is not None:
            model.load_state_dict(state["model"])
            start = state["step"]
        for step in range(start, steps):
            yield step
            x = batch(step, 8, 4)
            optimizer.zero_grad()
            (model(x) - x).square().mean().backward()
            optimizer.step()
            save(folder, model=model.state_dict(), step=step + 1)
        yield steps

    found = parity.resumes(train, steps=8, scenarios="kill", mode="inline")
    assert found.verdict == "broken"
    assert found.suspects[0].path == "model.used", found.text()


def steps_of(folder: Path, model: nn.Module, start: int, steps: int, *, caches: bool = False) -> Iterator[int]:
    tables: dict[int, torch.Tensor] = {}
    for step in range(start, steps):
        yield step
        x = batch(step, (5, 8, 3, 6, 9, 3, 4, 7)[step] if caches else 8, 4)
        y = x[:, :2]
        if len(x) != len(y):
            raise ValueError("rows of inputs and targets differ")
        table = torch.arange(len(x), dtype=torch.float32).sin()[:, None]
        model.zero_grad()
        (model(x) - y - (tables.setdefault(len(x), table) if caches else table)).square().mean().backward()
        with torch.no_grad():
            for p in model.parameters():
                p -= 0.1 * p.grad
        save(folder, model=model.state_dict(), step=step + 1)
    yield steps


@pytest.mark.parametrize("caches", [False, True], ids=["loaded", "tables by length"])
def test_what_a_loop_behind_yield_from_was_loaded_from_or_keeps_by_length_is_no_loss(caches: bool) -> None:
    def train(folder: Path, steps: int) -> Iterator[int]:
        torch.manual_seed(0)
        model, start = nn.Linear(4, 2), 0
        state = load(folder)
        if state is not None:
            model.load_state_dict(state["model"])
            start = state["step"]
        yield from steps_of(folder, model, start, steps, caches=caches)

    found = parity.resumes(train, steps=8, scenarios="all", mode="inline")
    assert found.verdict == "holds", found.text()


def test_the_length_of_a_path_goes_by_the_name_before_it(tmp_path: Path) -> None:
    file = tmp_path / "loop.py"
    file.write_text("def f(x, y, seen):\n    if len(x) != len(y) or len(seen) > 3:\n        raise ValueError\n")
    state = SimpleNamespace(left=SimpleNamespace(leaves={}), right=SimpleNamespace(leaves={}))
    known: Any = SimpleNamespace(uninterrupted=SimpleNamespace(use=Use(files=(str(file),))), states=[state])
    items = [Evidence(name, f"{name}.len", 1, "1", "2", "at the end") for name in ("tables", "seen")]
    assert [_decides(item, known, there=True) for item in items] == [False, True]


def test_a_result_that_is_not_there_yet_is_written_before_it_is_read() -> None:
    done: Future[float] = Future()
    done.set_result(1.5)
    walk = Walk()
    for name, one in (("done", done), ("pending", Future())):
        walk.root(name, one)
    snapshot = walk.finish()
    assert snapshot.leaves["done._result"].digest == "1.5"
    assert (snapshot.is_dead("done._result"), snapshot.is_dead("pending._result")) == (False, True)


class Remembers(ThreadPoolExecutor):
    """An executor with state of its own, under names that other pools have for their wiring."""

    def __init__(self) -> None:
        super().__init__(1)
        self._state = np.zeros(4)


def test_state_on_an_executor_of_the_users_own_is_seen() -> None:
    walk = Walk()
    with Remembers() as pool:
        walk.root("pool", pool)
        assert "pool._state" in walk.finish().leaves
