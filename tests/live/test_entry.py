"""A loop that marks the end of a step: what was lost is named, and not what the first step made of it."""

import os
import queue
import random
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.pool import ThreadPool
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import parity
from parity.checks.running.entry import entry_of


@pytest.fixture(autouse=True)
def ended() -> Iterator[None]:
    yield
    for thread in threading.enumerate():
        if thread.name == "feed":
            thread.join()


def made(number: int) -> torch.Tensor:
    return torch.randn(8, 4, generator=torch.Generator().manual_seed(number))


class Smooth(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(4, 2)
        self.register_buffer("center", torch.zeros(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.center = 0.9 * self.center + 0.1 * x.mean(0)
        return self.inner(x - self.center)


def run(folder: Path, steps: int, lost: str, mark: Callable[[int], Any]) -> Iterator[int]:
    torch.manual_seed(0)
    model, noise, taken = Smooth(), torch.Generator().manual_seed(1), 0
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    if (folder / "state.pt").exists():
        state = torch.load(folder / "state.pt")
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        noise.set_state(state["noise"])
        taken = state["taken"]
        if lost == "buffer":
            model.center.zero_()
        elif lost == "noise":
            noise.manual_seed(1)
        elif lost == "moments":
            optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
        elif lost == "rows":
            taken -= 1
        steps_done = state["step"]
    else:
        steps_done = 0
    for step in range(steps_done, steps):
        x = made(taken) + 0.1 * torch.randn(8, 4, generator=noise)
        taken += 1
        optimizer.zero_grad()
        (model(x) - x[:, :2]).square().mean().backward()
        optimizer.step()
        state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "noise": noise.get_state()}
        torch.save({**state, "taken": taken, "step": step + 1}, folder / "next.pt")
        os.replace(folder / "next.pt", folder / "state.pt")
        mark(step + 1)
        yield step + 1


def yields(lost: str) -> Callable[[Path, int], Any]:
    def train(folder: Path, steps: int) -> Iterator[int]:
        yield from run(folder, steps, lost, lambda step: None)

    return train


def calls(lost: str) -> Callable[[Path, int], Any]:
    def train(folder: Path, steps: int) -> None:
        for _ in run(folder, steps, lost, parity.mark):
            pass

    return train


LOST = {
    "buffer": ("model.buffers", "model.center"),
    "noise": ("rng", "noise"),
    "moments": ("optimizer", "optimizer.state["),
    "rows": ("data.position", "taken"),
}


@pytest.mark.parametrize("way", [yields, calls])
@pytest.mark.parametrize("lost", LOST)
def test_what_was_lost_comes_before_what_the_first_step_made_of_it(
    lost: str, way: Callable[[str], Callable[[Path, int], Any]]
) -> None:
    found = parity.resumes(way(lost), steps=8, scenarios="kill", mode="inline")
    component, path = LOST[lost]
    assert found.verdict == "broken"
    assert found.suspects[0].path.startswith(path), found.text()
    assert found.suspects[0].component.startswith((component, path)), found.text()


def test_nothing_else_is_called_lost_where_nothing_is() -> None:
    assert parity.resumes(yields("nothing"), steps=8, scenarios="all", mode="inline").verdict == "holds"


def test_the_body_of_the_innermost_loop_around_a_mark_is_its_entry(tmp_path: Path) -> None:
    file = tmp_path / "loops.py"
    lines = ["def train():", "    for epoch in range(2):", "        start()", "        while True:",
             "            step()", "            mark()", "        mark()", "    mark()"]  # fmt: skip
    file.write_text("\n".join(lines))
    space: dict[str, Any] = {}
    exec(compile(file.read_text(), str(file), "exec"), space)
    code = space["train"].__code__
    entries = [entry_of([(code, line)]) for line in (6, 7, 3, 8)]
    assert [entry and entry.line for entry in entries] == [5, 3, None, None]


class Fitted:
    """A trainer with callbacks, of which one marks: the loop that counts is not the one over the callbacks."""

    def __init__(self, folder: Path, steps: int, lost: str) -> None:
        self.folder, self.steps, self.lost, self.done, self.rows = folder, steps, lost, 0, 0
        torch.manual_seed(0)
        self.model = nn.Linear(4, 2)
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=0.01)
        self.callbacks = [self.log, self.mark]

    def fit(self) -> None:
        if (self.folder / "state.pt").exists():
            state = torch.load(self.folder / "state.pt")
            self.model.load_state_dict(state["model"])
            self.optimizer.load_state_dict(state["optimizer"])
            self.done, self.rows = state["step"], 0 if self.lost else state["rows"]
        while self.done < self.steps:
            self.train_one()

    def train_one(self) -> None:
        x = made(self.rows)
        self.rows += 1
        self.optimizer.zero_grad()
        (self.model(x) - x[:, :2]).square().mean().backward()
        self.optimizer.step()
        self.done += 1
        state = {"model": self.model.state_dict(), "optimizer": self.optimizer.state_dict(), "rows": self.rows}
        torch.save({**state, "step": self.done}, self.folder / "next.pt")
        os.replace(self.folder / "next.pt", self.folder / "state.pt")
        for callback in self.callbacks:
            shown = f"step {self.done}"
            callback(shown)

    def log(self, shown: str) -> None:
        pass

    def mark(self, shown: str) -> None:
        parity.mark(self.done)


def test_the_loop_of_a_trainer_with_callbacks_is_the_outer_one() -> None:
    def train(folder: Path, steps: int) -> None:
        Fitted(folder, steps, "rows").fit()

    found = parity.resumes(train, steps=8, scenarios="kill", mode="inline")
    assert found.verdict == "broken"
    assert found.suspects[0].path.endswith("rows"), found.text()


def restored(folder: Path, model: nn.Module, optimizer: torch.optim.Optimizer) -> int:
    """Restore what was saved, and return the completed steps."""
    if not (folder / "state.pt").exists():
        return 0
    state = torch.load(folder / "state.pt")
    model.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    return int(state["step"])


def save(folder: Path, model: nn.Module, optimizer: torch.optim.Optimizer, step: int) -> None:
    """Save what `restored` restores."""
    state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step}
    torch.save(state, folder / "next.pt")
    os.replace(folder / "next.pt", folder / "state.pt")


