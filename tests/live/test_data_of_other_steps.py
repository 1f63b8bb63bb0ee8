"""Batches and what they are drawn by may be those of another step: what is trained tells the step of a state."""

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from parity.capture import Leaf, StateSnapshot
from parity.checks.judging.alignment import align
from parity.checks.running import Mark
from tests.live.small_loops import check


def trainer(*, lost: str = "") -> Any:
    """Return a trainer that begins an epoch of six steps anew at a resume, and goes to where it was.

    Args:
        lost: `stream`: the state of the generator at the beginning of the epoch; `count`: the steps completed.
    """

    def train(folder: Path, steps: int) -> Iterator[int]:
        torch.manual_seed(0)
        net, path, rng = torch.nn.Linear(2, 1), folder / "state.pt", torch.Generator().manual_seed(7)
        optimizer, n, done = torch.optim.SGD(net.parameters(), 0.05, momentum=0.9), 0, 0
        if path.exists():
            weights, moments, n, drawn = torch.load(path)
            net.load_state_dict(weights)
            optimizer.load_state_dict(moments)
            done = n % 6
            n -= 3 if lost == "count" else 0
            if lost != "stream":
                rng.set_state(drawn)
        while n < steps:
            drawn = rng.get_state()
            order = torch.randperm(6, generator=rng).float()
            noise = torch.randn(6, 2, generator=rng)
            while done < 6 and n < steps:
                batch, aim = noise[done] + math.sin(done), order[done : done + 1] * 0.1
                yield n
                optimizer.zero_grad()
                (net(batch) - aim).square().sum().backward()
                optimizer.step()
                n, done = n + 1, done + 1
                if n % 4 == 0:
                    torch.save((net.state_dict(), optimizer.state_dict(), n, drawn), path)
            done = 0

    return train


def test_a_stream_that_was_lost_is_named_and_not_the_step() -> None:
    found = check(trainer(lost="stream"), steps=24, stop_at=21)
    assert found.verdict == "broken", found
    assert not [one for one in found.suspects if one.path == "mark"], found


def test_it_holds_where_the_stream_comes_back() -> None:
    found = check(trainer(), steps=24, stop_at=21)
    assert found.verdict == "holds", found


def test_a_count_that_is_that_of_another_step_is_named() -> None:
    found = check(trainer(lost="count"), steps=24, stop_at=21)
    assert (found.suspects[0].component, found.suspects[0].path) == ("counters.step", "mark"), found


def state(trained: int, others: int) -> StateSnapshot:
    leaves = {name: Leaf("array", name, "float64[2]", f"{others}") for name in "abc"}
    return StateSnapshot({"net.w": Leaf("state", "model.params", "float64[2]", f"{trained}"), **leaves})


MARKS = [Mark(at, state(at, at)) for at in range(8)]


@pytest.mark.parametrize(
    ("resumed", "expected"),
    [
        (state(6, 2), (6, False)),  # the model is that of the step that it says
        (state(2, 2), (2, True)),  # the count alone is of another step
        (state(99, 2), (2, True)),
        (state(2, 6), (6, False)),
        (state(3, 2), (2, True)),
    ],
)
def test_what_a_framework_trains_says_which_step_a_state_is_of(
    resumed: StateSnapshot, expected: tuple[int, bool]
) -> None:
    assert align(MARKS, resumed, 6, {"net.w", *"abc"}) == expected
