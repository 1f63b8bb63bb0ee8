"""Trainers of coroutines: tasks in a group, and context variables, which no run leaves to the next."""

import asyncio
import pickle
from contextvars import ContextVar
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import parity
from parity.errors import TrainerError
from tests.live.small_loops import check, first

smooth = ContextVar("smooth", default=1.0)
drift: ContextVar[float] = ContextVar("drift")


async def steps_of(folder: Path, steps: int, lost: str) -> list[float]:
    w, v, begin, file = np.ones(3), np.zeros(3), 0, folder / "state.pickle"
    if file.exists():
        begin, w, held, mean, drifted = pickle.loads(file.read_bytes())
        v = v if lost == "v" else held
        if lost != "smooth":
            smooth.set(mean)
        if lost != "drift":
            drift.set(drifted)
    for step in range(begin, steps):
        await asyncio.sleep(0)
        parity.mark(step)
        error = w - np.sin(step + np.arange(3))
        smooth.set(0.9 * smooth.get() + 0.1 * float(np.abs(error).mean()))
        drift.set(0.8 * drift.get(0.0) + 0.01)
        v = 0.5 * v + error / (0.5 + smooth.get()) + drift.get()
        w = w - 0.1 * v
        if step % 4 == 3:
            file.write_bytes(pickle.dumps((step + 1, w, v, smooth.get(), drift.get())))
    return w.tolist()


@pytest.mark.parametrize("lost", ["", "v", "smooth", "drift"])
def test_context_variables_are_those_of_a_run(lost: str) -> None:
    """One that is not set has its default; a run that set it left it to the next one, and the loss was not seen."""

    def train(folder: Path, steps: int) -> Any:
        return asyncio.run(steps_of(folder, steps, lost))

    found = check(train, scenarios=("kill", "again"))
    assert found.verdict == ("broken" if lost else "holds"), found.text()
    if lost in ("v", "smooth"):
        assert first(found).startswith(lost), found.text()


def test_a_context_variable_of_a_generator_is_one_of_its_run_too() -> None:
    def train(folder: Path, steps: int) -> Any:
        w, begin, file = np.ones(3), 0, folder / "state.pickle"
        if file.exists():
            begin, w = pickle.loads(file.read_bytes())
        for step in range(begin, steps):
            yield step
            drift.set(0.8 * drift.get(0.0) + 0.01)
            w = 0.9 * w + drift.get()
            if step % 4 == 3:
                file.write_bytes(pickle.dumps((step + 1, w)))

    assert check(train).verdict == "broken"
    assert drift.get(None) is None


@pytest.mark.parametrize("lost", ["", "v"])
def test_a_group_of_tasks_ends_at_the_kill(lost: str) -> None:
    def train(folder: Path, steps: int) -> Any:
        async def both() -> list[float]:
            done = asyncio.Event()

            async def watch() -> None:
                await done.wait()

            async with asyncio.TaskGroup() as group:
                trained = group.create_task(steps_of(folder, steps, lost))
                trained.add_done_callback(lambda _: done.set())
                group.create_task(watch())
            return trained.result()

        return asyncio.run(both())

    found = check(train)
    assert found.verdict == ("broken" if lost else "holds"), found.text()
    if lost:
        assert first(found).startswith("v"), found.text()


def test_a_group_that_fails_by_itself_says_so() -> None:
    def train(folder: Path, steps: int) -> Any:
        async def fails() -> None:
            async with asyncio.TaskGroup() as group:
                group.create_task(steps_of(folder, steps, "unknown"))
                group.create_task(asyncio.wait_for(asyncio.sleep(9), 0.001))

        asyncio.run(fails())

    with pytest.raises(TrainerError, match="TimeoutError"):
        check(train)
