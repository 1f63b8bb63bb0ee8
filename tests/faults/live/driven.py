"""A trainer of the catalogue in the hands of pytest-torch: driven as it is, with everything that it keeps declared.

Loops are not ported by hand: each one saves with its own code at its own time.
"""

from __future__ import annotations

import copy
import inspect
import re
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, redirect_stdout
from dataclasses import dataclass, field
from functools import partial
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np
import torch

from tests.faults.live.entry import Entry

__all__ = ["NAMES", "Answer", "is_named", "pytest_torch"]

NAMES = {
    "model": r"\bmodel: ",
    "normalizer": r"\bnormalizer: ",
    "optimizer": r"optimizer '|\bmasters\b",
    "schedule": r"scheduler '|\blr \S+ after loading",
    "scaler": r"GradScaler: ",
    "rng": r"random number generators|\bgenerators: ",
    "data": r"\b(feed|position): ",
    "counters": r"\b(progress|plain): ",
    "progress": r"\b(progress|plain): ",
    "best": r"\b(progress|plain|best_state): ",
    "ema": r"\bema: ",
}
"""Component, up to its first dot, to what the message says where it blames that component, anywhere in it.

What becomes of checkpoints is in no message: the tool compares one state with another.
"""


class Kept:
    """Gives an object that has no `state_dict` one, so that it can be declared."""

    def __init__(self, read: Callable[[], Any]) -> None:
        self.read = read

    def state_dict(self) -> dict[str, Any]:
        """Return copies of its values; arrays as tensors, which the tool can compare."""
        found = self.read()
        values = found if isinstance(found, dict) else vars(found)
        return {k: torch.tensor(v) if isinstance(v, np.ndarray) else copy.deepcopy(v) for k, v in values.items()}


class Shown:
    """An object with some of its attributes replaced, where the tool does not take the whole."""

    def __init__(self, whole: Any, **others: Any) -> None:
        self.whole = whole
        vars(self).update(others)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.whole, name)


@dataclass(frozen=True, kw_only=True)
class Answer:
    """What a tool said of one trainer."""

    red: bool
    components: tuple[str, ...] = ()
    """Those that it blames, by the first part of their names."""
    text: str = field(default="", repr=False)


@dataclass
class Live:
    """A trainer that is being driven, step by step."""

    entry: Entry
    fault: str
    folder: Path
    loop: Iterator[int] | None = None
    at: int = -1
    """Step of the last mark."""

    def start(self) -> None:
        """Build, load what the folder holds, and stop before the first step."""
        assert self.entry.train is not None
        options = {**self.entry.options, "fault": self.fault}
        self.loop = self.entry.train(self.folder, steps=self.entry.steps, **options)
        self.at = next(self.loop)

    def step(self) -> float:
        """Do one step; return its loss."""
        assert self.loop is not None
        self.at = next(self.loop)
        return float(self.variables["loss"].detach())

    @property
    def variables(self) -> dict[str, Any]:
        """Return the variables of the loop."""
        return inspect.getgeneratorlocals(self.loop)  # type: ignore[arg-type]

    def declared(self) -> dict[str, Any]:
        """Return everything else that the trainer keeps, each with a `state_dict`."""
        found: dict[str, Any] = {}
        for name in ("feed", "ema", "progress", "normalizer"):
            if (one := self.variables.get(name)) is not None:
                found[name] = one if hasattr(one, "state_dict") else Kept(partial(lambda kept: kept, one))
        names = ("step", "best", "best_name", "scores", "position")
        if any(name in self.variables for name in names):
            found["plain"] = Kept(lambda: {n: self.variables[n] for n in names if n in self.variables})
        if "best_state" in self.variables:
            found["best_state"] = Kept(lambda: dict(self.variables["best_state"]))
        if "generators" in self.variables:
            found["generators"] = Kept(lambda: _numbered([g.get_state() for g in self.variables["generators"]]))
        return found


