"""Runs whose numbers are not finite: both end alike, which proves nothing, with or without a loss to show it."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch

import parity
from parity.capture import Walk
from parity.results import Resumption

STEPS, STOP = 12, 7


def numpy_loop(folder: Path, value: float = 0.0, name: str = "weights", begin: int = 3) -> Iterator[int]:
    """Train three numbers, one of which becomes `value`; no loss is kept."""
    state, table, mask, start = {name: np.zeros(3)}, np.full(STEPS, np.nan), np.full(2, -np.inf), 0
    if (folder / "state.npz").exists():
        with np.load(folder / "state.npz") as loaded:
            state[name], table, start = loaded["w"], loaded["table"], int(loaded["step"])
    for step in range(start, STEPS):
        yield step
        state[name] = state[name] + 1.0
        table[step // 2] = step
        if step >= begin and value != 0.0:
            state[name] = np.full(3, value)
        np.savez(folder / "state.npz", w=state[name], table=table, step=step + 1, mask=mask)


def torch_loop(folder: Path, dtype: torch.dtype = torch.float32) -> Iterator[int]:
    """Train a layer at a rate that overflows."""
    torch.manual_seed(0)
    model = torch.nn.Linear(2, 2).to(dtype)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e30)
    start = 0
    if (folder / "state.pt").exists():
        saved = torch.load(folder / "state.pt", weights_only=True)
        model.load_state_dict(saved["model"])
        start = saved["step"]
    for step in range(start, STEPS):
        yield step
        optimizer.zero_grad()
        (model(torch.ones(1, 2, dtype=dtype)) ** 2).sum().backward()
        optimizer.step()
        torch.save({"model": model.state_dict(), "step": step + 1}, folder / "state.pt")


def check(train: object, **options: object) -> Resumption:
    return parity.resumes(train, steps=STEPS, stop_at=STOP, mode="inline", scenarios="kill", options=options)


@pytest.mark.parametrize("value", [np.nan, np.inf])
@pytest.mark.parametrize("name", ["weights", "exp_avg", "what"])
def test_arrays_that_are_not_finite_are_no_pass(value: float, name: str) -> None:
    found = check(numpy_loop, value=value, name=name)
    assert found.verdict == "inconclusive", found.text()
    assert f"state.{name} (only" in found.notes[-1]
    assert "numbers are not finite in what is trained" in found.notes[-1]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_parameters_of_a_module_that_are_nan_are_no_pass(dtype: torch.dtype) -> None:
    found = check(torch_loop, dtype=dtype)
    assert found.verdict == "inconclusive", found.text()
    assert "model.weight (only nan)" in found.notes[-1]


def test_a_table_that_is_not_full_yet_and_a_mask_of_infinity_are_no_alarm() -> None:
    found = check(numpy_loop)
    assert found.verdict == "holds", found.text()


@pytest.mark.parametrize("name", ["best", "loss", "smallest"])
@pytest.mark.parametrize(("blank", "verdict"), [(True, "holds"), (False, "inconclusive")])
def test_a_number_that_never_was_one_is_a_blank_whatever_it_is_called(name: str, blank: bool, verdict: str) -> None:
    def train(folder: Path) -> Iterator[int]:
        numbers = {name: np.nan if blank else 1.0}
        for step in numpy_loop(folder):
            if step == STEPS - 2:
                numbers[name] = float("nan")
            yield step
            if step > STEPS:
                print(numbers)

    assert check(train).verdict == verdict


def test_nothing_is_searched_unless_it_is_asked_for() -> None:
    walk = Walk()
    walk.root("weights", np.full(2, np.nan))
    assert walk.finish().not_finite == {}
