"""A trainer driven by callbacks, as the well-known ones are: private state deep in `self`, the mark in a callback."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import nn

import parity
from tests.live.clean_torch import mlp, toy

__all__ = ["train"]


class Callback:
    """Called by the trainer at each step; does nothing by itself."""

    def on_step_begin(self, trainer: Trainer) -> None:
        """Before a batch is trained on."""

    def on_step_end(self, trainer: Trainer) -> None:
        """After it."""

    def state_dict(self) -> dict[str, Any]:
        """Return what is to be saved."""
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take it back."""


class Mark(Callback):
    """The line that a check needs."""

    def on_step_begin(self, trainer: Trainer) -> None:
        """Mark the completed steps."""
        parity.mark(trainer.progress.step)


class Average(Callback):
    """Averages the weights."""

    def __init__(self) -> None:
        self.shadow: dict[str, torch.Tensor] = {}

    def on_step_end(self, trainer: Trainer) -> None:
        """Move a little towards the weights."""
        for name, weight in trainer._engine.model.state_dict().items():
            self.shadow[name] = 0.9 * self.shadow.get(name, weight) + 0.1 * weight

    def state_dict(self) -> dict[str, Any]:
        """Return the average."""
        return dict(self.shadow)

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take it back."""
        self.shadow = dict(state)


@dataclass
class Progress:
    """Where the trainer is."""

    step: int = 0
    epoch: int = 0
    batch: int = 0


@dataclass
class Engine:
    """What is trained."""

    model: nn.Module
    optimizer: torch.optim.Optimizer
    schedule: Any = field(init=False)

    def __post_init__(self) -> None:
        self.schedule = torch.optim.lr_scheduler.StepLR(self.optimizer, 4, 0.8)


class Trainer:
    """Runs the loop; saves itself and its callbacks, and whatever it is still doing when it is interrupted."""

    def __init__(self, folder: Path, engine: Engine, callbacks: list[Callback], fault: str) -> None:
        self._folder, self._engine, self._callbacks, self._fault = folder, engine, callbacks, fault
        self.progress = Progress()
        self._x, self._y = toy(64)
        self._shuffle = torch.Generator().manual_seed(3)
        self._order = torch.randperm(64, generator=self._shuffle)

    def fit(self, steps: int) -> None:
        """Train up to a step."""
        if (self._folder / "last.pt").exists():
            self._load()
        try:
            while self.progress.step < steps:
                for batch in self._batches():
                    self._call("on_step_begin")
                    self._step(*batch)
                    self._call("on_step_end")
                    if self.progress.step % 5 == 0:
                        self._save("last.pt")
                    if self.progress.step >= steps:
                        break
        except BaseException:
            self._save("last.pt")  # a process that is killed does not come here
            raise

    def _batches(self) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        while self.progress.batch < 8:
            at = self._order[self.progress.batch * 8 : self.progress.batch * 8 + 8]
            self.progress.batch += 1
            yield self._x[at], self._y[at]
        self.progress.epoch, self.progress.batch = self.progress.epoch + 1, 0
        self._order = torch.randperm(64, generator=self._shuffle)

    def _step(self, x: torch.Tensor, y: torch.Tensor) -> None:
        loss = nn.functional.cross_entropy(self._engine.model(x), y)
        self._engine.optimizer.zero_grad()
        loss.backward()
        self._engine.optimizer.step()
        self._engine.schedule.step()
        self.progress.step += 1

    def _call(self, hook: str) -> None:
        for callback in self._callbacks:
            getattr(callback, hook)(self)

    def _save(self, name: str) -> None:
        engine = {key: getattr(self._engine, key).state_dict() for key in ("model", "optimizer", "schedule")}
        streams = {"torch": torch.get_rng_state(), "shuffle": self._shuffle.get_state(), "order": self._order}
        callbacks = [callback.state_dict() for callback in self._callbacks]
        state = {"engine": engine, "streams": streams, "callbacks": callbacks, "progress": vars(self.progress)}
        torch.save(state, self._folder / name)

    def _load(self) -> None:
        state = torch.load(self._folder / "last.pt", weights_only=True)
        for key, part in state["engine"].items():
            if key != self._fault:
                getattr(self._engine, key).load_state_dict(part)
        for callback, part in zip(self._callbacks, state["callbacks"], strict=True):
            if self._fault != "callbacks":
                callback.load_state_dict(part)
        if self._fault != "order":
            self._order = state["streams"]["order"]
        if self._fault != "shuffle":
            self._shuffle.set_state(state["streams"]["shuffle"])
        if self._fault != "streams":
            torch.set_rng_state(state["streams"]["torch"])
        self.progress = Progress(**state["progress"])
        if self._fault == "batch":
            self.progress.batch = 0


def train(folder: Path, steps: int = 21, *, fault: str = "") -> None:
    """Train for some steps; continue from `last.pt` if it is there."""
    torch.manual_seed(0)
    model = mlp()
    engine = Engine(model, torch.optim.AdamW(model.parameters(), lr=1e-2))
    Trainer(folder, engine, [Average(), Mark()], fault).fit(steps)
