"""What is named first is what was lost, and not what followed from it."""

import copy
import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset, WeightedRandomSampler

import parity
from parity.results import Resumption
from tests.live.test_nothing_follows import Trainer, batch, load, save


def check(train: Trainer) -> Resumption:
    return parity.resumes(train, steps=12, stop_at=6, mode="inline", scenarios=("kill", "again"))


def keeps_the_best(*, saved: bool) -> Trainer:
    """Return a trainer that loads the best weights at its end, and saves them with the state or not."""

    def train(folder: Path, steps: int) -> Iterator[int]:
        torch.manual_seed(0)
        model, start, best, kept = nn.Linear(4, 1), 0, 1e9, None
        if (state := load(folder)) is not None:
            model.load_state_dict(state["model"])
            start, best = state["step"], state["best"]
            kept = state["kept"] if saved else None
        for step in range(start, steps):
            x = batch(step, 8, 4)
            model.zero_grad()
            functional.mse_loss(model(x)[:, 0], x[:, 0]).backward()
            with torch.no_grad():
                for p in model.parameters():
                    p -= 0.1 * p.grad
            if step % 3 == 2:
                with torch.no_grad():
                    value = functional.mse_loss(model(batch(99, 32, 4))[:, 0], batch(99, 32, 4)[:, 0]).item()
                if value < best:
                    best, kept = value, copy.deepcopy(model.state_dict())
            save(folder, model=model.state_dict(), step=step + 1, best=best, kept=kept)
            yield step + 1
        if kept is not None:
            model.load_state_dict(kept)

    return train


def test_the_best_weights_are_lost_though_better_ones_came() -> None:
    assert check(keeps_the_best(saved=True)).verdict == "holds"
    found = check(keeps_the_best(saved=False))
    assert found.verdict == "broken", found.text()
    assert (found.suspects[0].path, found.suspects[0].got) == ("kept", "None"), found.text()


def weighted(*, skips: bool) -> Trainer:
    """Return a trainer whose loader draws an order for each epoch, of which a resume skips what was seen, or not."""

    def train(folder: Path, steps: int) -> Iterator[int]:
        torch.manual_seed(0)
        model, step, order = nn.Linear(4, 1), 0, torch.Generator()
        optimizer = torch.optim.RMSprop(model.parameters())
        examples = batch(1, 24, 4)
        if (state := load(folder)) is not None:
            model.load_state_dict(state["model"])
            optimizer.load_state_dict(state["optimizer"])
            step = state["step"]
        while step < steps:
            epoch, seen = divmod(step, 6)
            order.manual_seed(epoch)
            sampler = WeightedRandomSampler(torch.linspace(1, 2, 24).tolist(), 24, generator=order)
            for at, (x,) in enumerate(DataLoader(TensorDataset(examples), 4, sampler=sampler)):
                if at < seen and skips:
                    continue
                optimizer.zero_grad()
                functional.mse_loss(model(x)[:, 0], x[:, 0]).backward()
                optimizer.step()
                step += 1
                save(folder, model=model.state_dict(), optimizer=optimizer.state_dict(), step=step)
                yield step
                if step >= steps:
                    break

    return train


def test_batches_that_come_again_are_named_before_the_generator_of_seeds() -> None:
    assert check(weighted(skips=True)).verdict == "holds"
    found = check(weighted(skips=False))
    assert found.verdict == "broken", found.text()
    assert found.suspects[0].component == "data.position", found.text()


def annealed(*, anew: bool) -> Trainer:
    """Return a trainer with a temperature of the step, which a resume begins anew or not."""

    def train(folder: Path, steps: int) -> Iterator[int]:
        torch.manual_seed(0)
        model, start = nn.Linear(4, 1), 0
        optimizer = torch.optim.Adagrad(model.parameters(), 0.1)
        if (state := load(folder)) is not None:
            model.load_state_dict(state["model"])
            optimizer.load_state_dict(state["optimizer"])
            start = state["step"]
        for step in range(start, steps):
            softness = 4 * 0.9 ** (step - (start if anew else 0))
            x = batch(step, 8, 4)
            optimizer.zero_grad()
            functional.mse_loss(model(x)[:, 0] / softness, x[:, 0]).backward()
            optimizer.step()
            save(folder, model=model.state_dict(), optimizer=optimizer.state_dict(), step=step + 1)
            yield step + 1

    return train