def ahead_of_a_pool(start_pool: Callable[[], Any], lost: bool) -> Callable[[Path, int], Iterator[int]]:
    """Return a trainer whose next batches are made in other threads: which of them is ready, time decides."""

    def train(folder: Path, steps: int) -> Iterator[int]:
        torch.manual_seed(0)
        model = nn.Linear(4, 2)
        optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
        start = restored(folder, model, optimizer)
        with start_pool() as pool:
            ask = pool.submit if isinstance(pool, ThreadPoolExecutor) else lambda f, i: pool.apply_async(f, (i,))
            ahead: deque[Any] = deque()
            following = 0 if lost else start
            for step in range(start, steps):
                while len(ahead) < 3:
                    ahead.append(ask(made, following))
                    following += 1
                waiting = ahead.popleft()
                x = waiting.result() if isinstance(pool, ThreadPoolExecutor) else waiting.get()
                optimizer.zero_grad()
                (model(x) - x[:, :2]).square().mean().backward()
                optimizer.step()
                save(folder, model, optimizer, step + 1)
                yield step + 1

    return train


POOLS: list[Callable[[], Any]] = [lambda: ThreadPoolExecutor(2), lambda: ThreadPool(2)]


@pytest.mark.parametrize("start_pool", POOLS)
def test_a_batch_that_is_not_ready_yet_is_no_difference(start_pool: Callable[[], Any]) -> None:
    found = parity.resumes(ahead_of_a_pool(start_pool, lost=False), steps=8, scenarios="all", mode="inline")
    assert found.verdict == "holds", found.text()


