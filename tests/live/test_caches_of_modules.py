"""Modules and tables of a model that steps make on demand: not all are made again, and nothing is lost."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

import parity
from parity.results import Resumption

Trainer = Callable[[Path, int], Iterator[int]]


def batch(n: int) -> tuple[Tensor, Tensor]:
    x = torch.randn(8, 6, generator=torch.Generator().manual_seed(n))
    return x, (x[:, 0] > 0).long()


def train(folder: Path, steps: int, model: nn.Module, loss: Callable[[int, Tensor, Tensor], Tensor]) -> Iterator[int]:
    optimizer, n, file = torch.optim.Adam(model.parameters(), 1e-2), 0, folder / "state.pt"
    if file.exists():
        then = torch.load(file)
        model.load_state_dict(then["model"])
        optimizer.load_state_dict(then["optimizer"])
        n = then["n"]
    while n < steps:
        yield n
        optimizer.zero_grad()
        loss(n, *batch(n)).backward()
        optimizer.step()
        n += 1
        torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "n": n}, file)


def size(n: int) -> int:
    """Return a size that early steps alone have, and from six on one of two."""
    return 1 + n % 3 if n < 6 else 4 + n % 2


def criteria(folder: Path, steps: int) -> Iterator[int]:
    """A loss for each weight of a class, with that weight as a buffer."""
    torch.manual_seed(0)
    model, made = nn.Linear(6, 2), dict[int, nn.Module]()

    def loss(n: int, x: Tensor, y: Tensor) -> Any:
        if size(n) not in made:
            made[size(n)] = nn.CrossEntropyLoss(weight=torch.tensor([1.0, size(n)]))
        return made[size(n)](model(x), y)

    yield from train(folder, steps, model, loss)


class Smoothing(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.register_buffer("kernel", torch.ones(1, 1, width) / width, persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        return functional.conv1d(x[:, None], self.get_buffer("kernel"), padding="same")[:, 0]


def filters(folder: Path, steps: int) -> Iterator[int]:
    """A filter for each width, as modules beside the model."""
    torch.manual_seed(0)
    model, made = nn.Linear(6, 2), nn.ModuleDict()

    def loss(n: int, x: Tensor, y: Tensor) -> Tensor:
        width = str(2 * size(n) - 1)
        if width not in made:
            made[width] = Smoothing(int(width))
        return functional.cross_entropy(model(made[width](x)), y)

    yield from train(folder, steps, model, loss)


class Angles(nn.Module):
    """Has a table that is made for the longest sequence so far."""

    def __init__(self) -> None:
        super().__init__()
        self.inner, self.table = nn.Linear(6, 2), None

    def forward(self, x: Tensor, length: int) -> Tensor:
        if self.table is None or len(self.table) < length:
            self.table = torch.cos(torch.arange(length)[:, None] * torch.arange(6) / 6)
        return self.inner(x * self.table[length - 1])


def angles(folder: Path, steps: int) -> Iterator[int]:
    torch.manual_seed(0)
    model = Angles()
    yield from train(
        folder, steps, model, lambda n, x, y: functional.cross_entropy(model(x, 9 if n < 4 else size(n)), y)
    )


def resumed(trainer: Trainer) -> Resumption:
    return parity.resumes(trainer, steps=12, stop_at=8, scenarios="kill", mode="inline")


@pytest.mark.parametrize("trainer", [criteria, filters, angles])
def test_what_no_later_step_needs_is_not_made_again(trainer: Trainer) -> None:
    found = resumed(trainer)
    assert found.verdict == "holds", found


def weights_of_the_first_step(folder: Path, steps: int) -> Iterator[int]:
    """A loss whose weight is what the model was when it was made: made again it is another one."""
    torch.manual_seed(0)
    model, made = nn.Linear(6, 2), dict[int, nn.Module]()

    def loss(n: int, x: Tensor, y: Tensor) -> Any:
        if size(n) not in made:
            made[size(n)] = nn.CrossEntropyLoss(weight=1 + model.bias.detach().abs())
        return made[size(n)](model(x), y)

    yield from train(folder, steps, model, loss)


class Bank(nn.Module):
    """Keeps the first rows that it saw, as many as were asked for."""

    def __init__(self) -> None:
        super().__init__()
        self.inner, self.rows = nn.Linear(6, 2), None

    def forward(self, x: Tensor, length: int) -> Tensor:
        if self.rows is None or len(self.rows) < length:
            self.rows = x[:length].clone()
        return self.inner(x + self.rows[length - 1])


def bank(folder: Path, steps: int) -> Iterator[int]:
    torch.manual_seed(0)
    model = Bank()
    yield from train(folder, steps, model, lambda n, x, y: functional.cross_entropy(model(x, size(n)), y))


@pytest.mark.parametrize(("trainer", "name"), [(weights_of_the_first_step, "made"), (bank, "model.rows")])
def test_what_is_another_one_when_it_is_made_again_is_lost(trainer: Trainer, name: str) -> None:
    found = resumed(trainer)
    assert found.verdict == "broken", found
    assert found.suspects[0].path.removeprefix(f"{trainer.__name__}().").startswith(name), found.suspects[:3]