def test_what_a_step_is_made_with_is_named_before_its_gradients() -> None:
    assert check(annealed(anew=False)).verdict == "holds"
    found = check(annealed(anew=True))
    assert found.verdict == "broken", found.text()
    assert found.suspects[0].path == "softness", found.text()


def compressed(*, loses: bool) -> Trainer:
    """Return a trainer that sends gradients along a direction per matrix, which is taken up at the next step."""

    def train(folder: Path, steps: int) -> Iterator[int]:
        torch.manual_seed(0)
        model, start, along = nn.Linear(4, 3), 0, dict[int, torch.Tensor]()
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        if (state := load(folder)) is not None:
            model.load_state_dict(state["model"])
            along = {} if loses else state["along"]
            start = state["step"]
        for step in range(start, steps):
            yield step
            x = batch(step, 8, 4)
            made = torch.autograd.grad((model(x) - x[:, :3]).square().mean(), list(model.parameters()))
            for index, (parameter, gradient) in enumerate(zip(model.parameters(), made, strict=True)):
                parameter.grad = gradient
                if gradient.ndim == 2:
                    given = along[index] if index in along else torch.ones(4, 1)
                    side = nn.functional.normalize(gradient @ given, dim=0)
                    along[index] = gradient.T @ side
                    parameter.grad = side @ along[index].T
            optimizer.step()
            save(folder, model=model.state_dict(), along=along, step=step + 1)

    return train


def test_a_table_that_steps_fill_again_is_named_before_the_gradients_that_each_step_sets() -> None:
    assert check(compressed(loses=False)).verdict == "holds"
    found = check(compressed(loses=True))
    assert found.verdict == "broken", found.text()
    assert found.suspects[0].path == "along[0]", found.text()


class Buckets:
    """Gives indices of batches, epoch by epoch, each in an order of its own."""

    def __init__(self) -> None:
        self.epoch, self.at, self.order = -1, 0, list[int]()

    def __iter__(self) -> Iterator[int]:
        while True:
            if self.at >= len(self.order):
                self.epoch, self.at = self.epoch + 1, 0
                g = random.Random(self.epoch)
                self.order = sorted(range(4), key=lambda i: (i // 2, g.random()))
                g.shuffle(self.order)
            self.at += 1
            yield self.order[self.at - 1]


def learns_from_its_errors(folder: Path, steps: int, *, lost: str) -> Iterator[int]:
    """Every sixth step sets the rate by all errors so far; `g` is set when an epoch begins, in each process anew."""
    w, rate, errors, count, buckets, file = np.array([1.0, 0.5]), 0.1, list[float](), 0, Buckets(), folder / "state"
    if file.exists():
        saved = json.loads(file.read_text())
        w, rate, count = np.array(saved["w"]), saved["rate"], saved["count"]
        errors = errors if lost == "errors" else saved["errors"]
        if lost != "buckets":
            buckets.epoch, buckets.at, buckets.order = saved["data"]
    batches = iter(buckets)
    while count < steps:
        yield count
        x = 1.0 + next(batches)
        error = float(w[0] * x - 1.0)
        w = w - 0.1 * rate * error * x
        errors.append(error)
        count += 1
        if count % 6 == 0:
            rate = 0.1 / (1.0 + sum(map(abs, errors)) / len(errors))
        if count % 3 == 0:
            data = [buckets.epoch, buckets.at, buckets.order]
            file.write_text(
                json.dumps({"w": w.tolist(), "rate": rate, "count": count, "errors": errors, "data": data})
            )


@pytest.mark.parametrize(
    ("lost", "first"), [("errors", ("errors",)), ("buckets", ("buckets.epoch", "buckets.order"))]
)
def test_what_a_generator_has_not_set_yet_is_named_behind_a_lost_list_of_the_past(
    lost: str, first: tuple[str, ...]
) -> None:
    given: dict[str, Any] = {"steps": 17, "stop_at": 10, "mode": "inline", "scenarios": ("kill",)}
    assert parity.resumes(learns_from_its_errors, options={"lost": ""}, **given).verdict == "holds"
    found = parity.resumes(learns_from_its_errors, options={"lost": lost}, **given)
    assert found.verdict == "broken"
    assert found.suspects[0].path.startswith(first), found.text()
