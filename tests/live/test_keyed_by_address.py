"""What is kept under the address of an object is told by its path, whatever variables a loop leaves."""

import pickle
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch import nn

import parity
from parity.capture import Walk

Trainer = Callable[[Path, int], Iterator[int]]


class Moved:
    """Moves parameters along a mean of their gradients, which it keeps under their addresses."""

    def __init__(self, parameters: Any) -> None:
        self.parameters, self.slots = list(parameters), dict[int, Any]()

    @torch.no_grad()
    def step(self) -> None:
        for parameter in self.parameters:
            mean = self.slots.setdefault(id(parameter), torch.zeros_like(parameter))
            mean.lerp_(parameter.grad, 0.2)
            parameter.sub_(0.1 * mean)


def trainer(lost: str = "") -> Trainer:
    def train(folder: Path, steps: int) -> Iterator[int]:
        torch.manual_seed(0)
        model, scale, start = nn.Linear(3, 2), 1.0, 0
        moved = Moved(model.parameters())
        x = torch.linspace(-1, 1, 12).reshape(4, 3)
        if (folder / "state").exists():
            values, means, kept, start = pickle.loads((folder / "state").read_bytes())
            model.load_state_dict(values)
            scale = scale if lost == "scale" else kept
            for name, p in model.named_parameters():  # which leaves its variables in this process alone
                if lost != "slots":
                    moved.slots[id(p)] = means[name]
        for step in range(start, steps):
            yield step
            model.zero_grad()
            (scale * model(x) - x[:, :2]).square().mean().backward()
            moved.step()
            scale = 0.9 * scale + 0.1 / (1 + step)
            means = {name: moved.slots[id(one)] for name, one in model.named_parameters()}
            (folder / "state").write_bytes(pickle.dumps((model.state_dict(), means, scale, step + 1)))

    return train


def first(train: Trainer) -> str:
    found = parity.resumes(train, steps=12, stop_at=7, mode="inline", scenarios="kill")
    return found.suspects[0].path if found.verdict == "broken" else found.verdict


def test_a_variable_that_only_a_resume_leaves_gives_no_other_path() -> None:
    assert first(trainer()) == "holds"
    assert first(trainer("scale")) == "scale"
    assert first(trainer("slots")) == "moved.slots[id(model.bias)]"


def test_an_object_that_nothing_else_leads_to_is_told_by_the_variable_that_is_left() -> None:
    walk, owner = Walk(), object()
    walk.root("left", owner, dead=True)
    walk.root("table", {id(owner): 3})
    assert "table[id(left)]" in walk.finish().leaves