@pytest.mark.parametrize("start_pool", POOLS)
def test_the_position_from_which_a_pool_reads_ahead_is_lost(start_pool: Callable[[], Any]) -> None:
    found = parity.resumes(ahead_of_a_pool(start_pool, lost=True), steps=8, scenarios="kill", mode="inline")
    assert found.verdict == "broken"
    assert found.suspects[0].path in ("following", "ahead[0]._result", "ahead[0]._value", "x"), found.text()


def validates(lost: str) -> Callable[[Path, int], Iterator[int]]:
    """Return a loop that leaves evaluation mode behind at its marks, and sets the other where a step begins."""

    def train(folder: Path, steps: int) -> Iterator[int]:
        torch.manual_seed(0)
        model, start, row, recent = nn.Sequential(nn.Linear(4, 2), nn.Dropout(0.2)), 0, 0, deque([1.0], maxlen=3)
        optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
        if (folder / "state.pt").exists():
            state = torch.load(folder / "state.pt", weights_only=False)
            model.load_state_dict(state["model"])
            optimizer.load_state_dict(state["optimizer"])
            torch.set_rng_state(state["noise"])
            start = state["step"]
            row = 0 if lost == "row" else state["row"]
            recent = deque([1.0], maxlen=3) if lost == "recent" else state["recent"]
        for step in range(start, steps):
            yield step
            model.train()
            x, row = made(row), row + 1
            optimizer.zero_grad()
            loss = (model(x) - x[:, :2]).square().mean() / sum(recent)
            loss.backward()
            optimizer.step()
            recent.append(loss.item())
            model.eval()
            state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "row": row, "step": step + 1}
            torch.save({**state, "recent": recent, "noise": torch.get_rng_state()}, folder / "next.pt")
            os.replace(folder / "next.pt", folder / "state.pt")
        yield steps

    return train


@pytest.mark.parametrize(("lost", "verdict", "path"), [("", "holds", ""), ("row", "broken", "row"),
                                                      ("recent", "broken", "recent[")])  # fmt: skip
def test_a_mode_that_the_step_sets_is_not_what_was_lost(lost: str, verdict: str, path: str) -> None:
    found = parity.resumes(validates(lost), steps=9, scenarios="kill", mode="inline")
    assert found.verdict == verdict, found.text()
    assert not path or found.suspects[0].path.startswith(path), found.text()


class Feed:
    """Batches that a thread makes ahead, from a generator of its own; each takes another time."""

    def __init__(self, skip: int, count: int) -> None:
        self.noise, self.ready, self.skip, self.count = torch.Generator().manual_seed(3), queue.Queue(4), skip, count
        self.clock = random.SystemRandom()
        threading.Thread(target=self.fill, name="feed", daemon=True).start()

    def fill(self) -> None:
        for number in range(self.count):
            x = torch.randn(8, 4, generator=self.noise)
            if number >= self.skip:
                time.sleep(0.01 * self.clock.random())
                try:
                    self.ready.put(x, timeout=1)
                except queue.Full:  # its run was killed
                    return


def fed(*, lost: bool) -> Callable[[Path, int], Iterator[int]]:
    def train(folder: Path, steps: int) -> Iterator[int]:
        torch.manual_seed(0)
        model = nn.Linear(4, 2)
        optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
        start = restored(folder, model, optimizer)
        feed = Feed(0 if lost else start, steps + 4)
        for step in range(start, steps):
            x = feed.ready.get()
            optimizer.zero_grad()
            (model(x) - x[:, :2]).square().mean().backward()
            optimizer.step()
            save(folder, model, optimizer, step + 1)
            yield step + 1

    return train


def test_how_far_a_thread_has_filled_a_queue_is_no_difference() -> None:
    found = parity.resumes(fed(lost=False), steps=8, scenarios=("kill", "third"), mode="inline")
    assert found.verdict == "holds", found.text()


def test_the_position_of_a_thread_that_reads_ahead_is_lost() -> None:
    found = parity.resumes(fed(lost=True), steps=8, scenarios="kill", mode="inline")
    assert found.verdict == "broken"
    assert not found.suspects[0].component.startswith(("optimizer", "model")), found.text()