def pytest_torch(entry: Entry, fault: str) -> Answer:
    """Give one trainer to `pytest_torch.assert_resume_equivalent`.

    Args:
        entry: The trainer and its options.
        fault: Its bug; empty for none.

    Returns:
        Whether it was red, and what its message blames. A trainer that fails where it is resumed is red too.
    """
    from pytest_torch.training_loop import TrainingSetup, assert_resume_equivalent

    every = int(entry.options.get("save_every", 5))
    at, steps = entry.stop_at // every * every, _length(entry)
    with ExitStack() as stack:
        home = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        folders = iter(home / str(number) for number in range(9))
        behind = at - _restart(entry, at, home / "restart")  # what a trainer that writes later does once more
        driven: dict[int, Live] = {}

        def setup_of(live: Live) -> Any:
            found = live.variables
            model, optimizer, declared = found["model"], found["optimizer"], live.declared()
            if any(not isinstance(value, torch.Tensor) for value in model.state_dict().values()):  # extra state
                declared["model"] = model
                model = Shown(model, state_dict=lambda whole=model: _tensors(whole.state_dict()))
            if not hasattr(optimizer, "param_groups"):
                declared["masters"] = Kept(partial(_numbered, optimizer.masters))
                optimizer = optimizer.optimizer
            return TrainingSetup(model, optimizer, found.get("scheduler"), found.get("scaler"), declared)

        def make_setup() -> Any:
            live = Live(entry, fault, next(folders))
            live.start()
            setup = setup_of(live)
            driven[id(setup)] = live
            return setup

        def save(setup: Any, path: Path) -> None:
            shutil.copytree(driven[id(setup)].folder, path)

        def load(setup: Any, path: Path) -> None:
            live = Live(entry, fault, next(folders))
            shutil.copytree(path, live.folder)
            live.start()
            for _ in range(behind):
                live.step()
            vars(setup).update(vars(setup_of(live)))
            driven[id(setup)] = live

        def step(setup: Any, _batch: Any) -> float:
            return driven[id(setup)].step()

        stack.enter_context(redirect_stdout(StringIO()))
        try:
            assert_resume_equivalent(
                make_setup, lambda number: torch.zeros(1), step, steps=steps, resume_at=at, save=save, load=load
            )
        except AssertionError as error:
            return Answer(red=True, components=_blamed(str(error)), text=str(error))
        except Exception as error:  # the trainer cannot continue: that is found as well
            return Answer(red=True, components=_blamed(str(error)), text=f"{type(error).__name__}: {error}")
    return Answer(red=False)


def _numbered(tensors: Sequence[torch.Tensor]) -> dict[str, torch.Tensor]:
    return {str(number): tensor.detach() for number, tensor in enumerate(tensors)}


def _tensors(state: Mapping[str, Any]) -> dict[str, torch.Tensor]:
    return {name: value for name, value in state.items() if isinstance(value, torch.Tensor)}


def _length(entry: Entry) -> int:
    """Return the step of the last mark of a clean run: some stop early."""
    with tempfile.TemporaryDirectory() as home, redirect_stdout(StringIO()):
        assert entry.train is not None
        return max(entry.train(Path(home), steps=entry.steps, **{**entry.options, "fault": ""}))


def _restart(entry: Entry, at: int, home: Path) -> int:
    """Return where a clean run continues that is killed at a step."""
    with redirect_stdout(StringIO()):
        first = Live(entry, "", home)
        first.start()
        while first.at < at:
            first.step()
        again = Live(entry, "", home.with_name("copy"))
        shutil.copytree(home, again.folder)
        again.start()
        return again.at


def _blamed(text: str) -> tuple[str, ...]:
    return tuple(name for name, pattern in NAMES.items() if re.search(pattern, text))


def is_named(entry: Entry, answer: Answer) -> bool:
    """Return whether a message mentions a component that an expert would name."""
    return bool({name.partition(".")[0] for name in entry.expected} & set(answer.components))
